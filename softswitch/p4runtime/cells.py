"""Indirect counters and registers (CounterEntry, RegisterEntry)."""

from __future__ import annotations

from collections.abc import Iterator

from ..instance import Instance
from ..pipeline_abi import ProgramError
from .errors import from_program, invalid_argument, out_of_range, unimplemented
from .protos import p4d, p4r
from .schema import ArrayInfo, Schema
from .values import decode, encode, pad

MODIFY = p4r.Update.MODIFY


class Cells:
    """The indexed arrays of one loaded program."""

    def __init__(self, schema: Schema, instance: Instance):
        self._schema = schema
        self._instance = instance

    # --- Counters -------------------------------------------------------------------------------

    def read_counters(self, wanted: p4r.CounterEntry) -> Iterator[p4r.CounterEntry]:
        if not wanted.counter_id:
            if wanted.HasField("index"):
                raise invalid_argument("a read of all counters (counter_id 0) cannot have an index")
            counters = list(self._schema.counters.values())
        else:
            counters = [self._schema.counter(wanted.counter_id)]
        for counter in counters:
            first, count = _range(counter, wanted)
            cells = self._call(counter, "counter_read", first, count)
            for index, (packets, byte_count) in enumerate(cells, first):
                reply = p4r.CounterEntry(counter_id=counter.id)
                reply.index.index = index
                reply.data.packet_count = packets
                reply.data.byte_count = byte_count
                yield reply

    def write_counter(self, update: int, entry: p4r.CounterEntry) -> None:
        if update != MODIFY:
            raise invalid_argument("a counter can only be modified")
        counter = self._schema.counter(entry.counter_id)
        first, count = _range(counter, entry)
        if not entry.HasField("data"):
            return
        if entry.data.packet_count < 0 or entry.data.byte_count < 0:
            raise invalid_argument(f"counter {counter.name}: a counter is not negative")
        for index in range(first, first + count):
            self._call(counter, "counter_write", index, entry.data.packet_count, entry.data.byte_count)

    # --- Registers ------------------------------------------------------------------------------

    def read_registers(self, wanted: p4r.RegisterEntry) -> Iterator[p4r.RegisterEntry]:
        if not wanted.register_id:
            if wanted.HasField("index"):
                raise invalid_argument("a read of all registers (register_id 0) cannot have an index")
            registers = [r for r in self._schema.registers.values() if r.width]
        else:
            registers = [self._register(wanted.register_id)]
        for register in registers:
            first, count = _range(register, wanted)
            for index in range(first, first + count):
                cell = self._call(register, "register_read", index, (register.width + 7) // 8)
                reply = p4r.RegisterEntry(register_id=register.id)
                reply.index.index = index
                reply.data.bitstring = encode(int.from_bytes(cell, "big"))
                yield reply

    def write_register(self, update: int, entry: p4r.RegisterEntry) -> None:
        if update != MODIFY:
            raise invalid_argument("a register can only be modified")
        register = self._register(entry.register_id)
        first, count = _range(register, entry)
        cell = self._cell(register, entry.data)
        for index in range(first, first + count):
            self._call(register, "register_write", index, cell)

    def _register(self, register_id: int) -> ArrayInfo:
        register = self._schema.register(register_id)
        if not register.width:
            raise unimplemented(f"register {register.name}: only registers of bit<W> can be read and written")
        return register

    @staticmethod
    def _cell(register: ArrayInfo, data: p4d.P4Data) -> bytes:
        if data.WhichOneof("data") != "bitstring":
            raise invalid_argument(f"register {register.name}: cells have {register.width} bits")
        return pad(decode(data.bitstring, register.width, f"register {register.name}"), register.width)

    def _call(self, array: ArrayInfo, operation: str, *arguments):
        try:
            return getattr(self._instance, operation)(array.json_id, *arguments)
        except ProgramError as error:
            raise from_program(error, array.name) from None


def _range(array: ArrayInfo, entry: p4r.CounterEntry | p4r.RegisterEntry) -> tuple[int, int]:
    """First cell and number of cells that an entry names; all without an index."""
    if not entry.HasField("index"):
        return 0, array.size
    index = entry.index.index
    if index < 0:
        raise invalid_argument(f"{array.name}: index {index} is negative")
    if index >= array.size:
        raise out_of_range(f"{array.name}: index {index}, but it has {array.size} cells")
    return index, 1
