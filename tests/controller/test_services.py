"""A whole controller with its gRPC services, on a P4Runtime server in memory."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from controller_bench import request, until
from p4runtime_server import P4RuntimeServer

from netreduce.controller.api import job_service_pb2 as pb
from netreduce.controller.api import job_service_pb2_grpc as pb_grpc
from netreduce.controller.options import ControllerOptions
from netreduce.controller.pipeline import load_program
from netreduce.controller.server import Controller, ListenError

CONNECTION = load_program().schema.tables["connection"].id
PATIENCE = 30


@dataclass
class Setup:
    """One controller, one switch, one client."""

    switch: P4RuntimeServer
    controller: Controller
    jobs: pb_grpc.JobServiceStub
    operators: pb_grpc.OperatorServiceStub

    async def admitted(self, world_size: int = 2, group: str = "g1") -> list[pb.JoinReply]:
        """Let all ranks join."""
        ranks = [request(rank, world_size, group=group) for rank in range(world_size)]
        replies = await asyncio.gather(*(self.jobs.Join(r, timeout=PATIENCE) for r in ranks))
        assert all(reply.admitted for reply in replies), replies[0].reason
        return replies

    async def attend(self, reply: pb.JoinReply):
        """Open a member's stream."""
        call = self.jobs.Attend()
        await call.write(pb.MemberReport(member=reply.member))
        member = self.controller.manager._tickets[reply.member][1]
        await until(lambda: member.state.value == "attending")
        return call

    async def job(self, job_id: int = 1) -> pb.JobInfo:
        """A job as operators see it."""
        listed = await self.operators.ListJobs(pb.ListJobsRequest(include_finished=True))
        return next(job for job in listed.jobs if job.job_id == job_id)


def write_topology(folder: Path, address: str) -> Path:
    """One switch with eight shm ports."""
    path = folder / "net.yaml"
    path.write_text(
        f"switches: [{{name: s1, address: '{address}'}}]\n"
        "shm_pools: [{switch: s1, socket: '@s1', first_port: 1, count: 8}]\n"
    )
    return path


@contextlib.asynccontextmanager
async def setup(folder: Path, **options) -> AsyncIterator[Setup]:
    """Everything running and the switch ready."""
    switch = P4RuntimeServer()
    await switch.start()
    topology = write_topology(folder, switch.address)
    try:
        async with Controller(ControllerOptions(topology, "127.0.0.1:0", **options)) as controller:
            await controller.wait_switches()
            async with grpc.aio.insecure_channel(controller.address) as channel:
                stubs = pb_grpc.JobServiceStub(channel), pb_grpc.OperatorServiceStub(channel)
                yield Setup(switch, controller, *stubs)
    finally:
        await switch.stop()


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch):
    """finsy's wait before it reconnects."""
    monkeypatch.setattr("finsy.switch._FAIL_THROTTLE_SECS", 0.02)


def test_the_life_of_a_job(run, tmp_path):
    async def test():
        async with setup(tmp_path) as s:
            replies = await s.admitted()
            assert s.switch.count(CONNECTION) == 4
            streams = [await s.attend(reply) for reply in replies]
            await streams[0].write(pb.MemberReport(statistics=pb.HostStatistics(calls=5)))
            info = await s.job()
            assert info.state == "active" and [m.state for m in info.members] == ["attending"] * 2
            counters = await s.operators.ReadCounters(pb.ReadCountersRequest())
            assert [c.job_id for c in counters.switches[0].streams] == [0, 1, 1]
            switches = await s.operators.ListSwitches(pb.ListSwitchesRequest())
            (switch,) = switches.switches
            assert (switch.state, switch.slots_used, switch.jobs, len(switch.ports)) == ("ready", 256, 1, 8)
            for reply in replies:
                statistics = pb.HostStatistics(calls=6)
                await s.jobs.Leave(pb.LeaveRequest(member=reply.member, statistics=statistics))
            info = await s.job()
            assert info.state == "finished" and [m.statistics.calls for m in info.members] == [6, 6]
            assert s.switch.count(CONNECTION) == 0
            for stream in streams:
                await stream.done_writing()
                assert await stream.read() is grpc.aio.EOF
            active = await s.operators.ListJobs(pb.ListJobsRequest())
            assert list(active.jobs) == []

    run(test())


@pytest.mark.parametrize("how", ["cancel", "half close"])
def test_death_of_a_member_aborts_the_others(run, tmp_path, how):
    async def test():
        async with setup(tmp_path) as s:
            replies = await s.admitted(3)
            streams = [await s.attend(reply) for reply in replies]
            if how == "cancel":
                streams[1].cancel()
            else:
                await streams[1].done_writing()
            for survivor in (streams[0], streams[2]):
                event = await asyncio.wait_for(survivor.read(), PATIENCE)
                assert event.abort.rank == 1
                assert event.abort.reason == (
                    "rank 1 (pid 101 on node) died: its connection ended without leaving"
                )
            await until(lambda: s.switch.count(CONNECTION) == 0)
            late = s.jobs.Attend()
            await late.write(pb.MemberReport(member=replies[0].member))
            assert (await late.read()).abort.rank == 1, "who attends late hears it too"
            assert (await s.job()).state.startswith("aborted: rank 1")

    run(test())


def test_lease_expiry_over_the_wire(run, tmp_path):
    async def test():
        async with setup(tmp_path, lease=timedelta(seconds=0.5)) as s:
            replies = await s.admitted()
            assert replies[0].lease_ms == 500
            stream = await s.attend(replies[0])
            event = await asyncio.wait_for(stream.read(), PATIENCE)
            assert event.abort.rank == 1 and "did not attend within 0.5 s" in event.abort.reason

    run(test())


@contextlib.asynccontextmanager
async def silent_member(s: Setup, reply: pb.JoinReply) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that attends; see silent_member.py."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("silent_member.py")),
        s.controller.address,
        reply.member,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert await asyncio.wait_for(process.stdout.readline(), PATIENCE) == b"attending\n"
        member = s.controller.manager._tickets[reply.member][1]
        await until(lambda: member.state.value == "attending")
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def test_a_member_may_hold_its_interpreter_for_longer_than_the_lease(run, tmp_path):
    async def test():
        lease = 2.0
        async with setup(tmp_path, lease=timedelta(seconds=lease)) as s:
            replies = await s.admitted()
            stream = await s.attend(replies[0])
            async with silent_member(s, replies[1]) as process:
                process.stdin.write(f"{2.5 * lease}\n".encode())
                assert await asyncio.wait_for(process.stdout.readline(), PATIENCE) == b"back\n"
                assert (await s.job()).state == "active"
            event = await asyncio.wait_for(stream.read(), PATIENCE)
            assert event.abort.rank == 1

    run(test())


def test_a_member_that_is_stopped_loses_its_lease(run, tmp_path):
    async def test():
        async with setup(tmp_path, lease=timedelta(seconds=1)) as s:
            replies = await s.admitted()
            stream = await s.attend(replies[0])
            async with silent_member(s, replies[1]) as process:
                process.send_signal(signal.SIGSTOP)
                event = await asyncio.wait_for(stream.read(), PATIENCE)
                assert event.abort.rank == 1 and "its connection ended" in event.abort.reason

    run(test())


def test_a_join_that_is_given_up_does_not_count(run, tmp_path):
    async def test():
        async with setup(tmp_path) as s:
            given_up = s.jobs.Join(request(0))
            await until(lambda: len(s.controller.manager.jobs(False)) == 1)
            given_up.cancel()
            (job,) = s.controller.manager.jobs(False)
            await until(lambda: job.missing() == [0, 1])
            assert [r.self.ip for r in await s.admitted()] == ["10.1.1.2", "10.1.1.3"]

    run(test())


def test_a_restarted_switch_aborts_jobs(run, tmp_path):
    async def test():
        async with setup(tmp_path) as s:
            replies = await s.admitted()
            stream = await s.attend(replies[0])
            await s.switch.stop()
            s.switch.wipe()
            await s.switch.start()
            event = await asyncio.wait_for(stream.read(), PATIENCE)
            assert event.abort.reason == "switch s1 restarted and lost the job's entries"
            await until(lambda: s.controller.sessions["s1"].ready)
            await s.admitted(group="next")

    run(test())


def test_a_new_controller_finds_the_running_job(run, tmp_path):
    async def test():
        async with setup(tmp_path) as s:
            await s.admitted()
            await s.controller.__aexit__()
            assert s.switch.count(CONNECTION) == 4
            async with Controller(ControllerOptions(tmp_path / "net.yaml", "127.0.0.1:0")) as new:
                await new.wait_switches()
                assert s.switch.count(CONNECTION) == 4 and s.switch.calls.count("push") == 1
                async with grpc.aio.insecure_channel(new.address) as channel:
                    listed = await pb_grpc.OperatorServiceStub(channel).ListJobs(pb.ListJobsRequest())
                    assert [job.state.split(":")[0] for job in listed.jobs] == ["orphaned", "orphaned"]
                    with pytest.raises(grpc.aio.AioRpcError, match="was it restarted") as caught:
                        await pb_grpc.JobServiceStub(channel).Leave(pb.LeaveRequest(member="old"))
                    assert caught.value.code() is grpc.StatusCode.NOT_FOUND

    run(test())


def test_errors_of_the_services(run, tmp_path):
    async def test():
        async with setup(tmp_path) as s:
            stranger = s.jobs.Attend()
            await stranger.write(pb.MemberReport(member="made up"))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stranger.read()
            assert caught.value.code() is grpc.StatusCode.NOT_FOUND
            replies = await s.admitted()
            await s.attend(replies[0])
            twin = s.jobs.Attend()
            await twin.write(pb.MemberReport(member=replies[0].member))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await twin.read()
            assert caught.value.code() is grpc.StatusCode.ALREADY_EXISTS
            assert (await s.job()).state == "active", "the twin's end is not the member's"
            with pytest.raises(grpc.aio.AioRpcError, match="no switch is named 'x'; there are: s1"):
                await s.operators.ReadCounters(pb.ReadCountersRequest(switch="x"))
            await s.switch.stop()
            await until(lambda: not s.controller.sessions["s1"].ready)
            with pytest.raises(grpc.aio.AioRpcError, match="s1: reading failed: the connection is down"):
                await s.operators.ReadCounters(pb.ReadCountersRequest(switch="s1"))
            reply = await s.operators.ReadCounters(pb.ReadCountersRequest())
            assert [(c.switch, len(c.streams)) for c in reply.switches] == [("s1", 0)]

    run(test())


def test_an_occupied_port(run, tmp_path):
    async def test():
        async with setup(tmp_path) as s:
            taken = ControllerOptions(tmp_path / "net.yaml", s.controller.address)
            with pytest.raises(ListenError, match="the port is in use"):
                async with Controller(taken):
                    pass

    run(test())


def test_readiness_waits_for_a_switch_that_compiles(run, tmp_path):
    async def test():
        switch = P4RuntimeServer()
        await switch.start()
        switch.push_gate = asyncio.Event()
        topology = write_topology(tmp_path, switch.address)
        options = ControllerOptions(topology, "127.0.0.1:0", startup_wait=timedelta(seconds=0.5))
        async with Controller(options) as controller:
            started = asyncio.create_task(controller.wait_switches())
            await until(lambda: switch.calls == ["push"])
            done, _ = await asyncio.wait({started}, timeout=1)
            assert not done, "twice the limit for switches that cannot be reached"
            switch.push_gate.set()
            await asyncio.wait_for(started, PATIENCE)
            assert controller.sessions["s1"].ready
        await switch.stop()

    run(test())


VICTIM = """
import sys, threading
import grpc
from netreduce.controller.api import job_service_pb2 as pb, job_service_pb2_grpc as pb_grpc

jobs = pb_grpc.JobServiceStub(grpc.insecure_channel(sys.argv[1]))
request = pb.JoinRequest.FromString(bytes.fromhex(sys.argv[2]))
reply = jobs.Join(request)
forever = threading.Event()

def reports():
    yield pb.MemberReport(member=reply.member)
    forever.wait()

for event in jobs.Attend(reports()):
    pass
"""


def test_a_killed_process_is_named_to_the_others(run, tmp_path):
    async def test():
        async with setup(tmp_path) as s:
            joining = request(1, hostname="node", pid=4711).SerializeToString().hex()
            victim = await asyncio.create_subprocess_exec(
                sys.executable, "-c", VICTIM, s.controller.address, joining
            )
            try:
                reply = await s.jobs.Join(request(0, timeout_ms=PATIENCE * 1000), timeout=PATIENCE)
                assert reply.admitted, reply.reason
                stream = await s.attend(reply)
                (job,) = s.controller.manager.jobs(False)
                await until(lambda: job.members[1].state.value == "attending")
            finally:
                victim.kill()
                await victim.wait()
            event = await asyncio.wait_for(stream.read(), PATIENCE)
            assert event.abort.reason == (
                "rank 1 (pid 4711 on node) died: its connection ended without leaving"
            )

    run(test())
