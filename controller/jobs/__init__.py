"""Jobs: who may use a switch, with which of its resources, and until when."""
