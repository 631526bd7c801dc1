"""The Communicator through the P4 program on the embedded switch, without controller or torch."""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import local_sum
import numpy as np
import pytest

from netreduce.host_agent._datapath import (
    AbortedError,
    Communicator,
    CommunicatorConfig,
    Endpoint,
    Outcome,
    StreamConfig,
)
from netreduce.p4 import artifacts, wire
from netreduce.p4.wire import Cause
from netreduce.topologies.processes import Service
from packets.entries import FLOOD_GROUP, Entry, Group, UnknownStations
from packets.frames import ip_text, mac_text
from packets.jobs import Job
from packets.p4runtime import P4Runtime

PORTS = 8
START_TIMEOUT = timedelta(seconds=90)  # the switch may have to compile itself and the program first
PATIENCE = timedelta(seconds=60)


class SharedHosts(Job):
    """A stream whose ranks have the same addresses as those of the job's other streams."""

    def mac(self, rank: int) -> int:
        return 0x0200_0000_0100 | rank

    def ip(self, rank: int) -> int:
        return 10 << 24 | (rank + 1)

    def udp_port(self, rank: int) -> int:
        return wire.UDP_PORT_FIRST + rank % 2


@dataclass
class RunningSwitch:
    socket: str
    service: Service
    client: P4Runtime

    def admit(self, ranks: int, window: int) -> list[Job]:
        """Fresh tables, registers and counters, and a job of a 32-bit and a 64-bit stream."""
        self.client.push_program()
        self.client.delete_groups()  # which a pushed program may leave
        ports = tuple(range(1, PORTS + 1))
        streams: list[Job] = [
            SharedHosts(number=40 + i, stream=1 + i, ranks=ranks, window=window, lane_bits=bits, ports=ports,
                        slot_base=i * 2 * window)
            for i, bits in enumerate((32, 64))
        ]  # fmt: skip
        entries: dict[Entry, None] = {
            Group(FLOOD_GROUP, tuple((port, port) for port in ports)): None,
            UnknownStations(FLOOD_GROUP): None,
        }
        for stream in streams:
            entries.update(dict.fromkeys(stream.entries()))
        self.client.write(*entries)
        return streams

    def config(self, streams: list[Job], rank: int) -> CommunicatorConfig:
        job, config = streams[0], CommunicatorConfig()

        def endpoint(r: int) -> Endpoint:
            return Endpoint(mac=mac_text(job.mac(r)), ip=ip_text(job.ip(r)), udp_port=job.udp_port(r))

        config.job_name, config.switch_name = "packets", "embedded"
        config.rank, config.world_size, config.window = rank, job.ranks, job.window
        config.max_blocks = wire.MAX_BLOCKS
        config.streams = [StreamConfig(wire_job=s.number, lane_bits=s.lane_bits) for s in streams]
        config.self = endpoint(rank)
        config.successor, config.predecessor = endpoint(job.successor(rank)), endpoint(job.predecessor(rank))
        return config

    def run(self, streams: list[Job], body: Callable[[int, Communicator], Any]) -> list[Any]:
        """`body` of every rank in a thread of its own; raises the first error."""

        def one(rank: int) -> Any:
            port = streams[0].port(rank)
            return body(rank, Communicator.over_shm(self.config(streams, rank), self.socket, port))

        with ThreadPoolExecutor(streams[0].ranks) as pool:
            return list(pool.map(one, range(streams[0].ranks)))

    def causes(self, stream: int) -> dict[Cause, int]:
        cells = self.client.read_counter("causes")
        return {c: cells.get(stream * wire.CAUSE_STRIDE + c, (0, 0))[0] for c in Cause}


@contextmanager
def running_switch(*options: str) -> Iterator[RunningSwitch]:
    name = f"@netreduce-datapath-{os.getpid()}-{secrets.token_hex(4)}"
    command = [sys.executable, "-m", "netreduce.controller.cli.main", "switch", "--no-p4", "--device-id", "1"]
    command += ["--grpc-server-addr", "127.0.0.1:0", "--exit-with-parent"]
    command += ["--shm-socket", name, "--shm-ports", f"1-{PORTS}", *options]
    service = Service("embedded switch", command)
    try:
        address = service.wait_ready(START_TIMEOUT).split()[-1]
        with P4Runtime(address, 1, artifacts.p4info(), artifacts.bmv2_json()) as client:
            yield RunningSwitch(name, service, client)
    finally:
        service.stop()


@pytest.fixture(scope="module")
def switch() -> Iterator[RunningSwitch]:
    with running_switch() as running:
        yield running


def inputs(ranks: int, size: int) -> list[np.ndarray]:
    return [np.random.default_rng(rank).standard_normal(size).astype(np.float32) for rank in range(ranks)]


def expected(arrays: list[np.ndarray], lane_bits: int = 32) -> np.ndarray:
    """The same sum without a switch."""
    copies = [a.copy() for a in arrays]
    local_sum.reduce(copies, lane_bits=lane_bits)
    return copies[0]


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_world_sizes(switch: RunningSwitch, ranks: int) -> None:
    arrays = inputs(ranks, 100_000)
    streams = switch.admit(ranks, window=16)

    def body(rank: int, communicator: Communicator) -> tuple[np.ndarray, np.ndarray, Any]:
        communicator.probe(PATIENCE)
        single, double = arrays[rank].copy(), arrays[rank].astype(np.float64)
        assert communicator.all_reduce(single, timeout=PATIENCE) == Outcome.REDUCED
        assert communicator.all_reduce(double, timeout=PATIENCE) == Outcome.REDUCED
        return single, double, communicator.statistics

    results = switch.run(streams, body)
    single, double = expected(arrays), expected([a.astype(np.float64) for a in arrays], 64)
    for got_single, got_double, _ in results:
        assert got_single.tobytes() == single.tobytes()
        assert got_double.tobytes() == double.tobytes()

    # The switch saw what the ranks say that they sent; a resend may still be on its way.
    counted = [switch.causes(stream.stream) for stream in streams]
    sent = sum(s.packets_sent for *_, s in results)
    resent = sum(s.packets_resent for *_, s in results)
    assert sum(c[Cause.FIRST] + c[Cause.ADDED] + c[Cause.COMPLETED] for c in counted) == sent
    assert sent <= sum(sum(causes.values()) for causes in counted) <= sent + resent
    assert sum(causes[Cause.COMPLETED] for causes in counted) * ranks == sent
    assert sum(s.results_received for *_, s in results) == sent
    for causes in counted:
        assert not any(causes[c] for c in (Cause.STALE, Cause.SPOOFED, Cause.MALFORMED, Cause.UNKNOWN))


@pytest.mark.parametrize("rate", [0.01, 0.1])
def test_faults_in_the_switch_do_not_change_a_bit(rate: float) -> None:
    arrays = inputs(4, 100_000)
    with running_switch("--fault", f"drop={rate},duplicate={rate},reorder={rate},seed=3") as switch:
        streams = switch.admit(4, window=16)
        results = switch.run(streams, lambda rank, communicator: reduced(communicator, arrays[rank]))
        causes = switch.causes(streams[0].stream)
    assert causes[Cause.DUPLICATE_ABSORBED] + causes[Cause.DUPLICATE_ANSWERED] > 0, "no fault was injected"
    reference = expected(arrays)
    for result in results:
        assert result.tobytes() == reference.tobytes()


def reduced(communicator: Communicator, array: np.ndarray) -> np.ndarray:
    array = array.copy()
    assert communicator.all_reduce(array, timeout=PATIENCE) == Outcome.REDUCED
    return array


def test_killed_switch_aborts_the_call() -> None:
    with running_switch() as switch:
        streams = switch.admit(2, window=16)
        alone = Communicator.over_shm(switch.config(streams, 0), switch.socket, streams[0].port(0))
        with ThreadPoolExecutor(1) as pool:
            call = pool.submit(reduced, alone, np.ones(10, np.float32))
            while alone.statistics.packets_sent == 0:
                assert not call.done()
            os.kill(switch.service.pid, signal.SIGKILL)
            with pytest.raises(AbortedError, match="switch embedded closed port 1"):
                call.result(30)
