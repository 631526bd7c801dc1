"""Entries of the P4 program: one module per table or counter, under its name in P4Info."""
