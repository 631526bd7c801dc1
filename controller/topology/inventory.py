"""The network as the controller uses it: every port of every switch with its addresses."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from netreduce.controller.topology.schema import SwitchSpec


class Attachment(Enum):
    """What a switch port is."""

    NETWORK = "network"
    SHM = "shm"


@dataclass(frozen=True)
class SwitchPort:
    """One port of a switch and who is behind it."""

    switch: str
    number: int
    host: str
    "Name of the host; of an shm port: ``shm``."
    mac: str
    ip: str
    attachment: Attachment
    veth: str = ""
    "Network ports: the switch's interface, if the file names it."
    socket: str = ""
    "Shm ports: where the switch listens (``@`` in front: abstract namespace)."

    def describe_attachment(self) -> str:
        """For people: ``shm``, ``veth s1-eth1``, or nothing when the file does not say."""
        if self.attachment is Attachment.SHM:
            return "shm"
        return f"veth {self.veth}" if self.veth else ""


@dataclass
class Inventory:
    """All switches and ports; checked for duplicates by the loader."""

    source: str
    "Where it was read from, for messages."
    switches: dict[str, SwitchSpec] = field(default_factory=dict)
    ports: list[SwitchPort] = field(default_factory=list)

    def ports_of(self, switch: str) -> list[SwitchPort]:
        """Ports of one switch by number."""
        return sorted((p for p in self.ports if p.switch == switch), key=lambda p: p.number)

    def shm_ports_of(self, switch: str) -> list[SwitchPort]:
        """Ports of one switch that ranks can be lent."""
        return [p for p in self.ports_of(switch) if p.attachment is Attachment.SHM]

    def network_ports(self) -> Iterator[SwitchPort]:
        """Ports of hosts."""
        return (p for p in self.ports if p.attachment is Attachment.NETWORK)

    def host_by_ip(self, ip: str) -> SwitchPort | None:
        """The network port of the host with this address."""
        return next((p for p in self.network_ports() if p.ip == ip), None)
