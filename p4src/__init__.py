"""The P4 program, its compiled artefacts and the wire constants shared by all parts."""
