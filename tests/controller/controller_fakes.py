"""A clock that stands still and a switch in memory, for the controller's logic without a network."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import finsy as fy
from finsy.grpcutil import GRPCStatusCode

from netreduce.controller.errors import SwitchError
from netreduce.controller.tables import causes, connection, groups, rewrite
from netreduce.controller.tables.entities import Entity, content, identity
from netreduce.controller.topology.schema import SwitchSpec
from netreduce.p4.wire import CAUSE_STRIDE, Cause


class FakeClock:
    """Moves only when told."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1_700_000_000.0 + self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class FakeSession:
    """Implements SwitchSession over a dictionary, and objects to what a switch would object to.

    It also checks what no real switch can: that an entry only refers to entries that are there.
    """

    program = "netreduce 0"

    def __init__(self, name: str = "s1"):
        self.spec = SwitchSpec(name=name, address="127.0.0.1:1")
        self.lock = asyncio.Lock()
        self.down_since: float | None = None
        self.state = "ready"
        self.present: dict[Any, Entity] = {}
        self.default: Entity | None = None
        self.cells: dict[int, tuple[int, int]] = {}
        self.delivered: dict[tuple[int, int], int] = {}
        self.history: list[str] = []
        self.on_insert: Callable[[Entity], None] = lambda entity: None

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def ready(self) -> bool:
        return self.state == "ready"

    def fail(self, operation: str, why: str, code: GRPCStatusCode) -> SwitchError:
        return SwitchError(self.name, operation, why, code=code)

    async def _arrive(self, operation: str) -> None:
        await asyncio.sleep(0)
        if self.down_since is not None:
            raise SwitchError.disconnected(self.name, operation)

    async def insert(self, entities: Sequence[Entity]) -> None:
        await self._arrive("inserting entries")
        for entity in entities:
            self.on_insert(entity)
            if identity(entity) in self.present:
                raise self.fail("inserting entries", "exists", GRPCStatusCode.ALREADY_EXISTS)
            self._check_references(entity)
            self.present[identity(entity)] = entity
            self.history.append(f"+{_kind(entity)}")

    def _check_references(self, entity: Entity) -> None:
        if _kind(entity) == connection.TABLE:
            args = entity.action.args
            assert ("group", args["group"]) in self.present, "a connection before its group"
            key = fy.P4TableEntry(
                rewrite.TABLE, match=fy.P4TableMatch(stream=args["stream"], rank=entity["rank"])
            )
            assert identity(key) in self.present, "a connection before its rewrite entry"

    async def modify(self, entities: Sequence[Entity]) -> None:
        await self._arrive("changing entries")
        for entity in entities:
            if isinstance(entity, fy.P4TableEntry) and entity.is_default_action:
                self.default = entity
                continue
            if identity(entity) not in self.present:
                raise self.fail("changing entries", "not there", GRPCStatusCode.NOT_FOUND)
            self.present[identity(entity)] = entity
            self.history.append(f"~{_kind(entity)}")

    async def delete(self, entities: Sequence[Entity]) -> None:
        await self._arrive("deleting entries")
        for entity in entities:
            if self.present.pop(identity(entity), None) is not None:
                self.history.append(f"-{_kind(entity)}")

    async def read(self, queries: Sequence[Any]) -> list[Any]:
        await self._arrive("reading")
        return [entity for query in queries for entity in self._read_one(query)]

    def _read_one(self, query: Any) -> list[Any]:
        match query:
            case fy.P4CounterEntry():
                packets, octets = self.cells.get(query.index, (0, 0))
                data = fy.P4CounterData(packet_count=packets, byte_count=octets)
                return [fy.P4CounterEntry(causes.COUNTER, index=query.index, data=data)]
            case fy.P4DirectCounterEntry():
                entry = query.table_entry
                count = self.delivered.get((entry["stream"], entry["rank"]), 0)
                data = fy.P4CounterData(packet_count=count, byte_count=0)
                return [fy.P4DirectCounterEntry(rewrite.DELIVERED, table_entry=entry, data=data)]
            case fy.P4MulticastGroupEntry():
                return [e for e in self.present.values() if isinstance(e, fy.P4MulticastGroupEntry)]
        return [e for e in self.present.values() if _kind(e) == query.table_id]

    # --- What tests look at and do -----------------------------------------------------------------

    def count(self, kind: str) -> int:
        """Entries of a table, or multicast groups (``group``)."""
        return sum(_kind(entity) == kind for entity in self.present.values())

    def snapshot(self) -> dict[Any, Any]:
        """Everything on the switch."""
        return {key: content(entity) for key, entity in self.present.items()}

    def packets(self, stream: int, cause: Cause, packets: int, octets: int = 0) -> None:
        """Count packets."""
        index = stream * CAUSE_STRIDE + cause
        before = self.cells.get(index, (0, 0))
        self.cells[index] = (before[0] + packets, before[1] + octets)

    def restart(self) -> None:
        """Lose everything, as a switch does that was started again."""
        self.present.clear()
        self.cells.clear()
        self.default = None

    def flood_ports(self) -> list[int]:
        """Ports of the flood group."""
        return [port for port, _ in content(self.present["group", groups.FLOOD])]


def _kind(entity: Entity) -> str:
    return "group" if isinstance(entity, fy.P4MulticastGroupEntry) else entity.table_id
