"""The session with a real switch: P4Runtime through finsy, which reconnects by itself."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import finsy as fy
import grpc

from netreduce.controller.clock import Clock
from netreduce.controller.errors import SwitchError
from netreduce.controller.log import logger
from netreduce.controller.pipeline import Program, ensure_pipeline
from netreduce.controller.tables.entities import Entity
from netreduce.controller.topology.schema import SwitchSpec

LOADING = "loading: the program is being checked, or compiled by the switch"
RETRY_DELAY = timedelta(seconds=5)
"""Between attempts to synchronise a switch that is connected but rejects something."""

Synchroniser = Callable[["P4RuntimeSession", bool], Awaitable[None]]
"""Called with the lock held when the program runs: brings the entries into shape.  The flag tells
whether the program was running before.  Raises SwitchError to be called again."""


class P4RuntimeSession:
    """Implements SwitchSession.  ``run`` is its life; it ends only by cancellation."""

    def __init__(
        self,
        spec: SwitchSpec,
        program: Program,
        synchroniser: Synchroniser,
        *,
        clock: Clock,
        pipeline_timeout: timedelta,
    ):
        self.spec = spec
        self.lock = asyncio.Lock()
        self.down_since: float | None = clock.monotonic()
        self._clock = clock
        self._program = program
        self._synchroniser = synchroniser
        self._pipeline_timeout = pipeline_timeout
        self._state = "connecting"
        self._settled = asyncio.Event()
        self._closing = False
        self._log = logger(__name__, spec.name)
        options = fy.SwitchOptions(device_id=spec.device_id, ready_handler=self._connected)
        self._switch = fy.Switch(spec.name, spec.address, options)
        self._switch.ee.on(fy.SwitchEvent.CHANNEL_DOWN, self._disconnected)

    @property
    def name(self) -> str:
        """Name in the topology file."""
        return self.spec.name

    @property
    def ready(self) -> bool:
        """Connected, primary, synchronised."""
        return self._state == "ready"

    @property
    def state(self) -> str:
        """See SwitchSession."""
        return self._state

    @property
    def program(self) -> str:
        """Name and version of the program."""
        return self._program.name

    @property
    def loading(self) -> bool:
        """The switch is connected and busy with the program."""
        return self._state == LOADING

    async def run(self) -> None:
        """Connect, and reconnect whenever the connection is lost, until cancelled."""
        while True:
            try:
                await self._switch.run()
            except asyncio.CancelledError:
                raise
            except Exception:
                self._log.exception("the connection ended unexpectedly; starting again")
            await asyncio.sleep(RETRY_DELAY.total_seconds())

    def close(self) -> None:
        """The end is wanted: ``run`` is about to be cancelled."""
        self._closing = True

    async def wait_settled(self) -> None:
        """Return when the session is ready, in standby, or rejected by the switch for the first time."""
        await self._settled.wait()

    async def insert(self, entities: Sequence[Entity]) -> None:
        """See SwitchSession."""
        if entities:
            with self._request("inserting entries"):
                await self._switch.insert(entities)

    async def modify(self, entities: Sequence[Entity]) -> None:
        """See SwitchSession."""
        if entities:
            with self._request("changing entries"):
                await self._switch.modify(entities)

    async def delete(self, entities: Sequence[Entity]) -> None:
        """See SwitchSession."""
        if entities:
            with self._request("deleting entries"):
                await self._switch.delete([_key_only(e) for e in entities], strict=False)

    async def read(self, queries: Sequence[Any]) -> list[Any]:
        """See SwitchSession."""
        if not queries:
            return []
        with self._request("reading"):
            return [entity async for entity in self._switch.read(queries)]

    @contextlib.contextmanager
    def _request(self, operation: str) -> Iterator[None]:
        if not self._switch.is_up:
            raise SwitchError.disconnected(self.name, operation)
        try:
            yield
        except fy.P4ClientError as error:
            raise SwitchError.from_client_error(self.name, operation, error) from error
        except grpc.aio.UsageError as error:  # the channel was closed under us
            raise SwitchError.disconnected(self.name, operation) from error
        except asyncio.CancelledError:
            # grpc cancels the requests in flight when finsy closes the channel; that is not this task's
            # cancellation.
            if asyncio.current_task().cancelling():
                raise
            raise SwitchError.disconnected(self.name, operation) from None

    async def _connected(self, switch: fy.Switch) -> None:
        """finsy's ready handler: runs after every connection and change of role."""
        if not switch.is_primary:
            self._enter(f"standby: another controller is primary (election id {switch.primary_id})")
            return
        while True:
            try:
                async with self.lock:
                    self._state = LOADING
                    kept = await ensure_pipeline(switch, self._program, self._pipeline_timeout)
                    switch.p4info.set_p4info(self._program.schema.p4info)
                    await self._synchroniser(self, kept)
                    self.down_since = None
                    self._enter("ready")
                return
            except SwitchError as error:
                self._enter(f"down: {error.why}" if not error.update else f"down: {error}")
            await asyncio.sleep(RETRY_DELAY.total_seconds())

    def _disconnected(self, _switch: fy.Switch) -> None:
        if self.down_since is None:
            self.down_since = self._clock.monotonic()
        self._enter("closed" if self._closing else "down: the connection was lost; reconnecting")

    def _enter(self, state: str) -> None:
        if state != self._state:
            expected = state == "ready" or self._closing
            self._log.log(logging.INFO if expected else logging.WARNING, "is %s", state)
        self._state = state
        self._settled.set()


def _key_only(entity: Entity) -> Entity:
    """What DELETE needs: the key; some servers reject the rest."""
    if isinstance(entity, fy.P4MulticastGroupEntry):
        return fy.P4MulticastGroupEntry(entity.multicast_group_id)
    return fy.P4TableEntry(entity.table_id, match=entity.match, priority=entity.priority)
