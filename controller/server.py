"""One controller: sessions with all switches, the job manager, and the gRPC server."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta

import grpc

from netreduce.controller.api import job_service_pb2_grpc as pb_grpc
from netreduce.controller.clock import AttentiveClock, Clock, SystemClock
from netreduce.controller.job_service import JobService
from netreduce.controller.jobs.manager import JobManager
from netreduce.controller.log import logger
from netreduce.controller.operator_service import OperatorService
from netreduce.controller.options import ControllerOptions
from netreduce.controller.p4runtime_session import P4RuntimeSession
from netreduce.controller.pipeline import load_program
from netreduce.controller.topology import load_topology

LOG = logger(__name__)
MAINTENANCE_PERIOD = timedelta(milliseconds=250)
ORPHAN_PERIOD = timedelta(seconds=15)
STOP_GRACE = timedelta(milliseconds=200)
"""Members' streams never end by themselves, so there is nothing to wait for."""


class ListenError(Exception):
    """The address cannot be bound."""


class Controller:
    """Async context manager: runs while the block runs.

    ``address`` is where it listens.  Raises TopologyError or ProgramError on construction, ListenError
    on entry.
    """

    def __init__(self, options: ControllerOptions, clock: Clock | None = None):
        self._options = options
        clock = self._clock = AttentiveClock(clock or SystemClock())
        inventory = load_topology(options.topology)
        program = load_program(options.p4info, options.p4blob)
        self.manager = JobManager(inventory, options, clock)
        self.sessions = {
            name: P4RuntimeSession(
                spec,
                program,
                self.manager.switch_connected,
                clock=clock,
                pipeline_timeout=options.pipeline_timeout,
            )
            for name, spec in inventory.switches.items()
        }
        self.manager.sessions.update(self.sessions)
        self.address = ""
        self._server: grpc.aio.Server | None = None
        self._tasks: list[asyncio.Task] = []

    async def __aenter__(self) -> "Controller":
        self._server = self._make_server()
        await self._server.start()
        LOG.info("listening on %s", self.address)
        for session in self.sessions.values():
            self._tasks.append(asyncio.create_task(session.run(), name=f"fy:{session.name}"))
        self._tasks += [
            _every(MAINTENANCE_PERIOD, self._maintain, "maintenance"),
            _every(ORPHAN_PERIOD, self.manager.collect_orphans, "orphans"),
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop serving; jobs on the switches stay as they are."""
        await self.manager.stop()
        await self._server.stop(STOP_GRACE.total_seconds())
        for session in self.sessions.values():
            session.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def wait_switches(self) -> None:
        """Return when every switch is ready or has said no.

        A switch that cannot be reached is waited for ``startup_wait``; one that is loading the program,
        as long as that takes.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._options.startup_wait.total_seconds()):
                for session in self.sessions.values():
                    await session.wait_settled()
        for session in self.sessions.values():
            if session.loading:
                await session.wait_settled()
            if not session.ready:
                LOG.warning(
                    "switch %s (%s) is %s; jobs on it are refused until it is ready",
                    session.name, session.spec.address, session.state,
                )  # fmt: skip

    def _make_server(self) -> grpc.aio.Server:
        # Without this option Linux lets two servers share a port, and each gets half of the calls.
        options = [("grpc.so_reuseport", 0), *_presence(self._options.lease)]
        server = grpc.aio.server(options=options)
        pb_grpc.add_JobServiceServicer_to_server(JobService(self.manager), server)
        pb_grpc.add_OperatorServiceServicer_to_server(OperatorService(self.manager), server)
        host = self._options.listen.rpartition(":")[0]
        try:
            port = server.add_insecure_port(self._options.listen)
        except RuntimeError as error:
            raise ListenError(
                f"cannot listen on {self._options.listen}: the port is in use, or the address is not this"
                " machine's; choose another with --listen (port 0 picks a free one)"
            ) from error
        self.address = f"{host}:{port}"
        return server

    async def _maintain(self) -> None:
        missed = self._clock.look()
        if missed:
            LOG.warning("did not run for %.0f s; leases and deadlines are extended by that", missed)
        self.manager.maintain()


def _presence(lease: timedelta) -> list[tuple[str, int]]:
    """Channel options that end a member's stream when its process has not answered for ``lease``.

    HTTP/2 pings are answered by gRPC's own threads: also while the script holds the interpreter's lock for
    minutes, in which no report can be made.
    """
    milliseconds = lease / timedelta(milliseconds=1)
    interval = max(1, int(milliseconds / 3))
    patience = max(1, int(milliseconds) - interval)
    return [
        ("grpc.keepalive_time_ms", interval),
        ("grpc.keepalive_timeout_ms", patience),
        ("grpc.http2.ping_timeout_ms", patience),  # the limit that counts, a minute by default
        ("grpc.http2.max_pings_without_data", 0),  # no limit
    ]


def _every(period: timedelta, work: Callable[[], Awaitable[None]], name: str) -> asyncio.Task:
    """Repeat the work; an error in one round does not end the next ones."""

    async def repeat() -> None:
        while True:
            await asyncio.sleep(period.total_seconds())
            try:
                await work()
            except Exception:
                LOG.exception("%s failed", name)

    return asyncio.create_task(repeat(), name=name)
