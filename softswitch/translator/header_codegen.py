"""Moving headers between frames and the packet header vector."""

from __future__ import annotations

from .layout import Layout, storage_bits
from .program import Field, HeaderType
from .writer import Writer


class HeaderCodegen:
    """One pair of C functions for each header type: ``extract_<type>`` and ``emit_<type>``."""

    def __init__(self, layout: Layout):
        self.layout = layout

    def declare(self, out: Writer) -> None:
        kinds = {}
        for header in self.layout.program.headers.values():
            if not header.metadata:
                kinds[header.type.name] = header.type
        for kind in kinds.values():
            self._extract(out, kind)
            self._emit(out, kind)

    def call(self, function: str, narrow: str, wide: str, kind: HeaderType, data: str) -> str:
        """``extract`` or ``emit`` of a header at the lvalues of its narrow and wide part."""
        arguments = [f"&{narrow}"] if self.layout.has_narrow(kind) else []
        if self.layout.has_wide(kind):
            arguments.append(f"&{wide}")
        return f"{function}_{self.layout.type_name(kind)}({', '.join([*arguments, data])});"

    def _signature(self, kind: HeaderType, const: str, data: str) -> str:
        name = self.layout.type_name(kind)
        parameters = [f"{const}struct {name} *n"] if self.layout.has_narrow(kind) else []
        if self.layout.has_wide(kind):
            parameters.append(f"{const}struct {name}_wide *w")
        return ", ".join([*parameters, data])

    def _member(self, kind: HeaderType, item: Field) -> str:
        name = self.layout.field_name(kind, item)
        return f"w->{name}" if item.width > 64 else f"n->{name}"

    def _extract(self, out: Writer, kind: HeaderType) -> None:
        name, parameters = self.layout.type_name(kind), self._signature(kind, "", "const uint8_t *d")
        with out.block(f"static inline void extract_{name}({parameters})"):
            out.line("(void)d;")
            offset = 0
            for item in kind.fields:
                member = self._member(kind, item)
                if item.width > 64 and offset % 8 == 0 and item.width % 8 == 0:
                    out.line(f"ssw_wide_load({member}, d + {offset // 8}, {item.width});")
                elif item.width > 64:
                    out.line(f"ssw_wide_get_bits({member}, d, {offset}, {item.width});")
                else:
                    cast = f"(uint{storage_bits(item.width)}_t)"
                    out.line(f"{member} = {cast}ssw_get_bits(d, {offset}, {item.width});")
                offset += item.width
        out.line()

    def _emit(self, out: Writer, kind: HeaderType) -> None:
        name, parameters = self.layout.type_name(kind), self._signature(kind, "const ", "uint8_t *d")
        with out.block(f"static inline void emit_{name}({parameters})"):
            out.line("(void)d;")
            offset = 0
            for group in byte_groups(kind.fields):
                offset = self._emit_group(out, kind, group, offset)
        out.line()

    def _emit_group(self, out: Writer, kind: HeaderType, group: list[Field], offset: int) -> int:
        width = sum(item.width for item in group)
        if width <= 64:
            shift, terms = width, []
            for item in group:
                shift -= item.width
                term = f"(uint64_t){self._member(kind, item)}"
                terms.append(f"{term} << {shift}" if shift else term)
            out.line(f"ssw_store_be(d + {offset // 8}, {width // 8}, {' | '.join(terms)});")
            return offset + width
        for item in group:
            member = self._member(kind, item)
            if item.width > 64 and offset % 8 == 0 and item.width % 8 == 0:
                out.line(f"ssw_wide_store(d + {offset // 8}, {member}, {item.width});")
            elif item.width > 64:
                out.line(f"ssw_wide_put_bits(d, {offset}, {item.width}, {member});")
            else:
                out.line(f"ssw_put_bits(d, {offset}, {item.width}, {member});")
            offset += item.width
        return offset


def byte_groups(fields: tuple[Field, ...]) -> list[list[Field]]:
    """The fields in runs that start and end on byte boundaries, as short as possible."""
    groups, current, bits = [], [], 0
    for item in fields:
        current.append(item)
        bits += item.width
        if bits % 8 == 0:
            groups.append(current)
            current = []
    if current:
        groups.append(current)
    return groups
