"""Counter ``causes``: what became of the packets of each stream."""

from collections.abc import Iterable, Mapping

import finsy as fy

from netreduce.controller.api import job_service_pb2 as pb
from netreduce.p4.wire import CAUSE_STRIDE, Cause

COUNTER = "causes"

Counts = Mapping[Cause, tuple[int, int]]
"""Packets and bytes by cause."""


def queries(stream: int) -> list[fy.P4CounterEntry]:
    """Reads all cells of one stream."""
    return [fy.P4CounterEntry(COUNTER, index=stream * CAUSE_STRIDE + cause) for cause in Cause]


def by_stream(cells: Iterable[fy.P4CounterEntry]) -> dict[int, Counts]:
    """Sort the cells that were read."""
    counts: dict[int, dict[Cause, tuple[int, int]]] = {}
    for cell in cells:
        stream, cause = divmod(cell.index, CAUSE_STRIDE)
        counts.setdefault(stream, {})[Cause(cause)] = (cell.packet_count, cell.byte_count)
    return counts


def since(now: Counts, before: Counts) -> Counts:
    """What was counted in between: cells outlive the jobs that use a stream number in turn."""
    return {c: (now[c][0] - before[c][0], now[c][1] - before[c][1]) for c in now}


def message(streams: Iterable[Counts]) -> pb.CauseCounters:
    """The sum over streams as the API's message, whose fields are named like the causes."""
    total = pb.CauseCounters()
    for counts in streams:
        for cause, (packets, octets) in counts.items():
            name = cause.name.lower()
            setattr(total, name, getattr(total, name) + packets)
            total.bytes += octets
    return total
