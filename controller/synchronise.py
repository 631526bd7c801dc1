"""Brings a switch into the state we want, from whatever state it is found in."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import finsy as fy

from netreduce.controller import streams
from netreduce.controller.jobs.plan import JobPlan
from netreduce.controller.log import logger
from netreduce.controller.orphans import Orphan, find_orphans
from netreduce.controller.session import SwitchSession
from netreduce.controller.tables import connection, forward, groups, rewrite
from netreduce.controller.tables.entities import Entity, content, identity
from netreduce.controller.topology import SwitchPort

LOG = logger(__name__)


@dataclass
class Outcome:
    """What was found out about jobs."""

    lost: list[JobPlan] = field(default_factory=list)
    "Jobs whose entries are gone or were changed."
    orphans: list[Orphan] = field(default_factory=list)
    "Streams of jobs that we do not know; their entries were left alone."


async def synchronise(
    session: SwitchSession,
    ports: list[SwitchPort],
    plans: Iterable[JobPlan],
    orphans: Iterable[Orphan],
    *,
    kept: bool,
    adopt: bool,
) -> Outcome:
    """Reconcile all entries of a switch that runs our program.

    ``plans`` are the jobs that should be on it and ``orphans`` those found earlier.  ``kept``: the
    program was running already, so there may be entries; otherwise every job is lost.  ``adopt``: leave
    complete streams of unknown jobs alone and report them; otherwise they are removed.  The caller holds
    the session's lock.  Raises SwitchError.
    """
    wanted: list[Entity] = [*forward.entries(ports), groups.flood([port.number for port in ports])]
    outcome = Outcome()
    present = {identity(e): e for e in await _read_all(session)} if kept else {}

    for plan in plans:
        entries = [entry for stage in streams.stages(plan) for entry in stage]
        found = (present.get(identity(entry)) for entry in entries)
        if kept and all(f and content(f) == content(e) for f, e in zip(found, entries, strict=True)):
            wanted += entries
        else:
            outcome.lost.append(plan)

    for orphan in orphans:
        wanted += orphan.entities if kept else []
    known = {identity(entity) for entity in wanted}
    if adopt:
        outcome.orphans = find_orphans(e for key, e in present.items() if key not in known)
        wanted += [entity for orphan in outcome.orphans for entity in orphan.entities]
        known = {identity(entity) for entity in wanted}

    await _delete_in_order(session, [entity for key, entity in present.items() if key not in known])
    await session.insert([entity for entity in wanted if identity(entity) not in present])
    await session.modify(
        [e for e in wanted if identity(e) in present and content(present[identity(e)]) != content(e)]
    )
    await session.modify([forward.default_entry()])
    return outcome


async def _read_all(session: SwitchSession) -> list[Entity]:
    tables = [fy.P4TableEntry(table) for table in (connection.TABLE, rewrite.TABLE, forward.TABLE)]
    found = await session.read([*tables, fy.P4MulticastGroupEntry()])
    return [e for e in found if isinstance(e, fy.P4MulticastGroupEntry) or not e.is_default_action]


async def _delete_in_order(session: SwitchSession, entities: list[Entity]) -> None:
    """Connection entries first, groups last: the reverse of how they use each other."""
    if entities:
        LOG.info("removing %d entries that belong to nothing we know", len(entities))
    order = (connection.TABLE, rewrite.TABLE, forward.TABLE, "")
    for table in order:
        await session.delete([e for e in entities if getattr(e, "table_id", "") == table])
