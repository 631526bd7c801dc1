"""The controller with BMv2's P4Runtime server, which differs from the embedded one in places."""

import asyncio
import contextlib
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from controller_bench import request, udp_request, until
from pyroute2 import IPRoute

from netreduce.controller.api import job_service_pb2 as pb
from netreduce.controller.api import job_service_pb2_grpc as pb_grpc
from netreduce.controller.options import ControllerOptions
from netreduce.controller.server import Controller
from netreduce.p4 import artifacts
from packets.interface_names import new_tag

pytestmark = pytest.mark.bmv2
PATIENCE = 60


@contextlib.contextmanager
def bmv2(folder: Path, *arguments: str) -> Iterator[str]:
    """Run BMv2 without a program; gives its P4Runtime address."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    command = [shutil.which("simple_switch_grpc"), "--no-p4", "--device-id", "1", *arguments]
    with (folder / "bmv2.log").open("w") as log:
        process = subprocess.Popen([*command, "--", "--grpc-server-addr", address], stdout=log, stderr=log)
        try:
            yield address
        finally:
            process.kill()
            process.wait()


@pytest.fixture
def address(tmp_path) -> Iterator[str]:
    """P4Runtime address of a running BMv2 without ports."""
    with bmv2(tmp_path) as address:
        yield address


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


def another_build(folder: Path) -> Path:
    """P4Info that makes it another program, with the same objects."""
    path = folder / "other.p4info.txtpb"
    path.write_text(artifacts.p4info().read_text().replace('version: "', 'version: "other-'))
    return path


def test_another_build_of_the_program_replaces_the_first(run, tmp_path, address):
    async def test():
        async with Controller(options(tmp_path, address)) as controller:
            await until(lambda: controller.sessions["s1"].ready)
            await jobs_run_through(controller, "a")
        async with Controller(options(tmp_path, address, p4info=another_build(tmp_path))) as controller:
            await until(lambda: controller.sessions["s1"].ready)
            assert controller.sessions["s1"].program.startswith("netreduce other-")
            assert controller.manager.orphanage.of("s1") == []
            await jobs_run_through(controller, "b")

    run(test())


@pytest.fixture
def links() -> Iterator[list[str]]:
    """Two veth pairs; the switch takes the ends named ``…s``, the test those named ``…h``."""
    names = [new_tag() for _ in range(2)]
    with IPRoute() as routes:
        try:
            for name in names:
                routes.link("add", ifname=f"{name}s", kind="veth", peer={"ifname": f"{name}h"})
                for end in (f"{name}s", f"{name}h"):
                    Path(f"/proc/sys/net/ipv6/conf/{end}/disable_ipv6").write_text("1")
                    routes.link("set", index=routes.link_lookup(ifname=end)[0], state="up")
            yield names
        finally:
            for name in names:
                for index in routes.link_lookup(ifname=f"{name}s"):
                    routes.link("del", index=index)


@pytest.mark.root
def test_a_broadcast_reaches_every_port_once_after_the_program_was_replaced(run, tmp_path, links):
    """BMv2 keeps a multicast group's members when a program is loaded, and P4Runtime no longer shows
    them: a group that is inserted again would have each member twice."""

    async def load(settings: ControllerOptions) -> None:
        async with Controller(settings) as controller:
            await until(lambda: controller.sessions["s1"].ready)

    ports = [f"{101 + i}@{name}s" for i, name in enumerate(links)]
    with bmv2(tmp_path, "-i", ports[0], "-i", ports[1]) as address, contextlib.ExitStack() as stack:
        run(load(options(tmp_path, address)))
        run(load(options(tmp_path, address, p4info=another_build(tmp_path))))
        sender, receiver = (
            stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B5)))
            for _ in links
        )
        for end, name in zip((sender, receiver), links, strict=True):
            end.bind((f"{name}h", 0x88B5))
            end.settimeout(PATIENCE)
        source = bytes.fromhex("020000000001")
        for number in range(3):  # local experimental EtherType, IEEE 802
            sender.send(b"\xff" * 6 + source + bytes.fromhex("88b5") + bytes([number] * 50))
        assert [receiver.recv(2000)[14] for _ in range(3)] == [0, 1, 2]
