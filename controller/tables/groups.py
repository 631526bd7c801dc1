"""Multicast groups: one that reaches every rank of a stream, and the flood group."""

import finsy as fy
from finsy.p4entity import P4Replica

from netreduce.controller.jobs.plan import JobPlan, StreamPlan

FLOOD = 1
"""Every port; egress drops the copy that would go back where the packet came from."""
FIRST_OF_STREAMS = 2


def of_stream(number: int) -> int:
    """Group of a stream."""
    return FIRST_OF_STREAMS + number


def entry(plan: JobPlan, stream: StreamPlan) -> fy.P4MulticastGroupEntry:
    """Rank j's port with instance (egress_rid) j; ranks of one host share a port."""
    replicas = [P4Replica(rank.port.number, instance=rank.rank) for rank in plan.ranks]
    return fy.P4MulticastGroupEntry(of_stream(stream.number), replicas=replicas)


def flood(ports: list[int]) -> fy.P4MulticastGroupEntry:
    """The flood group over these ports."""
    return fy.P4MulticastGroupEntry(FLOOD, replicas=[P4Replica(port) for port in ports])
