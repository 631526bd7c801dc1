"""A job manager over switches in memory."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from controller_fakes import FakeClock, FakeSession

from netreduce.controller.api import job_service_pb2 as pb
from netreduce.controller.jobs.manager import JobManager
from netreduce.controller.options import ControllerOptions
from netreduce.controller.topology import parse_topology
from netreduce.p4.wire import UDP_PORT_FIRST

TOPOLOGY = """
switches: [{name: s1, address: "127.0.0.1:1", device_id: 1}]
hosts:
  - {name: h1, mac: "02:00:00:00:00:01", ip: 192.168.0.1, switch: s1, port: 101}
  - {name: h2, mac: "02:00:00:00:00:02", ip: 192.168.0.2, switch: s1, port: 102}
shm_pools: [{switch: s1, socket: "@s1", first_port: 1, count: 8}]
"""
OPTIONS = ControllerOptions(
    topology=Path("net.yaml"), lease=timedelta(seconds=60), window=64, unreachable_limit=timedelta(seconds=30)
)


async def until(condition: Callable[[], bool], patience: float = 60) -> None:
    """Wait for a condition; at most ``patience`` seconds."""
    async with asyncio.timeout(patience):
        while not condition():
            await asyncio.sleep(0.01)


def request(rank: int, world_size: int = 2, **changes: Any) -> pb.JoinRequest:
    """A rank's request to join over shm."""
    fields: dict[str, Any] = {
        "group": "g1", "name": "train", "transport": pb.TRANSPORT_SHM, "lane_bits": [32, 64],
        "hostname": "node", "pid": 100 + rank, "timeout_ms": 10_000,
    }  # fmt: skip
    return pb.JoinRequest(rank=rank, world_size=world_size, **(fields | changes))


def udp_request(rank: int, world_size: int = 2, **changes: Any) -> pb.JoinRequest:
    """A rank's request to join over UDP: even ranks on h1, odd ones on h2."""
    fields = {
        "transport": pb.TRANSPORT_UDP, "ip": f"192.168.0.{1 + rank % 2}",
        "udp_port": UDP_PORT_FIRST + rank // 2, "mtu": 1500, "hostname": f"h{1 + rank % 2}",
    }  # fmt: skip
    return request(rank, world_size, **(fields | changes))


@dataclass
class Bench:
    """The manager and what it is attached to."""

    manager: JobManager
    session: FakeSession
    clock: FakeClock

    @classmethod
    async def make(
        cls,
        topology: str = TOPOLOGY,
        options: ControllerOptions = OPTIONS,
        session: FakeSession | None = None,
    ) -> "Bench":
        """A manager whose switch is connected (``session``: one that an earlier manager used)."""
        clock = FakeClock()
        manager = JobManager(parse_topology(topology, "net.yaml"), options, clock)
        bench = cls(manager, session or FakeSession(), clock)
        manager.sessions["s1"] = bench.session
        await bench.connect(kept=session is not None)
        return bench

    async def connect(self, kept: bool) -> None:
        """The switch is connected (again)."""
        self.session.down_since = None
        async with self.session.lock:
            await self.manager.switch_connected(self.session, kept)
        self.session.state = "ready"
        await self.settle()

    def disconnect(self) -> None:
        """The connection to the switch is lost."""
        self.session.state, self.session.down_since = "down: the connection was lost", self.clock.monotonic()

    async def join(self, *requests: pb.JoinRequest) -> list[pb.JoinReply]:
        """All ranks join at once."""
        return await asyncio.gather(*(self.manager.join(r) for r in requests))

    async def admitted(self, world_size: int = 2, group: str = "g1", **changes: Any) -> list[pb.JoinReply]:
        """A job whose ranks all attend."""
        ranks = [request(rank, world_size, group=group, **changes) for rank in range(world_size)]
        replies = await self.join(*ranks)
        assert all(reply.admitted for reply in replies), replies[0].reason
        for reply in replies:
            self.manager.attend(reply.member)
        return replies

    async def leave(self, *replies: pb.JoinReply, **changes: Any) -> None:
        """Members depart, one after the other."""
        for reply in replies:
            await self.manager.leave(pb.LeaveRequest(member=reply.member, **changes))

    def waiting(self, coroutine: Coroutine) -> asyncio.Task:
        """Start something that is expected to wait."""
        return asyncio.create_task(coroutine)

    async def settle(self) -> None:
        """Let everything that can run, run: the fakes wait for nothing real."""
        for _ in range(200):
            await asyncio.sleep(0)

    def job(self, job_id: int = 1) -> Any:
        """The record of a job."""
        return next(job for job in self.manager.jobs(True) if job.job_id == job_id)

    def free(self) -> tuple[int, int, int]:
        """Slots, stream numbers and shm ports not in use."""
        resources = self.manager.resources["s1"]
        return (
            resources.slots.total - resources.slots.used,
            resources.streams.available,
            resources.free_shm_ports.available,
        )


def options(**changes: Any) -> ControllerOptions:
    """The tests' options with changes."""
    return replace(OPTIONS, **changes)
