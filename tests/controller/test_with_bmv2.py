"""The controller with BMv2's P4Runtime server, which differs from the embedded one in places."""

import asyncio
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from controller_bench import request, udp_request, until

from netreduce.controller.api import job_service_pb2 as pb
from netreduce.controller.api import job_service_pb2_grpc as pb_grpc
from netreduce.controller.options import ControllerOptions
from netreduce.controller.server import Controller
from netreduce.p4 import artifacts

pytestmark = pytest.mark.bmv2
PATIENCE = 60


@pytest.fixture
def address(tmp_path) -> Iterator[str]:
    """P4Runtime address of a running BMv2 without a program or ports."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    log = (tmp_path / "bmv2.log").open("w")
    command = [shutil.which("simple_switch_grpc"), "--no-p4", "--device-id", "1"]
    process = subprocess.Popen([*command, "--", "--grpc-server-addr", address], stdout=log, stderr=log)
    yield address
    process.kill()
    process.wait()
    log.close()


def options(folder: Path, address: str, **changes) -> ControllerOptions:
    """Options of a controller of that switch."""
    path = folder / "net.yaml"
    path.write_text(
        f"switches: [{{name: s1, address: '{address}'}}]\n"
        "hosts:\n"
        "  - {name: h1, mac: '02:00:00:00:00:01', ip: 192.168.0.1, switch: s1, port: 101}\n"
        "  - {name: h2, mac: '02:00:00:00:00:02', ip: 192.168.0.2, switch: s1, port: 102}\n"
        "shm_pools: [{switch: s1, socket: '@none', first_port: 1, count: 8}]\n"
    )
    return ControllerOptions(path, "127.0.0.1:0", **changes)


async def jobs_run_through(controller: Controller, prefix: str) -> None:
    """Two jobs come and go; one stays."""
    async with grpc.aio.insecure_channel(controller.address) as channel:
        jobs, operators = pb_grpc.JobServiceStub(channel), pb_grpc.OperatorServiceStub(channel)

        async def join(*requests: pb.JoinRequest) -> list[pb.JoinReply]:
            replies = await asyncio.gather(*(jobs.Join(r, timeout=PATIENCE) for r in requests))
            assert all(reply.admitted for reply in replies), replies[0].reason
            return replies

        over_udp = await join(*(udp_request(rank, 4, group=f"{prefix}-udp") for rank in range(4)))
        over_shm = await join(*(request(rank, group=f"{prefix}-shm") for rank in range(2)))
        for reply in (*over_udp, *over_shm):
            await jobs.Leave(pb.LeaveRequest(member=reply.member))
        await join(*(request(rank, group=f"{prefix}-stays", lane_bits=[32]) for rank in range(2)))
        listed = (await operators.ListJobs(pb.ListJobsRequest(include_finished=True))).jobs
        assert [job.state for job in listed if job.job_id] == ["finished", "finished", "active"]
        counters = await operators.ReadCounters(pb.ReadCountersRequest(switch="s1"))
        assert [stream.job_id for stream in counters.switches[0].streams] == [0, 3]


def test_jobs_and_controllers_come_and_go(run, tmp_path, address):
    async def test():
        settings = options(tmp_path, address)
        async with Controller(settings) as controller:
            await until(lambda: controller.sessions["s1"].ready)
            await jobs_run_through(controller, "a")
        async with Controller(settings) as controller:
            await until(lambda: controller.sessions["s1"].ready)
            assert len(controller.manager.orphanage.of("s1")) == 1
            await jobs_run_through(controller, "b")

    run(test())


def test_another_build_of_the_program_replaces_the_first(run, tmp_path, address):
    """BMv2 keeps multicast groups over the change: inserting them again fails unless they were deleted."""

    async def test():
        async with Controller(options(tmp_path, address)) as controller:
            await until(lambda: controller.sessions["s1"].ready)
            await jobs_run_through(controller, "a")
        other = tmp_path / "other.p4info.txtpb"
        other.write_text(artifacts.p4info().read_text().replace('version: "', 'version: "other-'))
        async with Controller(options(tmp_path, address, p4info=other)) as controller:
            await until(lambda: controller.sessions["s1"].ready)
            assert controller.sessions["s1"].program.startswith("netreduce other-")
            assert controller.manager.orphanage.of("s1") == []
            await jobs_run_through(controller, "b")

    run(test())
