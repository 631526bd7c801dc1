"""A P4Runtime server in front of the switch core.

One module per kind of entity; the spec's section titles are quoted where a rule comes from one
(P4Runtime Specification 1.4.1, https://p4.org/specifications/).
"""

from .server import P4RuntimeServer

__all__ = ["P4RuntimeServer"]
