"""Table ``connection``: which packets contribute, to which slots, and as which rank."""

from collections.abc import Iterator
from dataclasses import dataclass

import finsy as fy

from netreduce.controller.jobs.plan import JobPlan, StreamPlan
from netreduce.controller.tables import groups
from netreduce.controller.topology.addresses import ip_number
from netreduce.p4.wire import BLOCK_BYTES

TABLE = "connection"


def lane_mask(lane_bits: int) -> int:
    """H of the lane-wise addition: the top bit of every lane of a block."""
    lane = 1 << (lane_bits - 1)
    return sum(lane << offset for offset in range(0, BLOCK_BYTES * 8, lane_bits))


def entries(plan: JobPlan, stream: StreamPlan) -> Iterator[fy.P4TableEntry]:
    """One entry per rank.  A packet of the rank from another port or address is counted as spoofed."""
    world_size = len(plan.ranks)
    for rank in plan.ranks:
        yield fy.P4TableEntry(
            TABLE,
            match=fy.P4TableMatch(job=stream.wire_job, rank=rank.rank),
            action=fy.P4TableAction(
                "contribute",
                port=rank.port.number,
                source=ip_number(rank.port.ip),
                stream=stream.number,
                generation=plan.generation,
                slot_base=stream.slots.first,
                slot_mask=stream.slots.count - 1,
                rank_bit=1 << rank.rank,
                full=(1 << world_size) - 1,
                ranks=world_size,
                lane_mask=lane_mask(stream.lane_bits),
                group=groups.of_stream(stream.number),
            ),
        )


@dataclass(frozen=True)
class Connection:
    """An entry found on a switch."""

    wire_job: int
    rank: int
    port: int
    stream: int
    generation: int
    first_slot: int
    slot_count: int
    world_size: int
    group: int

    @classmethod
    def from_entry(cls, entry: fy.P4TableEntry) -> "Connection":
        """The parts of an entry that say which resources it uses."""
        args = entry.action.args
        return cls(
            wire_job=entry["job"],
            rank=entry["rank"],
            port=args["port"],
            stream=args["stream"],
            generation=args["generation"],
            first_slot=args["slot_base"],
            slot_count=args["slot_mask"] + 1,
            world_size=args["ranks"],
            group=args["group"],
        )
