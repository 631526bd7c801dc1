"""Putting the parts together: ``netreduce run``, the demo and Mininet topologies."""
