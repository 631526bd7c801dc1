"""The controller with the embedded switch: what it installs really aggregates."""

import asyncio
import contextlib
import os
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest
from controller_bench import request, udp_request, until

from netreduce.controller.api import job_service_pb2 as pb
from netreduce.controller.api import job_service_pb2_grpc as pb_grpc
from netreduce.controller.options import ControllerOptions
from netreduce.controller.server import Controller
from netreduce.controller.topology.addresses import ip_number, mac_number
from netreduce.p4.wire import BLOCK_BYTES, NR_MAGIC, NR_VERSION, Kind, Op
from netreduce.softswitch.shm_client import ShmPort

PATIENCE = 60
HEADERS = struct.Struct(">6s6sH BBHHHBBH4s4s HHHH HBBHBBIHH")


class Switch:
    """The process ``netreduce switch``."""

    def __init__(self, folder: Path):
        self.socket = f"@netreduce-test-{os.getpid()}-{folder.name}"
        self.address = "127.0.0.1:0"
        self.process: subprocess.Popen | None = None

    def start(self) -> None:
        """Serve; the first time on a port of the system's choice, later on the same."""
        command = [sys.executable, "-m", "netreduce.controller.cli.main", "switch", "--no-p4"]
        command += ["--grpc-server-addr", self.address, "--device-id", "1"]
        command += ["--shm-socket", self.socket, "--shm-ports", "1-8", "--exit-with-parent"]
        read_end, write_end = os.pipe()
        self.process = subprocess.Popen([*command, "--ready-fd", str(write_end)], pass_fds=[write_end])
        os.close(write_end)
        with os.fdopen(read_end) as ready:
            self.address = ready.readline().split()[-1]

    def kill(self) -> None:
        """No goodbye."""
        self.process.kill()
        self.process.wait()


@pytest.fixture
def switch(tmp_path) -> Iterator[Switch]:
    """A running switch without a program."""
    switch = Switch(tmp_path)
    switch.start()
    yield switch
    switch.kill()


def options(folder: Path, switch: Switch) -> ControllerOptions:
    """Options of a controller of that switch."""
    path = folder / "net.yaml"
    path.write_text(
        f"switches: [{{name: s1, address: '{switch.address}'}}]\n"
        "hosts:\n"
        "  - {name: h1, mac: '02:00:00:00:00:01', ip: 192.168.0.1, switch: s1, port: 101}\n"
        "  - {name: h2, mac: '02:00:00:00:00:02', ip: 192.168.0.2, switch: s1, port: 102}\n"
        f"shm_pools: [{{switch: s1, socket: '{switch.socket}', first_port: 1, count: 8}}]\n"
    )
    return ControllerOptions(path, "127.0.0.1:0")


class Client:
    """A controller's services over gRPC."""

    def __init__(self, controller: Controller, channel: grpc.aio.Channel):
        self.controller = controller
        self.jobs = pb_grpc.JobServiceStub(channel)
        self.operators = pb_grpc.OperatorServiceStub(channel)

    async def join(self, *requests: pb.JoinRequest) -> list[pb.JoinReply]:
        """All ranks join."""
        return await asyncio.gather(*(self.jobs.Join(r, timeout=PATIENCE) for r in requests))

    async def job(self) -> pb.JobInfo:
        """The newest job."""
        listed = await self.operators.ListJobs(pb.ListJobsRequest(include_finished=True))
        return max(listed.jobs, key=lambda job: job.job_id)


@contextlib.asynccontextmanager
async def controlling(options: ControllerOptions) -> AsyncIterator[Client]:
    """A controller whose switch is ready, and a client of it."""
    async with Controller(options) as controller:
        await until(lambda: controller.sessions["s1"].ready)
        async with grpc.aio.insecure_channel(controller.address) as channel:
            yield Client(controller, channel)


class Rank:
    """A rank by hand: plugs into its port and sends one block at a time."""

    def __init__(self, rank: int, reply: pb.JoinReply):
        self.rank = rank
        self.reply = reply
        self.port = ShmPort(reply.shm_socket, reply.shm_port)

    def send(self, k: int, values: list[int], source: str | None = None) -> None:
        """A contribution of 32-bit lanes to the successor."""
        own, to = self.reply.self, self.reply.successor
        payload = struct.pack(">64I", *values, *[0] * (64 - len(values)))
        addresses = [ip_number(source or own.ip).to_bytes(4, "big"), ip_number(to.ip).to_bytes(4, "big")]
        total = 20 + 8 + 16 + BLOCK_BYTES
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, total, 0, 0, 64, 17, 0, *addresses)
        check = sum(struct.unpack(">10H", ip))
        check = ~((check & 0xFFFF) + (check >> 16)) & 0xFFFF
        nr = (
            NR_MAGIC, NR_VERSION << 4 | Kind.CONTRIBUTION, Op.SUM, self.reply.streams[0].wire_job, self.rank,
            0, k, 1, 0,
        )  # fmt: skip
        headers = HEADERS.pack(
            mac_number(to.mac).to_bytes(6, "big"), mac_number(own.mac).to_bytes(6, "big"), 0x0800,
            0x45, 0, total, 0, 0, 64, 17, check, *addresses,
            own.udp_port, to.udp_port, total - 20, 0, *nr,
        )  # fmt: skip
        assert self.port.send(headers + payload)

    def receive(self) -> tuple[Kind, tuple[int, int], list[int]]:
        """Kind, (k, contributors), and the lanes; the addresses are checked to be the predecessor's."""
        frame = self.port.receive(PATIENCE)
        assert frame is not None, f"rank {self.rank} received nothing"
        fields = HEADERS.unpack_from(frame)
        own, source = self.reply.self, self.reply.predecessor
        assert fields[0] == mac_number(own.mac).to_bytes(6, "big")
        assert fields[1] == mac_number(source.mac).to_bytes(6, "big")
        assert fields[11:13] == tuple(ip_number(ip).to_bytes(4, "big") for ip in (source.ip, own.ip))
        assert fields[13:15] == (source.udp_port, own.udp_port)
        lanes = list(struct.unpack_from(">64I", frame, HEADERS.size))
        return Kind(fields[18] & 15), fields[23:25], lanes


def aggregate(ranks: list[Rank], k: int) -> None:
    """One packet of every rank; everyone receives the sum."""
    for rank in ranks:
        rank.send(k, [10 * (rank.rank + 1), 0xFFFFFFFF])
    total = [10 * sum(r.rank + 1 for r in ranks), -len(ranks) & 0xFFFFFFFF] + [0] * 62
    for rank in ranks:
        kind, (index, contributors), lanes = rank.receive()
        assert (kind, index, contributors, lanes) == (Kind.RESULT, k, len(ranks), total)


def test_a_job_aggregates_and_is_accounted_for(run, tmp_path, switch):
    async def test():
        async with controlling(options(tmp_path, switch)) as client:
            replies = await client.join(*(request(rank, 3) for rank in range(3)))
            ranks = [Rank(rank, reply) for rank, reply in enumerate(replies)]
            for k in range(5):
                await asyncio.to_thread(aggregate, ranks, k)
            ranks[1].send(4, [1])  # again: answered from the slot
            assert (await asyncio.to_thread(ranks[1].receive))[2][0] == 60
            ranks[2].send(5, [1], source="10.9.9.9")

            async def counted() -> pb.CauseCounters:
                return (await client.job()).switch_counters

            async with asyncio.timeout(PATIENCE):
                while (await counted()).spoofed == 0:
                    await asyncio.sleep(0.01)
            for rank in ranks:
                await client.jobs.Leave(pb.LeaveRequest(member=rank.reply.member))
            info = await client.job()
            counters = info.switch_counters
            assert info.state == "finished"
            assert (counters.first, counters.added, counters.completed) == (5, 5, 5)
            assert (counters.duplicate_answered, counters.spoofed) == (1, 1)
            assert counters.duplicate_absorbed == counters.stale == counters.malformed == 0
            assert counters.bytes == 17 * (HEADERS.size + BLOCK_BYTES)
            assert [member.results_delivered for member in info.members] == [5, 6, 5]

            # The job is over: its packets are forwarded like any others, not aggregated.
            ranks[0].send(6, [7])
            kind, _, lanes = await asyncio.to_thread(ranks[1].receive)
            assert (kind, lanes[0]) == (Kind.CONTRIBUTION, 7)

    run(test())


def test_two_jobs_do_not_see_each_other(run, tmp_path, switch):
    async def test():
        async with controlling(options(tmp_path, switch)) as client:
            jobs = []
            for group in ("a", "b"):
                replies = await client.join(*(request(rank, group=group) for rank in range(2)))
                jobs.append([Rank(rank, reply) for rank, reply in enumerate(replies)])
            for k in range(3):
                for ranks in jobs:
                    await asyncio.to_thread(aggregate, ranks, k)

    run(test())


def test_slots_are_reused_by_the_next_job(run, tmp_path, switch):
    async def test():
        async with controlling(options(tmp_path, switch)) as client:
            for group in ("a", "b"):
                replies = await client.join(*(request(rank, group=group) for rank in range(2)))
                ranks = [Rank(rank, reply) for rank, reply in enumerate(replies)]
                await asyncio.to_thread(aggregate, ranks, 0)
                for rank in ranks:
                    await client.jobs.Leave(pb.LeaveRequest(member=rank.reply.member))
                assert (await client.job()).first_slot == 0
                assert (await client.job()).switch_counters.first == 1

    run(test())


def test_ranks_of_one_host_over_udp(run, tmp_path, switch):
    async def test():
        async with controlling(options(tmp_path, switch)) as client:
            replies = await client.join(*(udp_request(rank, 4) for rank in range(4)))
            assert all(reply.admitted for reply in replies), replies[0].reason
            for reply in replies:
                await client.jobs.Leave(pb.LeaveRequest(member=reply.member))
            assert (await client.job()).state == "finished"

    run(test())


def test_the_data_plane_goes_on_without_a_controller(run, tmp_path, switch):
    async def test():
        settings = options(tmp_path, switch)
        async with controlling(settings) as client:
            replies = await client.join(*(request(rank, lane_bits=[32]) for rank in range(2)))
            ranks = [Rank(rank, reply) for rank, reply in enumerate(replies)]
            await asyncio.to_thread(aggregate, ranks, 0)
        await asyncio.to_thread(aggregate, ranks, 1)
        async with controlling(settings) as client:
            await asyncio.to_thread(aggregate, ranks, 2)
            listed = await client.operators.ListJobs(pb.ListJobsRequest())
            assert [job.state.split(":")[0] for job in listed.jobs] == ["orphaned"]
            others = await client.join(*(request(rank, group="b") for rank in range(2)))
            await asyncio.to_thread(aggregate, [Rank(r, reply) for r, reply in enumerate(others)], 0)
            await asyncio.to_thread(aggregate, ranks, 3)

    run(test())


def test_a_killed_switch_aborts_its_jobs_and_serves_again(run, tmp_path, switch, monkeypatch):
    monkeypatch.setattr("finsy.switch._FAIL_THROTTLE_SECS", 0.1)

    async def test():
        async with controlling(options(tmp_path, switch)) as client:
            replies = await client.join(*(request(rank) for rank in range(2)))
            attendance = client.jobs.Attend()
            await attendance.write(pb.MemberReport(member=replies[0].member))
            (job,) = client.controller.manager.jobs(False)
            await until(lambda: job.members[0].state.value == "attending")
            switch.kill()
            await until(lambda: not client.controller.sessions["s1"].ready)
            refused = await client.join(*(request(rank, group="meanwhile") for rank in range(2)))
            assert "switch s1 is not ready" in refused[0].reason
            await asyncio.to_thread(switch.start)
            event = await asyncio.wait_for(attendance.read(), PATIENCE)
            assert event.abort.reason == "switch s1 restarted and lost the job's entries"
            await until(lambda: client.controller.sessions["s1"].ready)
            replies = await client.join(*(request(rank, group="next") for rank in range(2)))
            await asyncio.to_thread(aggregate, [Rank(r, reply) for r, reply in enumerate(replies)], 0)

    run(test())
