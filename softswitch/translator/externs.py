"""Counters, registers and hash calculations."""

from __future__ import annotations

from .calculations import Calculations
from .expressions import Expressions
from .layout import storage_bits
from .program import CounterArray, Field, Node, Program, RegisterArray
from .writer import Writer, c_string, limbs_of


def cell_bytes(register: RegisterArray) -> int:
    return storage_bits(register.width) // 8 if register.width <= 64 else 8 * limbs_of(register.width)


class Externs:
    """Accesses out of an array's bounds do nothing, as on the target."""

    def __init__(self, program: Program, calculations: Calculations):
        self.program = program
        self.calculations = calculations
        self.counters = [c for c in program.counters.values() if c.direct_table is None]
        self.registers = list(program.registers.values())
        self._counter_index = {c.name: i for i, c in enumerate(self.counters)}
        self._register_index = {r.name: i for i, r in enumerate(self.registers)}

    def calculation(self, name: str) -> str:
        return self.calculations.function(name)

    def declare(self, out: Writer) -> None:
        """Writes the array descriptions that ``ssw_program_spec`` points to."""
        for name, arrays in (("counter_specs", self.counters), ("register_specs", self.registers)):
            with out.block(f"static const ssw_array_spec {name}[{len(arrays) + 1}] =", ";"):
                for array in arrays:
                    out.line(self._description(array))
                out.line("{0},")
        out.line()

    @staticmethod
    def _description(array: CounterArray | RegisterArray) -> str:
        bits, room = (array.width, cell_bytes(array)) if isinstance(array, RegisterArray) else (0, 16)
        return f"{{{array.id}u, {c_string(array.name)}, {array.size}u, {bits}, {room}}},"

    def count(self, e: Expressions, name: str, index: Node) -> None:
        counter = self._counter_index.get(name)
        if counter is None:
            raise e.unsupported(f"count on the direct counter {name}")
        at = e.hoist(e.saturated(index))
        size = self.counters[counter].size
        e.out.line(f"if ({at} < {size}u) ssw_count(&pl->counters[{counter}][{at}], pk->ingress_length);")

    def _cell(self, e: Expressions, register: RegisterArray, index: str, const: str) -> str:
        """An lvalue (narrow) or a limb pointer (wide) of a cell."""
        array = f"pl->registers[{self._register_index[register.name]}]"
        if register.width <= 64:
            return f"(({const}uint{storage_bits(register.width)}_t *){array})[{index}]"
        limbs = limbs_of(register.width)
        pointer = f"({const}uint64_t *){array} + {index} * {limbs}"
        if limbs % 8 == 0:
            pointer = f"__builtin_assume_aligned({pointer}, 64)"
        name = e.out.temporary()
        e.out.line(f"{const}uint64_t *const {name} = {pointer};")
        return name

    def register_read(self, e: Expressions, target: Node, name: str, index: Node) -> None:
        register = self.program.registers_by_name[name]
        at = e.hoist(e.saturated(index))
        with e.out.block(f"if ({at} < {register.size}u)"):
            cell = self._cell(e, register, at, "const ")
            value = f"(uint64_t){cell}" if register.width <= 64 else cell
            e.store_value(target, value, Field("", register.width))

    def register_write(self, e: Expressions, name: str, index: Node, value: Node) -> None:
        register = self.program.registers_by_name[name]
        at = e.hoist(e.saturated(index))
        with e.out.block(f"if ({at} < {register.size}u)"):
            cell = self._cell(e, register, at, "")
            e.store_at(cell, Field("", register.width), value)
