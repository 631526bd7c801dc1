"""What an admitted job gets on its switch: the input of the table entries."""

from dataclasses import dataclass

from netreduce.controller.slots import SlotRange
from netreduce.controller.topology import SwitchPort


@dataclass(frozen=True)
class RankPlan:
    """Where one rank is."""

    rank: int
    port: SwitchPort
    udp_port: int


@dataclass(frozen=True)
class StreamPlan:
    """One lane width of the job: a stream of its own."""

    number: int
    "1 … 255: index of counters, groups and rewrite entries."
    wire_job: int
    "NR.job of its packets."
    lane_bits: int
    slots: SlotRange
    "2W slots."


@dataclass(frozen=True)
class JobPlan:
    """Ranks are ordered by rank; the ring is r → (r + 1) mod n."""

    switch: str
    generation: int
    window: int
    max_blocks: int
    ranks: tuple[RankPlan, ...]
    streams: tuple[StreamPlan, ...]

    def successor(self, rank: int) -> RankPlan:
        """Who receives the rank's contributions."""
        return self.ranks[(rank + 1) % len(self.ranks)]

    def predecessor(self, rank: int) -> RankPlan:
        """Whose packets the results that the rank receives look like."""
        return self.ranks[(rank - 1) % len(self.ranks)]
