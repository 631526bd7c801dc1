"""A job on the embedded switch running the P4 program, without controller or torch."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import local_sum
import numpy as np

from netreduce.host_agent._datapath import Communicator, CommunicatorConfig, Endpoint, StreamConfig
from netreduce.p4 import artifacts, wire
from netreduce.p4.wire import Cause
from netreduce.topologies.processes import Service
from packets.entries import FLOOD_GROUP, Entry, Group, UnknownStations
from packets.frames import ip_text, mac_text
from packets.jobs import Job
from packets.p4runtime import P4Runtime
from packets.switch_process import switch_process

PORTS = 8


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

    def admit(self, ranks: int, window: int, hosts: type[Job] = SharedHosts) -> list[Job]:
        """Fresh tables, registers and counters, and a job of a 32-bit and a 64-bit stream."""
        self.client.push_program()
        self.client.delete_groups()  # which a pushed program may leave
        ports = tuple(range(1, PORTS + 1))
        streams: list[Job] = [
            hosts(number=40 + i, stream=1 + i, ranks=ranks, window=window, lane_bits=bits, ports=ports,
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

    def config(self, streams: list[Job], rank: int, first_k: int = 0) -> CommunicatorConfig:
        job, config = streams[0], CommunicatorConfig()

        def endpoint(r: int) -> Endpoint:
            return Endpoint(mac=mac_text(job.mac(r)), ip=ip_text(job.ip(r)), udp_port=job.udp_port(r))

        config.job_name, config.switch_name = "packets", "embedded"
        config.rank, config.world_size, config.window = rank, job.ranks, job.window
        config.first_k = first_k
        config.max_blocks = wire.MAX_BLOCKS
        config.streams = [StreamConfig(wire_job=s.number, lane_bits=s.lane_bits) for s in streams]
        config.self = endpoint(rank)
        config.successor, config.predecessor = endpoint(job.successor(rank)), endpoint(job.predecessor(rank))
        return config

    def over_shm(self, streams: list[Job], rank: int, first_k: int = 0) -> Communicator:
        return Communicator.over_shm(self.config(streams, rank, first_k), self.socket, streams[0].port(rank))

    def run(
        self,
        streams: list[Job],
        body: Callable[[int, Communicator], Any],
        connect: Callable[[list[Job], int], Communicator] | None = None,
    ) -> list[Any]:
        """`body` of every rank in a thread of its own; raises the first error."""

        def one(rank: int) -> Any:
            return body(rank, (connect or self.over_shm)(streams, rank))

        with ThreadPoolExecutor(streams[0].ranks) as pool:
            return list(pool.map(one, range(streams[0].ranks)))

    def causes(self, stream: int) -> dict[Cause, int]:
        cells = self.client.read_counter("causes")
        return {c: cells.get(stream * wire.CAUSE_STRIDE + c, (0, 0))[0] for c in Cause}


@contextmanager
def running_switch(*options: str, shm_ports: str = f"1-{PORTS}") -> Iterator[RunningSwitch]:
    name = f"@netreduce-datapath-{os.getpid()}-{secrets.token_hex(4)}"
    with (
        switch_process("--shm-socket", name, "--shm-ports", shm_ports, *options) as (service, address),
        P4Runtime(address, 1, artifacts.p4info(), artifacts.bmv2_json()) as client,
    ):
        yield RunningSwitch(name, service, client)


def inputs(ranks: int, size: int) -> list[np.ndarray]:
    return [np.random.default_rng(rank).standard_normal(size).astype(np.float32) for rank in range(ranks)]


def expected(arrays: list[np.ndarray], lane_bits: int = 32) -> np.ndarray:
    """The same sum without a switch."""
    copies = [a.copy() for a in arrays]
    local_sum.reduce(copies, lane_bits=lane_bits)
    return copies[0]
