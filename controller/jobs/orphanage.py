"""Looks after the streams that an earlier controller left: see ``netreduce.controller.orphans``."""

from datetime import timedelta

from netreduce.controller import streams
from netreduce.controller.clock import Clock
from netreduce.controller.errors import SwitchError
from netreduce.controller.jobs.resources import SwitchResources
from netreduce.controller.log import logger
from netreduce.controller.orphans import Orphan
from netreduce.controller.session import SwitchSession
from netreduce.controller.tables import connection, rewrite

LOG = logger(__name__)


class Orphanage:
    """The orphans of all switches."""

    def __init__(self, resources: dict[str, SwitchResources], idle_limit: timedelta, clock: Clock):
        self._resources = resources
        self._idle_limit = idle_limit
        self._clock = clock
        self._orphans: dict[str, list[Orphan]] = {name: [] for name in resources}

    def of(self, switch: str) -> list[Orphan]:
        """The orphans of one switch."""
        return self._orphans[switch]

    async def adopt(self, session: SwitchSession, orphan: Orphan) -> None:
        """Reserve its resources; or remove its entries if they claim what another one has.

        The session's lock is held.  Raises SwitchError.
        """
        switch = session.name
        try:
            self._resources[switch].adopt(orphan)
        except ValueError as error:
            LOG.error("stream %d found on switch %s is removed: %s", orphan.number, switch, error)
            await _remove(session, orphan)
            return
        orphan.active_at = self._clock.monotonic()
        self._orphans[switch].append(orphan)
        LOG.warning(
            "switch %s carries stream %d of an unknown job (generation %d, %d ranks); it is left alone until"
            " no packet has used it for %g s",
            switch, orphan.number, orphan.generation, orphan.world_size, self._idle_limit.total_seconds(),
        )  # fmt: skip

    def forget(self, switch: str) -> None:
        """The switch lost its entries."""
        while self._orphans[switch]:
            self._disown(switch, self._orphans[switch][0])

    async def collect(self, session: SwitchSession) -> None:
        """Look at the counters of one switch's orphans and remove the idle ones."""
        if not session.ready or not self._orphans[session.name]:
            return
        try:
            async with session.lock:
                await self._collect(session)
        except SwitchError as error:
            LOG.warning("orphans of switch %s: %s", session.name, error)

    async def _collect(self, session: SwitchSession) -> None:
        now = self._clock.monotonic()
        orphans = list(self._orphans[session.name])
        counts = await streams.read_causes(session, [orphan.number for orphan in orphans])
        for orphan in orphans:
            packets = sum(cell[0] for cell in counts[orphan.number].values())
            if packets != orphan.packets:
                if orphan.packets >= 0:
                    orphan.active_at = now
                orphan.packets = packets
            if now - orphan.active_at >= self._idle_limit.total_seconds():
                LOG.info("stream %d of switch %s was idle: removed", orphan.number, session.name)
                await _remove(session, orphan)
                self._disown(session.name, orphan)

    def _disown(self, switch: str, orphan: Orphan) -> None:
        self._orphans[switch].remove(orphan)
        self._resources[switch].disown(orphan, self._orphans[switch])


async def _remove(session: SwitchSession, orphan: Orphan) -> None:
    for table in (connection.TABLE, rewrite.TABLE, ""):
        await session.delete([e for e in orphan.entities if getattr(e, "table_id", "") == table])
