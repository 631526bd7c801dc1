"""The switch core (``csrc/core``) from Python: ports, faults, the packet thread and loaded programs.

All functions may be called from any thread; calls that reach a program take turns with the packet
thread.  Every failure is a :class:`SwitchError` (settings, ports) or a :class:`ProgramError` (table
operations).
"""

from __future__ import annotations

import ctypes
import errno
import os
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from .core_library import (
    DROP_PORT,
    ERROR_BYTES,
    LOG_LEVELS,
    MAX_FRAME_BYTES,
    NO_PORT,
    PORT_COUNT,
    NativeCoreStats,
    NativeFault,
    NativePortStats,
    SwitchError,
    library,
)
from .fault import Fault
from .instance import Instance


class PortKind(IntEnum):
    NONE = 0
    SHM = 1
    INTERFACE = 2
    CPU = 3


@dataclass(frozen=True)
class FaultStats:
    dropped: int
    duplicated: int
    reordered: int


@dataclass(frozen=True)
class PortStats:
    """Counts since the switch started; they survive the unplugging of the port."""

    kind: PortKind
    up: bool
    rx_frames: int
    rx_bytes: int
    rx_invalid: int
    tx_frames: int
    tx_bytes: int
    tx_dropped: int
    fault_in: FaultStats
    fault_out: FaultStats


@dataclass(frozen=True)
class CoreStats:
    no_program: int
    no_port: int
    packet_in_dropped: int
    digests_dropped: int
    sleeps: int


class SwitchCore:
    """Ports, faults and the packet thread of one switch.

    Args:
        cpu_port: the port whose frames go to :meth:`packet_in`; None: there is none.
        drop_port: frames to this port vanish.
        log_level: one of :data:`LOG_LEVELS`; lines go to standard error.
    """

    def __init__(
        self, *, cpu_port: int | None = None, drop_port: int = DROP_PORT, log_level: str = "warning"
    ):
        if cpu_port is not None and not 0 < cpu_port < PORT_COUNT:
            raise SwitchError(f"CPU port {cpu_port}: it is between 1 and {PORT_COUNT - 1}")
        if not 0 <= drop_port <= DROP_PORT or drop_port == cpu_port:
            raise SwitchError(f"drop port {drop_port}: it is between 0 and {DROP_PORT} and not the CPU port")
        self.cpu_port = cpu_port
        self.drop_port = drop_port
        pointer = library().ssw_core_create(
            NO_PORT if cpu_port is None else cpu_port, drop_port, LOG_LEVELS.index(log_level)
        )
        if not pointer:
            raise SwitchError("not enough memory or file descriptors for a switch")
        self._pointer: int | None = pointer

    @property
    def alive(self) -> bool:
        return self._pointer is not None

    def _handle(self) -> int:
        if self._pointer is None:
            raise SwitchError("the switch has been closed")
        return self._pointer

    def set_fault(self, fault: Fault) -> None:
        """A later fault replaces an earlier one of the same port and direction."""
        directions = {"in": 1, "out": 2, None: 3}[fault.direction]
        port = NO_PORT if fault.port is None else fault.port
        settings = NativeFault(
            fault.seed, fault.drop, fault.duplicate, fault.reorder, fault.depth, int(fault.hold_ms * 1000)
        )
        if library().ssw_core_set_fault(self._handle(), port, directions, ctypes.byref(settings)):
            raise SwitchError(f"{fault} is out of range")

    def allow_shm_ports(self, first: int, last: int) -> None:
        if library().ssw_core_allow_shm(self._handle(), first, last):
            raise SwitchError(f"shared-memory ports {first}-{last}: ports are 0 to {PORT_COUNT - 1}")

    def listen(self, name: str) -> None:
        """Listens for shared-memory clients; ``@name`` is in the abstract namespace."""
        self._checked("ssw_core_listen", os.fsencode(name))

    def add_interface(self, port: int, interface: str) -> None:
        self._checked("ssw_core_add_interface", port, os.fsencode(interface))

    def remove_interface(self, port: int) -> None:
        if library().ssw_core_remove_interface(self._handle(), port):
            raise SwitchError(f"port {port} has no network interface")

    def _checked(self, function: str, *arguments) -> None:
        error = ctypes.create_string_buffer(ERROR_BYTES)
        if getattr(library(), function)(self._handle(), *arguments, error, ERROR_BYTES):
            raise SwitchError(error.value.decode(errors="replace"))

    def start(self) -> None:
        status = library().ssw_core_start(self._handle())
        if status:
            raise SwitchError(f"cannot start the packet thread: {os.strerror(-status)}")

    def stop(self) -> None:
        """Stops the packet thread and wakes :meth:`packet_in`; ports stay plugged in."""
        library().ssw_core_stop(self._handle())

    def close(self) -> None:
        """Stops, unplugs every port, unloads every program.  No other call may be under way."""
        pointer, self._pointer = self._pointer, None
        if pointer is not None:
            library().ssw_core_destroy(pointer)

    def __enter__(self) -> SwitchCore:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def load(self, shared_object: Path) -> Instance:
        """A fresh instance of a compiled pipeline, which no frame reaches before :meth:`attach`."""
        error = ctypes.create_string_buffer(ERROR_BYTES)
        pointer = library().ssw_program_load(
            self._handle(), os.fsencode(shared_object), error, ERROR_BYTES
        )
        if not pointer:
            raise SwitchError(error.value.decode(errors="replace"))
        return Instance(self, pointer)

    def attach(self, program: Instance | None) -> None:
        """From now on frames run through ``program``."""
        library().ssw_program_attach(self._handle(), program._pointer if program else None)

    def packet_out(self, frame: bytes) -> None:
        """Runs a frame through the attached program as if received at the CPU port."""
        status = library().ssw_core_packet_out(self._handle(), frame, len(frame))
        if status == -errno.ENODEV:
            raise SwitchError("the switch has no CPU port: start it with --cpu-port")
        if status:
            raise SwitchError(f"a frame has at most {MAX_FRAME_BYTES} bytes, not {len(frame)}")

    def packet_in(self, timeout: float) -> bytes | None:
        """The next frame to the CPU port; None after ``timeout`` seconds.  Raises SwitchError once the
        switch stops."""
        buffer = ctypes.create_string_buffer(MAX_FRAME_BYTES)
        length = library().ssw_core_packet_in(
            self._handle(), buffer, MAX_FRAME_BYTES, int(timeout * 1000)
        )
        if length == -errno.ESHUTDOWN:
            raise SwitchError("the switch has stopped")
        return buffer.raw[:length] if length >= 0 else None

    def port_stats(self, port: int) -> PortStats:
        out = NativePortStats()
        if library().ssw_core_port_stats(self._handle(), port, ctypes.byref(out)):
            raise SwitchError(f"port {port}: ports are 0 to {PORT_COUNT - 1}")
        values = {name: getattr(out, name) for name, _ in NativePortStats._fields_}
        values["kind"] = PortKind(out.kind)
        values["up"] = bool(out.up)
        for side in ("fault_in", "fault_out"):
            counts = values[side]
            values[side] = FaultStats(counts.dropped, counts.duplicated, counts.reordered)
        return PortStats(**values)

    def stats(self) -> CoreStats:
        out = NativeCoreStats()
        library().ssw_core_stats_read(self._handle(), ctypes.byref(out))
        return CoreStats(**{name: getattr(out, name) for name, _ in NativeCoreStats._fields_})
