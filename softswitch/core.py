"""The switch core (``csrc/core``) from Python: ports, faults, the packet thread and loaded programs.

All functions may be called from any thread; calls that reach a program take turns with the packet
thread.  Every failure is a :class:`SwitchError` (settings, ports) or a :class:`ProgramError` (table
operations).
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Sequence
from ctypes import (
    POINTER,
    c_char_p,
    c_double,
    c_int,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path

from .build import build_core
from .pipeline import NativeCounter, NativeEntry, PipelineOps, Replica

CORE_ABI = 1
PORT_COUNT = 511
"""Port numbers are 0..510; 511 is v1model's drop port."""
DROP_PORT = 511
MAX_FRAME_BYTES = 10240
NO_PORT = 0xFFFFFFFF
LOG_LEVELS = ("error", "warning", "info", "debug")

_ERROR_BYTES = 512


class SwitchError(RuntimeError):
    """The switch could not do what was asked; the message is a sentence for its user."""


class ProgramStatus(IntEnum):
    """``enum ssw_status`` of ``csrc/pipeline.h``."""

    OK = 0
    NOT_FOUND = -1
    EXISTS = -2
    FULL = -3
    INVALID = -4
    OUT_OF_MEMORY = -5
    CONST = -6


class ProgramError(RuntimeError):
    """An operation on a loaded program failed; ``status`` says how."""

    def __init__(self, operation: str, status: int):
        known = status in ProgramStatus._value2member_map_
        self.status = ProgramStatus(status) if known else ProgramStatus.INVALID
        super().__init__(f"{operation}: {self.status.name.lower().replace('_', ' ')}")


class PortKind(IntEnum):
    NONE = 0
    SHM = 1
    INTERFACE = 2
    CPU = 3


# --- C structures: csrc/core/core.h ---------------------------------------------------------------

_P = c_void_p
_BYTES = c_char_p


class _Fault(ctypes.Structure):
    _fields_ = (
        ("seed", c_uint64),
        ("drop", c_double),
        ("duplicate", c_double),
        ("reorder", c_double),
        ("depth", c_uint32),
        ("hold_us", c_uint32),
    )


class _FaultStats(ctypes.Structure):
    _fields_ = (("dropped", c_uint64), ("duplicated", c_uint64), ("reordered", c_uint64))


class _PortStats(ctypes.Structure):
    _fields_ = (
        ("kind", c_uint32),
        ("up", c_uint32),
        ("rx_frames", c_uint64),
        ("rx_bytes", c_uint64),
        ("rx_invalid", c_uint64),
        ("tx_frames", c_uint64),
        ("tx_bytes", c_uint64),
        ("tx_dropped", c_uint64),
        ("fault_in", _FaultStats),
        ("fault_out", _FaultStats),
    )


class _CoreStats(ctypes.Structure):
    _fields_ = (
        ("no_program", c_uint64),
        ("no_port", c_uint64),
        ("packet_in_dropped", c_uint64),
        ("digests_dropped", c_uint64),
        ("sleeps", c_uint64),
    )


@cache
def _library() -> ctypes.CDLL:
    """The core, compiled at first use."""
    library = ctypes.CDLL(str(build_core()))
    signatures = {
        "ssw_core_abi": (c_uint32,),
        "ssw_core_create": (_P, c_uint32, c_uint32, c_int),
        "ssw_core_destroy": (None, _P),
        "ssw_core_set_fault": (c_int, _P, c_uint32, c_uint32, POINTER(_Fault)),
        "ssw_core_allow_shm": (c_int, _P, c_uint32, c_uint32),
        "ssw_core_listen": (c_int, _P, _BYTES, _BYTES, c_size_t),
        "ssw_core_start": (c_int, _P),
        "ssw_core_stop": (None, _P),
        "ssw_core_add_interface": (c_int, _P, c_uint32, _BYTES, _BYTES, c_size_t),
        "ssw_core_remove_interface": (c_int, _P, c_uint32),
        "ssw_program_load": (_P, _P, _BYTES, _BYTES, c_size_t),
        "ssw_program_attach": (None, _P, _P),
        "ssw_program_unload": (None, _P),
        "ssw_program_ops": (POINTER(PipelineOps),),
        "ssw_core_packet_out": (c_int, _P, _BYTES, c_uint32),
        "ssw_core_packet_in": (c_int, _P, _BYTES, c_uint32, c_int),
        "ssw_core_port_stats": (c_int, _P, c_uint32, POINTER(_PortStats)),
        "ssw_core_stats_read": (None, _P, POINTER(_CoreStats)),
    }
    for name, (result, *arguments) in signatures.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    if library.ssw_core_abi() != CORE_ABI:
        raise SwitchError("the compiled switch core does not belong to this version of the package")
    return library


# --- Settings and statistics ----------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """Seeded faults of one port and direction, or of all.

    Whether a frame is dropped, duplicated or held back depends on the seed, the port, the direction
    and the frame's number since the port was plugged in, on nothing else.
    """

    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    seed: int = 0
    port: int | None = None
    """None: every port."""
    direction: str | None = None
    """``"in"``, ``"out"``, or None for both."""
    depth: int = 8
    """A held frame is overtaken by 1 to ``depth`` later ones …"""
    hold_ms: float = 5.0
    """… or leaves after this many milliseconds, whichever comes first."""

    def __post_init__(self) -> None:
        for name in ("drop", "duplicate", "reorder"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name}={getattr(self, name)}: a probability is between 0 and 1")
        if not 0 <= self.seed < 1 << 64:
            raise ValueError(f"seed={self.seed}: a seed is between 0 and 2^64 - 1")
        if self.port is not None and not 0 <= self.port < PORT_COUNT:
            raise ValueError(f"port={self.port}: ports are 0 to {PORT_COUNT - 1}")
        if self.direction not in (None, "in", "out"):
            raise ValueError(f"direction={self.direction}: it is in or out")
        if not 1 <= self.depth <= 64:
            raise ValueError(f"depth={self.depth}: it is between 1 and 64 frames")
        if not 0.0 < self.hold_ms <= 60_000.0:
            raise ValueError(f"hold_ms={self.hold_ms}: it is between 0 and 60000 milliseconds")

    @classmethod
    def parse(cls, text: str) -> Fault:
        """From ``drop=0.01,duplicate=0.01,reorder=0.05,seed=7[,port=3][,direction=in|out][,depth=8]
        [,hold_ms=5]``; raises ValueError with a sentence."""
        kinds = {
            "drop": float,
            "duplicate": float,
            "reorder": float,
            "hold_ms": float,
            "seed": int,
            "port": int,
            "depth": int,
            "direction": str,
        }
        values: dict = {}
        for part in text.split(","):
            name, equals, value = part.strip().partition("=")
            if not equals or name not in kinds or name in values:
                raise ValueError(f"'{part}': expected each of {', '.join(kinds)} at most once, as name=value")
            try:
                values[name] = kinds[name](value)
            except ValueError:
                raise ValueError(f"'{part}': {value!r} is not a number") from None
        return cls(**values)


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


# --- Programs -------------------------------------------------------------------------------------


class Instance:
    """One instance of a compiled pipeline: its tables, counters, registers and replication groups.

    Tables, actions, counters and registers are named by their ids in the BMv2 JSON.  Keys and action
    data are laid out as ``csrc/pipeline.h`` says.  All methods raise :class:`ProgramError`.
    """

    def __init__(self, core: SwitchCore, pointer: int):
        self._core = core
        self._pointer: int | None = pointer
        self._ops = _library().ssw_program_ops().contents

    def _call(self, operation: str, *arguments) -> None:
        if self._pointer is None:
            raise SwitchError("the program has been unloaded")
        status = getattr(self._ops, operation)(self._pointer, *arguments)
        if status:
            raise ProgramError(operation, status)

    def table_insert(
        self, table: int, value: bytes, mask: bytes, priority: int, action: int, data: bytes
    ) -> int:
        """Inserts an entry; returns its handle."""
        entry = NativeEntry(value, mask, priority, action, data, len(data))
        handle = c_uint64()
        self._call("table_insert", table, ctypes.byref(entry), ctypes.byref(handle))
        return handle.value

    def table_modify(self, table: int, handle: int, action: int, data: bytes) -> None:
        self._call("table_modify", table, handle, action, data, len(data))

    def table_delete(self, table: int, handle: int) -> None:
        self._call("table_delete", table, handle)

    def table_set_default(self, table: int, action: int, data: bytes) -> None:
        self._call("table_set_default", table, action, data, len(data))

    def table_reset_default(self, table: int) -> None:
        self._call("table_reset_default", table)

    def table_counter_read(self, table: int, handle: int) -> tuple[int, int]:
        """(packets, bytes) of an entry's direct counter; handle 0: the default action's."""
        counter = NativeCounter()
        self._call("table_counter_read", table, handle, ctypes.byref(counter))
        return counter.packets, counter.bytes

    def table_counter_write(self, table: int, handle: int, packets: int, byte_count: int) -> None:
        self._call("table_counter_write", table, handle, ctypes.byref(NativeCounter(packets, byte_count)))

    def counter_read(self, counter: int, first: int, count: int) -> list[tuple[int, int]]:
        """(packets, bytes) of ``count`` cells, all read at one moment."""
        cells = (NativeCounter * count)()
        self._call("counter_read", counter, first, count, cells)
        return [(cell.packets, cell.bytes) for cell in cells]

    def counter_write(self, counter: int, index: int, packets: int, byte_count: int) -> None:
        self._call("counter_write", counter, index, ctypes.byref(NativeCounter(packets, byte_count)))

    def register_read(self, register: int, index: int, length: int) -> bytes:
        out = ctypes.create_string_buffer(length)
        self._call("register_read", register, index, out, length)
        return out.raw

    def register_write(self, register: int, index: int, value: bytes) -> None:
        self._call("register_write", register, index, value, len(value))

    def multicast_set(self, group: int, replicas: Sequence[tuple[int, int]]) -> None:
        """Replicas are (port, instance); none deletes the group."""
        self._call("multicast_set", group, (Replica * len(replicas))(*replicas), len(replicas))

    def clone_session_set(
        self, session: int, replicas: Sequence[tuple[int, int]], truncate_bytes: int = 0
    ) -> None:
        array = (Replica * len(replicas))(*replicas)
        self._call("clone_session_set", session, array, len(replicas), truncate_bytes)

    def process(self, port: int, frame: bytes) -> None:
        """Runs one frame through the program at once, attached or not."""
        if self._pointer is None:
            raise SwitchError("the program has been unloaded")
        self._ops.process(self._pointer, port, frame, len(frame))

    def unload(self) -> None:
        """Frees the instance; frames find no program if it was attached.  Idempotent."""
        pointer, self._pointer = self._pointer, None
        if pointer is not None and self._core.alive:
            _library().ssw_program_unload(pointer)


# --- The core -------------------------------------------------------------------------------------


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
        pointer = _library().ssw_core_create(
            NO_PORT if cpu_port is None else cpu_port, drop_port, LOG_LEVELS.index(log_level)
        )
        if not pointer:
            raise SwitchError("not enough memory or file descriptors for a switch")
        self._pointer: int | None = pointer
        self._error = threading.local()

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
        settings = _Fault(
            fault.seed, fault.drop, fault.duplicate, fault.reorder, fault.depth, int(fault.hold_ms * 1000)
        )
        if _library().ssw_core_set_fault(self._handle(), port, directions, ctypes.byref(settings)):
            raise SwitchError(f"{fault} is out of range")

    def allow_shm_ports(self, first: int, last: int) -> None:
        if _library().ssw_core_allow_shm(self._handle(), first, last):
            raise SwitchError(f"shared-memory ports {first}-{last}: ports are 0 to {PORT_COUNT - 1}")

    def listen(self, name: str) -> None:
        """Listens for shared-memory clients; ``@name`` is in the abstract namespace."""
        self._checked("ssw_core_listen", os.fsencode(name))

    def add_interface(self, port: int, interface: str) -> None:
        self._checked("ssw_core_add_interface", port, os.fsencode(interface))

    def remove_interface(self, port: int) -> None:
        if _library().ssw_core_remove_interface(self._handle(), port):
            raise SwitchError(f"port {port} has no network interface")

    def _checked(self, function: str, *arguments) -> None:
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        if getattr(_library(), function)(self._handle(), *arguments, error, _ERROR_BYTES):
            raise SwitchError(error.value.decode(errors="replace"))

    def start(self) -> None:
        status = _library().ssw_core_start(self._handle())
        if status:
            raise SwitchError(f"cannot start the packet thread: {os.strerror(-status)}")

    def stop(self) -> None:
        """Stops the packet thread and wakes :meth:`packet_in`; ports stay plugged in."""
        _library().ssw_core_stop(self._handle())

    def close(self) -> None:
        """Stops, unplugs every port, unloads every program.  No other call may be under way."""
        pointer, self._pointer = self._pointer, None
        if pointer is not None:
            _library().ssw_core_destroy(pointer)

    def __enter__(self) -> SwitchCore:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def load(self, shared_object: Path) -> Instance:
        """A fresh instance of a compiled pipeline, which no frame reaches before :meth:`attach`."""
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        pointer = _library().ssw_program_load(
            self._handle(), os.fsencode(shared_object), error, _ERROR_BYTES
        )
        if not pointer:
            raise SwitchError(error.value.decode(errors="replace"))
        return Instance(self, pointer)

    def attach(self, program: Instance | None) -> None:
        """From now on frames run through ``program``."""
        _library().ssw_program_attach(self._handle(), program._pointer if program else None)

    def packet_out(self, frame: bytes) -> None:
        """Runs a frame through the attached program as if received at the CPU port."""
        status = _library().ssw_core_packet_out(self._handle(), frame, len(frame))
        if status == -errno.ENODEV:
            raise SwitchError("the switch has no CPU port: start it with --cpu-port")
        if status:
            raise SwitchError(f"a frame has at most {MAX_FRAME_BYTES} bytes, not {len(frame)}")

    def packet_in(self, timeout: float) -> bytes | None:
        """The next frame to the CPU port; None after ``timeout`` seconds.  Raises SwitchError once the
        switch stops."""
        buffer = ctypes.create_string_buffer(MAX_FRAME_BYTES)
        length = _library().ssw_core_packet_in(
            self._handle(), buffer, MAX_FRAME_BYTES, int(timeout * 1000)
        )
        if length == -errno.ESHUTDOWN:
            raise SwitchError("the switch has stopped")
        return buffer.raw[:length] if length >= 0 else None

    def port_stats(self, port: int) -> PortStats:
        out = _PortStats()
        if _library().ssw_core_port_stats(self._handle(), port, ctypes.byref(out)):
            raise SwitchError(f"port {port}: ports are 0 to {PORT_COUNT - 1}")
        values = {name: getattr(out, name) for name, _ in _PortStats._fields_}
        values["kind"] = PortKind(out.kind)
        values["up"] = bool(out.up)
        for side in ("fault_in", "fault_out"):
            counts = values[side]
            values[side] = FaultStats(counts.dropped, counts.duplicated, counts.reordered)
        return PortStats(**values)

    def stats(self) -> CoreStats:
        out = _CoreStats()
        _library().ssw_core_stats_read(self._handle(), ctypes.byref(out))
        return CoreStats(**{name: getattr(out, name) for name, _ in _CoreStats._fields_})
