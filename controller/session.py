"""A switch as the rest of the controller sees it."""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from netreduce.controller.tables.entities import Entity
from netreduce.controller.topology.schema import SwitchSpec


class SwitchSession(Protocol):
    """Connection to one switch that runs our program.  All requests raise SwitchError."""

    spec: SwitchSpec

    lock: asyncio.Lock
    """Held while a job's entries change and while the switch is synchronised, so that neither sees the
    other half done."""

    @property
    def name(self) -> str:
        """Name in the topology file."""

    @property
    def ready(self) -> bool:
        """The switch is ours and in the state we want: jobs can be admitted."""

    @property
    def state(self) -> str:
        """For people: ``ready``, ``connecting``, ``loading: …``, ``standby: …`` or ``down: <why>``."""

    @property
    def program(self) -> str:
        """Name and version of the program, from P4Info."""

    @property
    def down_since(self) -> float | None:
        """Clock reading when the connection was lost; None while it is up."""

    async def insert(self, entities: Sequence[Entity]) -> None:
        """Insert; an entity that is there already is an error."""

    async def modify(self, entities: Sequence[Entity]) -> None:
        """Change entities that are there."""

    async def delete(self, entities: Sequence[Entity]) -> None:
        """Delete; an entity that is not there is no error."""

    async def read(self, queries: Sequence[Any]) -> list[Any]:
        """The entities that match the queries."""
