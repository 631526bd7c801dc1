"""A compiled P4 program in this process, without ports: for tests and benchmarks.

Tables, actions, counters and registers are named by their JSON ids; :class:`Program` has the names.
Key and action values are Python integers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_uint64
from dataclasses import dataclass
from pathlib import Path

from .compiler import CompiledProgram, compile_program
from .pipeline_abi import (
    DigestFunction,
    Host,
    LogFunction,
    NativeCounter,
    NativeEntry,
    NowFunction,
    ProgramError,
    Replica,
    TransmitFunction,
    load_ops,
)
from .translator import Program
from .translator.program import Action, Table


@dataclass(frozen=True)
class Count:
    packets: int
    bytes: int


def pack(values: Sequence[int], widths: Sequence[int]) -> bytes:
    """Big-endian, each field padded to whole bytes.

    Raises:
        OverflowError: a value is negative or wider than its field's bytes.
        ValueError: the numbers of values and fields differ.
    """
    return b"".join(v.to_bytes((w + 7) // 8, "big") for v, w in zip(values, widths, strict=True))


class Pipeline:
    """One instance of a program.  Not safe for concurrent use: callers serialise, as pipeline.h says.

    Args:
        source: the program, compiled or not.
        now_us: the clock that timestamps are read from, in microseconds.
        transmit: a C function for outgoing frames, instead of collecting them in ``transmitted``.
    """

    def __init__(
        self,
        source: CompiledProgram | Program | str | Path | bytes | dict,
        now_us: Callable[[], int] = lambda: 0,
        transmit: Callable | None = None,
    ):
        compiled = source if isinstance(source, CompiledProgram) else compile_program(source)
        self.program: Program = compiled.program
        self.ops = load_ops(compiled.library)
        self.transmitted: list[tuple[int, bytes]] = []
        self.digests: list[tuple[int, bytes]] = []
        self.log: list[tuple[int, str]] = []
        self._host = Host(
            None,
            transmit or TransmitFunction(self._collect),
            DigestFunction(lambda _, ident, data, n: self.digests.append((ident, ctypes.string_at(data, n)))),
            LogFunction(lambda _, level, text: self.log.append((level, text.decode(errors="replace")))),
            NowFunction(lambda _: now_us()),
        )
        self.instance = self.ops.create(ctypes.byref(self._host))
        if not self.instance:
            raise MemoryError(f"no memory for the tables and registers of {self.program.name}")

    def _collect(self, _: None, port: int, data, length: int) -> None:
        self.transmitted.append((port, ctypes.string_at(data, length)))

    def close(self) -> None:
        if self.instance:
            self.ops.destroy(self.instance)
            self.instance = None

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Runs one frame; returns the frames that leave, as (port, frame) in order."""
        self.transmitted.clear()
        self.ops.process(self.instance, port, frame, len(frame))
        return list(self.transmitted)

    def _check(self, status: int, what: str) -> None:
        if status != 0:
            raise ProgramError(what, status)

    # --- Tables --------------------------------------------------------------------------------

    def table(self, table: Table | str | int) -> Table:
        if isinstance(table, Table):
            return table
        return self.program.tables[table] if isinstance(table, int) else self.program.tables_by_name[table]

    def _action(self, table: Table, action: Action | str | int) -> Action:
        if isinstance(action, Action):
            return action
        if isinstance(action, int):
            return self.program.actions[action]
        return self.program.action_of(table, action)

    def insert(
        self,
        table: Table | str | int,
        values: Sequence[int],
        action: Action | str | int,
        data: Sequence[int] = (),
        masks: Sequence[int] | None = None,
        priority: int = 0,
    ) -> int:
        """Adds an entry and returns its handle; ``masks`` as in ``ssw_entry`` (by default exact).

        Raises:
            ProgramError
        """
        table = self.table(table)
        chosen = self._action(table, action)
        widths = [key.width for key in table.keys]
        masks = [(1 << w) - 1 for w in widths] if masks is None else masks
        packed = pack(data, [param.width for param in chosen.params])
        entry = NativeEntry(
            pack(values, widths), pack(masks, widths), priority, chosen.id, packed, len(packed)
        )
        handle = c_uint64()
        status = self.ops.table_insert(self.instance, table.id, ctypes.byref(entry), ctypes.byref(handle))
        self._check(status, f"insert into table {table.name}")
        return handle.value

    def modify(
        self, table: Table | str | int, handle: int, action: Action | str | int, data: Sequence[int] = ()
    ) -> None:
        table = self.table(table)
        chosen = self._action(table, action)
        packed = pack(data, [param.width for param in chosen.params])
        status = self.ops.table_modify(self.instance, table.id, handle, chosen.id, packed, len(packed))
        self._check(status, f"modify an entry of table {table.name}")

    def delete(self, table: Table | str | int, handle: int) -> None:
        table = self.table(table)
        self._check(self.ops.table_delete(self.instance, table.id, handle), f"delete from table {table.name}")

    def set_default(
        self, table: Table | str | int, action: Action | str | int, data: Sequence[int] = ()
    ) -> None:
        table = self.table(table)
        chosen = self._action(table, action)
        packed = pack(data, [param.width for param in chosen.params])
        status = self.ops.table_set_default(self.instance, table.id, chosen.id, packed, len(packed))
        self._check(status, f"set the default action of table {table.name}")

    def reset_default(self, table: Table | str | int) -> None:
        table = self.table(table)
        status = self.ops.table_reset_default(self.instance, table.id)
        self._check(status, f"reset the default action of table {table.name}")

    def table_counter(self, table: Table | str | int, handle: int) -> Count:
        """The direct counter of an entry, or of the default action (handle 0)."""
        table = self.table(table)
        counter = NativeCounter()
        status = self.ops.table_counter_read(self.instance, table.id, handle, ctypes.byref(counter))
        self._check(status, f"read a counter of table {table.name}")
        return Count(counter.packets, counter.bytes)

    def set_table_counter(self, table: Table | str | int, handle: int, count: Count) -> None:
        table = self.table(table)
        counter = NativeCounter(count.packets, count.bytes)
        status = self.ops.table_counter_write(self.instance, table.id, handle, ctypes.byref(counter))
        self._check(status, f"write a counter of table {table.name}")

    # --- Counters and registers ----------------------------------------------------------------

    def counters(self, counter: str | int, first: int = 0, count: int | None = None) -> list[Count]:
        """Cells of an indirect counter; by default all."""
        chosen = (
            self.program.counters[counter]
            if isinstance(counter, int)
            else self.program.counters_by_name[counter]
        )
        count = chosen.size - first if count is None else count
        cells = (NativeCounter * max(count, 1))()
        status = self.ops.counter_read(self.instance, chosen.id, first, count, cells)
        self._check(status, f"read counter {chosen.name}")
        return [Count(cells[i].packets, cells[i].bytes) for i in range(count)]

    def set_counter(self, counter: str | int, index: int, count: Count) -> None:
        chosen = (
            self.program.counters[counter]
            if isinstance(counter, int)
            else self.program.counters_by_name[counter]
        )
        value = NativeCounter(count.packets, count.bytes)
        status = self.ops.counter_write(self.instance, chosen.id, index, ctypes.byref(value))
        self._check(status, f"write counter {chosen.name}")

    def read_register(self, register: str | int, index: int) -> int:
        registers = self.program.registers if isinstance(register, int) else self.program.registers_by_name
        chosen = registers[register]
        size = (chosen.width + 7) // 8
        cell = ctypes.create_string_buffer(size)
        self._check(
            self.ops.register_read(self.instance, chosen.id, index, cell, size),
            f"read register {chosen.name}",
        )
        return int.from_bytes(cell.raw, "big")

    def write_register(self, register: str | int, index: int, value: int) -> None:
        registers = self.program.registers if isinstance(register, int) else self.program.registers_by_name
        chosen = registers[register]
        cell = pack([value], [chosen.width])
        status = self.ops.register_write(self.instance, chosen.id, index, cell, len(cell))
        self._check(status, f"write register {chosen.name}")

    # --- Replication ---------------------------------------------------------------------------

    def set_multicast(self, group: int, replicas: Sequence[tuple[int, int]]) -> None:
        """Members of a multicast group as (port, instance); none deletes it."""
        members = (Replica * max(len(replicas), 1))(*(Replica(*member) for member in replicas))
        self._check(
            self.ops.multicast_set(self.instance, group, members, len(replicas)),
            f"set multicast group {group}",
        )

    def set_clone_session(
        self, session: int, replicas: Sequence[tuple[int, int]], truncate_bytes: int = 0
    ) -> None:
        members = (Replica * max(len(replicas), 1))(*(Replica(*member) for member in replicas))
        status = self.ops.clone_session_set(self.instance, session, members, len(replicas), truncate_bytes)
        self._check(status, f"set clone session {session}")
