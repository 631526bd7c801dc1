"""What a switch has to give to jobs, and what one job holds of it."""

from dataclasses import dataclass, field

from netreduce.controller.errors import Refusal
from netreduce.controller.identifiers import NumberPool, WireJobs
from netreduce.controller.jobs.plan import StreamPlan
from netreduce.controller.orphans import Orphan
from netreduce.controller.slots import NoRoom, SlotAllocator, SlotRange
from netreduce.controller.topology import SwitchPort
from netreduce.p4.wire import MAX_STREAMS, SLOT_COUNT


class SwitchResources:
    """Slots, stream numbers, wire jobs and shm ports of one switch."""

    def __init__(self, switch: str, shm_ports: list[SwitchPort]):
        self.switch = switch
        self.slots = SlotAllocator(SLOT_COUNT)
        self.streams = NumberPool(range(1, MAX_STREAMS))
        self.wire_jobs = WireJobs()
        self.shm_ports = {port.number: port for port in shm_ports}
        self.free_shm_ports = NumberPool([port.number for port in shm_ports])

    def hold(self, lane_bits: list[int], window: int, shm_ports: int) -> "Holding":
        """Take what a job needs: 2 ``window`` slots for each lane width, in one piece for the whole job.

        Raises Refusal and takes nothing when something is used up.
        """
        if self.streams.available < len(lane_bits):
            raise Refusal(f"switch {self.switch} has no stream number left; wait for another job to end")
        if self.free_shm_ports.available < shm_ports:
            raise Refusal(
                f"switch {self.switch} has {self.free_shm_ports.available} of {len(self.shm_ports)} shm ports"
                f" free and {shm_ports} are needed; wait for another job to end, or enlarge shm_pools in the"
                " topology file"
            )
        per_stream = 2 * window
        try:
            slots = self.slots.allocate(per_stream * len(lane_bits))
        except NoRoom as error:
            raise Refusal(f"switch {self.switch}: {error}; wait for another job to end") from error
        streams = tuple(
            StreamPlan(
                number=self.streams.take(),
                wire_job=self.wire_jobs.take(),
                lane_bits=bits,
                slots=SlotRange(slots.first + i * per_stream, per_stream),
            )
            for i, bits in enumerate(lane_bits)
        )
        ports = [self.shm_ports[self.free_shm_ports.take()] for _ in range(shm_ports)]
        return Holding(self, slots, streams, ports)

    def adopt(self, orphan: Orphan) -> None:
        """Keep an orphan's resources from being given to jobs.  Raises ValueError when they are not free."""
        self.slots.reserve(orphan.slots)
        try:
            self.streams.reserve(orphan.number)
        except ValueError:
            self.slots.free(orphan.slots)
            raise
        self.wire_jobs.reserve(orphan.wire_job)
        for port in orphan.ports & self.shm_ports.keys():
            # Streams of one job share their ports: the second finds them reserved.
            try:
                self.free_shm_ports.reserve(port)
            except ValueError:
                continue

    def disown(self, orphan: Orphan, others: list[Orphan]) -> None:
        """Take an orphan's resources back; ports only when no other orphan uses them."""
        self.slots.free(orphan.slots)
        self.streams.give_back(orphan.number)
        self.wire_jobs.give_back(orphan.wire_job)
        still_used = frozenset[int]().union(*(other.ports for other in others))
        for port in (orphan.ports & self.shm_ports.keys()) - still_used:
            self.free_shm_ports.give_back(port)


@dataclass
class Holding:
    """What one job holds until ``release``."""

    source: SwitchResources
    slots: SlotRange
    streams: tuple[StreamPlan, ...]
    shm_ports: list[SwitchPort]
    released: bool = field(default=False, init=False)

    def release(self) -> None:
        """Give everything back; a second call does nothing."""
        if self.released:
            return
        self.released = True
        self.source.slots.free(self.slots)
        for stream in self.streams:
            self.source.streams.give_back(stream.number)
            self.source.wire_jobs.give_back(stream.wire_job)
        for port in self.shm_ports:
            self.source.free_shm_ports.give_back(port.number)
