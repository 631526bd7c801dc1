"""The topology file: which switches there are and what is attached to their ports."""

from netreduce.controller.topology.inventory import Attachment, Inventory, SwitchPort
from netreduce.controller.topology.loader import TopologyError, load_topology, parse_topology

__all__ = ["Attachment", "Inventory", "SwitchPort", "TopologyError", "load_topology", "parse_topology"]
