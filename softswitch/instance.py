"""A compiled P4 program inside the switch core."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_uint64
from typing import TYPE_CHECKING

from .core_library import SwitchError, library
from .pipeline_abi import NativeCounter, NativeEntry, ProgramError, Replica

if TYPE_CHECKING:
    from .core import SwitchCore


class Instance:
    """One instance of a compiled pipeline: its tables, counters, registers and replication groups.

    Tables, actions, counters and registers are named by their ids in the BMv2 JSON.  Keys and action
    data are laid out as ``csrc/pipeline.h`` says.  All methods raise :class:`ProgramError`.
    """

    def __init__(self, core: SwitchCore, pointer: int):
        self._core = core
        self._pointer: int | None = pointer
        self._ops = library().ssw_program_ops().contents

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
            library().ssw_program_unload(pointer)
