"""Named calculations: hashes and checksums over fields, constants, headers and the payload."""

from __future__ import annotations

from .errors import UnsupportedConstruct
from .header_codegen import HeaderCodegen, byte_groups
from .layout import Layout, Place
from .program import Calculation, Const, Field, FieldRef, HeaderRef, HeaderType, Program
from .writer import Writer, identifier, limb_array, limbs_of, literal

ALGORITHMS = {
    "csum16": "csum16",
    "cksum16": "csum16",
    "crc16": "crc16",
    "crc16_custom": "crc16",
    "crc32": "crc32",
    "crc32_custom": "crc32",
    "crcCCITT": "crc_ccitt",
    "xor16": "xor16",
    "xor32": "xor32",
    "identity": "identity",
}
"""The ``_custom`` variants have these parameters until a control plane changes them; P4Runtime cannot."""


class Calculations:
    """One C function for each calculation: ``uint64_t name(const ssw_packet *, const headers *)``."""

    def __init__(self, program: Program, layout: Layout, headers: HeaderCodegen):
        self.program = program
        self.layout = layout
        self.headers = headers
        self._names = {name: identifier("hash", i, name) for i, name in enumerate(program.calculations)}

    def function(self, name: str) -> str:
        return self._names[name]

    def write(self, out: Writer) -> None:
        for calculation in self.program.calculations.values():
            self._calculation(out, calculation)

    def _calculation(self, out: Writer, calculation: Calculation) -> None:
        if calculation.algorithm not in ALGORITHMS:
            raise UnsupportedConstruct(
                f"hash algorithm {calculation.algorithm!r} (known: {', '.join(ALGORITHMS)})",
                calculation.source,
                f"calculation {calculation.name}",
            )
        size = sum((part.width + 7) // 8 + 1 for part in calculation.inputs)
        with_payload = any(part.kind == "payload" for part in calculation.inputs)
        name = self.function(calculation.name)
        head = f"static inline uint64_t {name}(const ssw_packet *pk, const headers *p)"
        with out.block(head):
            out.line("(void)pk; (void)p;")
            if with_payload:
                out.line("const uint32_t payload = (uint32_t)ssw_min(pk->left, pk->truncated);")
                out.line(f"uint8_t buffer[{size} + payload];")
            else:
                out.line(f"uint8_t buffer[{max(size, 1)}];")
            runs = self._runs(calculation)
            if all(width % 8 == 0 for _, _, width in runs):
                out.line("uint8_t *d = buffer;")
                for place, fields, width in runs:
                    self._aligned_run(out, place, fields, width)
                out.line("size_t length = (size_t)(d - buffer);")
            else:
                out.line(f"memset(buffer, 0, {max(size, 1)});")
                out.line("unsigned bit = 0;")
                for place, fields, width in runs:
                    self._bit_run(out, place, fields, width)
                out.line("size_t length = (bit + 7) / 8;")
            if with_payload:
                out.line("memcpy(buffer + length, pk->data, payload);")
                out.line("length += payload;")
            out.line(f"return ssw_hash_{ALGORITHMS[calculation.algorithm]}(buffer, length);")
        out.line()

    def _runs(self, calculation: Calculation) -> list[tuple[Place | None, list[tuple[str, Field]], int]]:
        """Inputs in runs that are present or absent together: (header, fields with their values, bits)."""
        runs: list[tuple[Place | None, list[tuple[str, Field]], int]] = []
        for part in calculation.inputs:
            match part.node:
                case Const(value):
                    place = None
                    if part.width > 64:
                        words = f"((const uint64_t[]){limb_array(value, limbs_of(part.width))})"
                        fields = [(words, Field("", part.width))]
                    else:
                        fields = [(literal(value & ((1 << part.width) - 1)), Field("", part.width))]
                case FieldRef() as ref:
                    place = self._condition(ref.header)
                    fields = [(self.layout.field(ref), self.program.field(ref))]
                case HeaderRef(name):
                    place = self._condition(name)
                    fields = self._all_fields(self.layout.place(name), self.program.headers[name].type)
                case _:
                    continue  # the payload, which comes last
            width = sum(item.width for _, item in fields)
            if runs and runs[-1][0] == place:
                runs[-1] = (place, runs[-1][1] + fields, runs[-1][2] + width)
            else:
                runs.append((place, fields, width))
        return runs

    def _condition(self, header: str) -> Place | None:
        return None if self.program.headers[header].metadata else self.layout.place(header)

    def _all_fields(self, place: Place, kind: HeaderType) -> list[tuple[str, Field]]:
        return [(self.layout.member(place, kind, item), item) for item in kind.fields]

    def _aligned_run(
        self, out: Writer, place: Place | None, fields: list[tuple[str, Field]], width: int
    ) -> None:
        with out.block(f"if ({place.valid})" if place else ""):
            offset = 0
            values = iter(fields)
            for group in byte_groups(tuple(item for _, item in fields)):
                members = [next(values) for _ in group]
                offset = self._group(out, members, offset)
            out.line(f"d += {width // 8};")

    def _group(self, out: Writer, members: list[tuple[str, Field]], offset: int) -> int:
        width = sum(item.width for _, item in members)
        if width <= 64:
            shift, terms = width, []
            for value, item in members:
                shift -= item.width
                terms.append(f"(uint64_t){value} << {shift}" if shift else f"(uint64_t){value}")
            out.line(f"ssw_store_be(d + {offset // 8}, {width // 8}, {' | '.join(terms)});")
            return offset + width
        for value, item in members:
            if item.width > 64 and offset % 8 == 0 and item.width % 8 == 0:
                out.line(f"ssw_wide_store(d + {offset // 8}, {value}, {item.width});")
            else:
                function = "ssw_wide_put_bits" if item.width > 64 else "ssw_put_bits"
                out.line(f"{function}(d, {offset}, {item.width}, {value});")
            offset += item.width
        return offset

    def _bit_run(self, out: Writer, place: Place | None, fields: list[tuple[str, Field]], width: int) -> None:
        with out.block(f"if ({place.valid})" if place else ""):
            offset = 0
            for value, item in fields:
                function = "ssw_wide_put_bits" if item.width > 64 else "ssw_put_bits"
                out.line(f"{function}(buffer, bit + {offset}, {item.width}, {value});")
                offset += item.width
            out.line(f"bit += {width};")
