"""Streams found on a switch whose jobs were admitted by an earlier run of the controller.

Their ranks may still be training: the data plane needs no controller.  So the entries stay, their slots
and numbers are not given to others, and they are removed when no packet has used them for a while.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import finsy as fy

from netreduce.controller.slots import SlotRange
from netreduce.controller.tables import connection, groups, rewrite
from netreduce.controller.tables.connection import Connection
from netreduce.controller.tables.entities import Entity


@dataclass
class Orphan:
    """One stream of an unknown job."""

    number: int
    wire_job: int
    generation: int
    slots: SlotRange
    ports: frozenset[int]
    world_size: int
    entities: list[Entity] = field(repr=False)
    packets: int = -1
    "Packets counted at the last look; -1: not looked yet."
    active_at: float = 0.0
    "Clock reading when packets were last seen."


def find_orphans(entities: Iterable[Entity]) -> list[Orphan]:
    """The complete streams among entries found: every rank's connection and rewrite entry, the group.

    What is left of a stream that an earlier controller was just setting up or tearing down is not
    complete, and so not an orphan.
    """
    connections: dict[int, list[tuple[Connection, Entity]]] = {}
    rewrites: dict[int, list[Entity]] = {}
    multicast: dict[int, Entity] = {}
    for entity in entities:
        if isinstance(entity, fy.P4MulticastGroupEntry):
            multicast[entity.multicast_group_id] = entity
        elif entity.table_id == connection.TABLE:
            found = Connection.from_entry(entity)
            connections.setdefault(found.stream, []).append((found, entity))
        elif entity.table_id == rewrite.TABLE:
            rewrites.setdefault(entity["stream"], []).append(entity)

    orphans = []
    for number, members in sorted(connections.items()):
        one = members[0][0]
        group = multicast.get(groups.of_stream(number))
        resources = {(c.wire_job, c.generation, c.first_slot, c.slot_count, c.group) for c, _ in members}
        complete = group and len(resources) == 1 and one.group == groups.of_stream(number)
        complete = complete and {c.rank for c, _ in members} == set(range(one.world_size))
        complete = complete and {e["rank"] for e in rewrites.get(number, [])} == set(range(one.world_size))
        if complete:
            orphans.append(
                Orphan(
                    number=number,
                    wire_job=one.wire_job,
                    generation=one.generation,
                    slots=SlotRange(one.first_slot, one.slot_count),
                    ports=frozenset(c.port for c, _ in members),
                    world_size=one.world_size,
                    entities=[group, *rewrites[number], *(entity for _, entity in members)],
                )
            )
    return orphans
