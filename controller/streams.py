"""Puts a job's entries on a switch and takes them off, in the order that is safe for packets."""

from netreduce.controller.jobs.plan import JobPlan
from netreduce.controller.session import SwitchSession
from netreduce.controller.tables import causes, connection, groups, rewrite
from netreduce.controller.tables.causes import Counts
from netreduce.controller.tables.entities import Entity


def stages(plan: JobPlan) -> list[list[Entity]]:
    """A job's entries, each stage using only those before it: groups, rewrite, connection.

    Make before use: a packet contributes only when its result can be delivered.
    """
    return [
        [groups.entry(plan, stream) for stream in plan.streams],
        [entry for stream in plan.streams for entry in rewrite.entries(plan, stream)],
        [entry for stream in plan.streams for entry in connection.entries(plan, stream)],
    ]


async def install(session: SwitchSession, plan: JobPlan) -> None:
    """Insert all entries.  Raises SwitchError; then some may be there, and the caller calls ``remove``."""
    for stage in stages(plan):
        await session.insert(stage)


async def remove(session: SwitchSession, plan: JobPlan) -> None:
    """Delete all entries that are there, last stage first.  Raises SwitchError."""
    for stage in reversed(stages(plan)):
        await session.delete(stage)


async def read_causes(session: SwitchSession, streams: list[int]) -> dict[int, Counts]:
    """Packets by cause of these streams, since the program was loaded.  Raises SwitchError."""
    if not streams:
        return {}
    return causes.by_stream(await session.read([query for s in streams for query in causes.queries(s)]))


async def read_delivered(session: SwitchSession, plan: JobPlan) -> list[int]:
    """Results delivered to each rank, in packets, over all streams.  Raises SwitchError."""
    queries = [
        rewrite.delivered_query(stream.number, rank.rank) for stream in plan.streams for rank in plan.ranks
    ]
    delivered = [0] * len(plan.ranks)
    for entry in await session.read(queries):
        delivered[entry.table_entry["rank"]] += entry.packet_count
    return delivered
