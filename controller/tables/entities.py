"""Comparing entities: which one it is, and what it says."""

from collections.abc import Hashable

import finsy as fy
from finsy.p4entity import P4Replica

Entity = fy.P4TableEntry | fy.P4MulticastGroupEntry


def identity(entity: Entity) -> Hashable:
    """Equal for two entities that cannot both be on a switch: table and key, or group number."""
    if isinstance(entity, fy.P4MulticastGroupEntry):
        return "group", entity.multicast_group_id
    if entity.is_default_action:
        return entity.table_id, "default"
    return entity.table_id, tuple(sorted((entity.match or {}).items()))


def content(entity: Entity) -> Hashable:
    """Equal for two entities with the same effect: action and parameters, or replicas."""
    if isinstance(entity, fy.P4MulticastGroupEntry):
        replicas = [P4Replica(r) if isinstance(r, int) else r for r in entity.replicas]
        return tuple(sorted((r.port, r.instance) for r in replicas))
    return (entity.action.name, tuple(sorted(entity.action.args.items()))) if entity.action else None
