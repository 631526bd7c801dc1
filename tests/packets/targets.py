"""The switches that the packet tests run on: the embedded one, and BMv2.

A target is a running process with ports 1 … PORT_COUNT, written through P4Runtime. ``exchange`` sends frames
into one port and returns everything that comes out because of them, without waiting longer than it takes:
markers follow the frames through the switch, and since a port keeps order, what precedes a port's marker is
all there is.
"""

import contextlib
import os
import secrets
import select
import shutil
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from finsy.proto import p4r
from pyroute2 import IPRoute

from netreduce.p4 import artifacts, wire
from netreduce.p4.wire import Cause
from netreduce.softswitch.shm_client import ShmPort
from packets.entries import FLOOD_GROUP, Entry, Flooded, Group, Station, UnknownStations
from packets.interface_names import new_tag
from packets.p4runtime import P4Runtime
from packets.switch_process import switch_process

PORT_COUNT = 8
PORTS = tuple(range(1, PORT_COUNT + 1))
DEVICE_ID = 1
MARKER_TIMEOUT_S = 20.0
MTU = 4300

ETHERTYPE_MARKER = 0x88B5  # IEEE 802 local experimental
MARKER_SOURCE = 0x06_00_00_00_00_00
FLOODED_MARKER = 0x07_00_00_00_00_FF


def returned_marker(port: int) -> int:
    """The address of markers that come back out of ``port``, through which flooding does not go."""
    return MARKER_SOURCE | port


def ethernet(destination: int, source: int, ethertype: int, payload: bytes) -> bytes:
    return destination.to_bytes(6, "big") + source.to_bytes(6, "big") + ethertype.to_bytes(2, "big") + payload


class Port(ABC):
    """The host's end of a switch port."""

    @abstractmethod
    def send(self, frame: bytes) -> None: ...

    @abstractmethod
    def receive(self, timeout: float) -> bytes | None:
        """The next frame, or None after ``timeout`` seconds."""


class Target(ABC):
    """A running switch with the program loaded; a context manager."""

    name: str
    takes_any_frame: bool
    """Whether its ports take frames as they are: a kernel interface takes VLAN tags off, and refuses frames
    that are shorter than an Ethernet header."""

    def __init__(self) -> None:
        self._cleanup = ExitStack()
        self._ports: dict[int, Port] = {}
        self._sequence = 0

    def __enter__(self) -> "Target":
        with contextlib.ExitStack() as undo:
            undo.callback(self._cleanup.close)
            address = self._start()
            self._client = self._cleanup.enter_context(
                P4Runtime(address, DEVICE_ID, artifacts.p4info(), artifacts.bmv2_json())
            )
            self._client.push_program()
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    @abstractmethod
    def _start(self) -> str:
        """Starts the process and its ports; returns its P4Runtime address."""

    def restart_program(self) -> None:
        """Back to empty tables, registers and counters, and forwarding for the markers."""
        self._client.delete_groups()
        self._client.push_program()
        self._client.write(*BASIC_FORWARDING)

    def write(self, *entries: Entry) -> None:
        self._client.write(*entries)

    def modify(self, *entries: Entry) -> None:
        self._client.write(*entries, update=p4r.Update.MODIFY)

    def delete(self, *entries: Entry) -> None:
        self._client.write(*entries, update=p4r.Update.DELETE)

    def causes(self) -> dict[tuple[int, Cause], tuple[int, int]]:
        """Packets and bytes by (stream, cause), where there were any."""
        cells = self._client.read_counter("causes")
        return {
            (index // wire.CAUSE_STRIDE, Cause(index % wire.CAUSE_STRIDE)): value
            for index, value in cells.items()
        }

    def delivered(self) -> dict[tuple[int, ...], int]:
        """Results by (stream, rank), where there were any."""
        counters = self._client.read_direct_counters("rewrite")
        return {key: packets for key, (packets, _) in counters.items() if packets}

    def exchange(self, port: int, frames: Sequence[bytes]) -> dict[int, list[bytes]]:
        """Sends ``frames`` into ``port``; returns, in order, what every port gave out."""
        self._sequence += 1
        stamp = self._sequence.to_bytes(8, "big").ljust(46, b"\0")
        flooded = ethernet(FLOODED_MARKER, MARKER_SOURCE, ETHERTYPE_MARKER, stamp)
        returned = ethernet(returned_marker(port), MARKER_SOURCE, ETHERTYPE_MARKER, stamp)
        for frame in [*frames, flooded, returned]:
            self._ports[port].send(frame)
        outputs = {number: self._until(number, returned if number == port else flooded) for number in PORTS}
        return {number: received for number, received in outputs.items() if received}

    def _until(self, number: int, marker: bytes) -> list[bytes]:
        deadline = time.monotonic() + MARKER_TIMEOUT_S
        received = []
        while (frame := self._ports[number].receive(deadline - time.monotonic())) != marker:
            if frame is None:
                raise TimeoutError(f"{self.name}: port {number} gave {len(received)} frames, but no marker")
            received.append(frame)
        return received


BASIC_FORWARDING: tuple[Entry, ...] = (
    Group(FLOOD_GROUP, tuple((port, port) for port in PORTS)),
    UnknownStations(FLOOD_GROUP),
    Flooded(FLOODED_MARKER, FLOOD_GROUP),
    *(Station(returned_marker(port), port) for port in PORTS),
)
"""Flooding to all ports, as the controller sets it up, and the paths of the markers."""


class _SharedMemoryPort(Port):
    def __init__(self, port: ShmPort) -> None:
        self._port = port

    def send(self, frame: bytes) -> None:
        assert self._port.send(frame), "the ring is full"

    def receive(self, timeout: float) -> bytes | None:
        return self._port.receive(max(0.0, timeout))


class Softswitch(Target):
    """``netreduce switch`` with shared-memory ports."""

    name = "softswitch"
    takes_any_frame = True

    def _start(self) -> str:
        socket_name = f"@netreduce-test-{os.getpid()}-{secrets.token_hex(4)}"
        address = self._launch("--shm-socket", socket_name, "--shm-ports", f"1-{PORT_COUNT}")
        for number in PORTS:
            port = self._cleanup.enter_context(ShmPort(socket_name, number))
            self._ports[number] = _SharedMemoryPort(port)
        return address

    def _launch(self, *ports: str) -> str:
        """Starts the process; returns its P4Runtime address."""
        _, address = self._cleanup.enter_context(switch_process(*ports, device_id=DEVICE_ID))
        return address


class _PacketSocket(Port):
    def __init__(self, interface: str) -> None:
        everything = 0x0003  # ETH_P_ALL
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(everything))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.bind((interface, everything))

    def send(self, frame: bytes) -> None:
        self.socket.send(frame)

    def receive(self, timeout: float) -> bytes | None:
        if not select.select([self.socket], [], [], max(0.0, timeout))[0]:
            return None
        return self.socket.recv(65536)


class _OnInterfaces(Target):
    """A target whose ports are veth pairs; needs root."""

    takes_any_frame = False

    def _make_links(self) -> list[str]:
        """Makes a veth pair for every port; returns the switch's arguments that name its ends."""
        tag = new_tag()
        arguments = []
        with IPRoute() as routes:
            for number in PORTS:
                host, switch = f"{tag}h{number}", f"{tag}s{number}"
                routes.link("add", ifname=host, kind="veth", peer=switch)
                self._cleanup.callback(_remove_link, host)
                for interface in (host, switch):
                    # Or else the kernel sends its own router solicitations into the test.
                    Path(f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6").write_text("1")
                    index = routes.link_lookup(ifname=interface)[0]
                    routes.link("set", index=index, mtu=MTU, state="up")
                arguments += ["-i", f"{number}@{switch}"]
                self._ports[number] = port = _PacketSocket(host)
                self._cleanup.callback(port.socket.close)
        return arguments


class SoftswitchOnInterfaces(_OnInterfaces, Softswitch):
    """``netreduce switch`` on veth pairs; needs root."""

    name = "softswitch on interfaces"

    def _start(self) -> str:
        return self._launch(*self._make_links())


class Bmv2(_OnInterfaces):
    """``simple_switch_grpc`` on veth pairs; needs root."""

    name = "bmv2"

    @staticmethod
    def missing() -> str | None:
        """Why it cannot run here, if so."""
        if shutil.which("simple_switch_grpc") is None:
            return "simple_switch_grpc is not on PATH"
        return None if os.geteuid() == 0 else "needs root (veth, AF_PACKET)"

    def _start(self) -> str:
        address = f"127.0.0.1:{_free_port()}"
        command = ["simple_switch_grpc", "--device-id", str(DEVICE_ID), "--no-p4", *self._make_links()]
        process = subprocess.Popen(
            [*command, "--", "--grpc-server-addr", address],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._cleanup.callback(_end, process)
        return address


def _remove_link(name: str) -> None:
    with IPRoute() as routes:
        for index in routes.link_lookup(ifname=name):
            routes.link("del", index=index)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
