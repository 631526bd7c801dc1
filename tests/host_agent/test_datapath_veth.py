"""The udp wire through kernel interfaces: a network namespace per rank, the P4 program between them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from datetime import timedelta

import numpy as np
import pytest
from program_switch import expected, inputs, running_switch

from netreduce.host_agent._datapath import Communicator, Outcome, bind_udp
from netreduce.p4 import wire
from netreduce.p4.wire import Cause
from netreduce.topologies.namespaces import HostNamespaces, host_mac
from packets.jobs import Job

pytestmark = pytest.mark.root
RANKS = 3
PATIENCE = timedelta(seconds=60)
CLONE_NEWNET = 0x40000000


def jobs_on(network: HostNamespaces) -> type[Job]:
    """Jobs whose rank r is on host r + 1."""

    class NamespaceHosts(Job):
        def mac(self, rank: int) -> int:
            return int(host_mac(rank + 1).replace(":", ""), 16)

        def ip(self, rank: int) -> int:
            return int.from_bytes(map(int, network.hosts[rank].ip.split(".")), "big")

        def udp_port(self, rank: int) -> int:
            return wire.UDP_PORT_FIRST

    return NamespaceHosts


@pytest.fixture(scope="module")
def network() -> Iterator[HostNamespaces]:
    with HostNamespaces(RANKS) as hosts:
        yield hosts


def enter_namespace(pid: int) -> None:
    """Moves this thread, and no other, into the network namespace of a process."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(descriptor, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("fault", [None, "drop=0.02,duplicate=0.02,reorder=0.02,seed=5"])
def test_sum_over_veth(network: HostNamespaces, fault: str | None) -> None:
    arrays = inputs(RANKS, 100_000)
    options = [part for link in network.links[:RANKS] for part in ("-i", f"{link.port}@{link.interface}")]
    if fault:
        options += ["--fault", fault]
    with running_switch(*options, shm_ports="20-21") as switch:
        streams = switch.admit(RANKS, window=32, hosts=jobs_on(network))

        def connect(streams: list[Job], rank: int) -> Communicator:
            enter_namespace(network.hosts[rank].pid)
            socket = bind_udp(network.hosts[rank].ip)
            assert socket.port == wire.UDP_PORT_FIRST
            return Communicator.over_udp(switch.config(streams, rank), socket)

        def body(rank: int, communicator: Communicator) -> np.ndarray:
            communicator.probe(PATIENCE)
            array = arrays[rank].copy()
            assert communicator.all_reduce(array, timeout=PATIENCE) == Outcome.REDUCED
            return array

        results = switch.run(streams, body, connect)
        causes = switch.causes(streams[0].stream)
    reference = expected(arrays)
    for result in results:
        assert result.tobytes() == reference.tobytes()
    assert not any(causes[c] for c in (Cause.STALE, Cause.SPOOFED, Cause.MALFORMED, Cause.UNKNOWN))
