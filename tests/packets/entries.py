"""What a controller writes into a switch, as plain values that the reference and every target take."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from netreduce.p4.wire import BLOCK_BYTES

FLOOD_GROUP = 1
FIRST_STREAM_GROUP = 2


def lane_mask(lane_bits: int) -> int:
    """H of the lane-wise addition: the top bit of every ``lane_bits`` wide lane of a block."""
    lanes = BLOCK_BYTES * 8 // lane_bits
    return sum(1 << (lane * lane_bits + lane_bits - 1) for lane in range(lanes))


@dataclass(frozen=True)
class TableEntry:
    """An entry of a table: its key, and its action with parameters, under their P4Info names."""

    table: ClassVar[str]
    action: ClassVar[str]

    @property
    def match(self) -> dict[str, int]:
        raise NotImplementedError

    @property
    def params(self) -> dict[str, int]:
        return {name: value for name, value in asdict(self).items() if name not in self.match}


@dataclass(frozen=True)
class Connection(TableEntry):
    """``connection``: one rank of one stream. ``lane_bits`` stands for the lane mask."""

    table: ClassVar[str] = "connection"
    action: ClassVar[str] = "contribute"

    job: int
    rank: int
    port: int
    source: int
    stream: int
    generation: int
    slot_base: int
    slot_mask: int
    rank_bit: int
    full: int
    ranks: int
    lane_bits: int
    group: int

    @property
    def match(self) -> dict[str, int]:
        return {"job": self.job, "rank": self.rank}

    @property
    def params(self) -> dict[str, int]:
        values = super().params
        return values | {"lane_mask": lane_mask(values.pop("lane_bits"))}


@dataclass(frozen=True)
class Station(TableEntry):
    """``forward``: the port behind which a MAC address is."""

    table: ClassVar[str] = "forward"
    action: ClassVar[str] = "to_port"

    destination: int
    port: int

    @property
    def match(self) -> dict[str, int]:
        return {"destination": self.destination}


@dataclass(frozen=True)
class Flooded(TableEntry):
    """``forward``: an address whose frames go to a whole group."""

    table: ClassVar[str] = "forward"
    action: ClassVar[str] = "flood"

    destination: int
    group: int

    @property
    def match(self) -> dict[str, int]:
        return {"destination": self.destination}


@dataclass(frozen=True)
class Discarded(TableEntry):
    """``forward``: an address that gets nothing."""

    table: ClassVar[str] = "forward"
    action: ClassVar[str] = "drop"

    destination: int

    @property
    def match(self) -> dict[str, int]:
        return {"destination": self.destination}


@dataclass(frozen=True)
class UnknownStations:
    """The default action of ``forward``: flooding to ``group``, or dropping if it is 0."""

    group: int


@dataclass(frozen=True)
class Rewrite(TableEntry):
    """``rewrite``: the addresses that a rank's results must bear."""

    table: ClassVar[str] = "rewrite"
    action: ClassVar[str] = "as_predecessor"

    stream: int
    rank: int
    source_mac: int
    destination_mac: int
    source_ip: int
    destination_ip: int
    source_port: int
    destination_port: int
    predecessor: int

    @property
    def match(self) -> dict[str, int]:
        return {"stream": self.stream, "rank": self.rank}


@dataclass(frozen=True)
class Group:
    """A multicast group: (port, instance) pairs."""

    number: int
    replicas: tuple[tuple[int, int], ...]


Entry = TableEntry | UnknownStations | Group

ENTRY_TYPES = {
    cls.__name__: cls
    for cls in (Connection, Station, Flooded, Discarded, UnknownStations, Rewrite, Group)
}


def to_json(entry: Entry) -> dict[str, Any]:
    """A value for a JSON file, from which :func:`from_json` makes the entry again."""
    return {"type": type(entry).__name__, **asdict(entry)}


def from_json(value: dict[str, Any]) -> Entry:
    fields = {name: field for name, field in value.items() if name != "type"}
    if "replicas" in fields:
        fields["replicas"] = tuple(tuple(pair) for pair in fields["replicas"])
    return ENTRY_TYPES[value["type"]](**fields)
