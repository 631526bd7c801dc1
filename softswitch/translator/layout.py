"""Where header fields live in memory: the packet header vector of a program.

Fields of up to 64 bits are unsigned integers of the smallest sufficient type; wider ones are limb
arrays.  The vector has three parts:

* narrow: validity, stack positions, narrow metadata and narrow header fields, cleared for every packet;
* wide metadata, cleared for every packet;
* wide header fields, never cleared: a program reads them only after extracting or assigning them, and
  clearing kilobytes per packet would cost more than most programs do.  (The target architecture leaves
  the fields of invalid headers undefined as well.)

Elements of a header stack are consecutive, followed by one that is never valid: an index out of range
reads and writes that one.
"""

from __future__ import annotations

from dataclasses import dataclass

from .program import Field, FieldRef, Header, HeaderType, Program
from .writer import Writer, identifier, limbs_of


def storage_bits(width: int) -> int:
    """Bits of the integer type that holds a narrow field."""
    return next(bits for bits in (8, 16, 32, 64) if width <= bits)


@dataclass(frozen=True)
class Place:
    """A header instance in memory: the C structs of its narrow and wide fields and its validity."""

    narrow: str
    wide: str
    valid: str
    """Empty for metadata, which is always valid."""


class Layout:
    def __init__(self, program: Program):
        self.program = program
        self._field_names: dict[tuple[str, str], str] = {}
        self._type_names: dict[str, str] = {}
        self._places: dict[str, Place] = {}
        self._stack_base: dict[str, int] = {}
        self._stack_names: dict[str, str] = {}
        self._types = list({h.type.name: h.type for h in program.headers.values()}.values())
        for number, kind in enumerate(self._types):
            self._type_names[kind.name] = identifier("ht", number, kind.name)
            for index, item in enumerate(kind.fields):
                self._field_names[kind.name, item.name] = identifier("f", index, item.name)
        self._place_headers()

    def _place_headers(self) -> None:
        in_stack = {name for stack in self.program.stacks.values() for name in stack.headers}
        slot = 0
        for number, header in enumerate(self.program.headers.values()):
            if header.name in in_stack:
                continue
            name = identifier("h", number, header.name)
            valid = "" if header.metadata else f"p->valid[{slot}]"
            slot += not header.metadata
            group = "wide_metadata_" if header.metadata else "wide_"
            self._places[header.name] = Place(f"p->{name}", f"p->{group}{name}", valid)
        for number, stack in enumerate(self.program.stacks.values()):
            name = identifier("s", number, stack.name)
            self._stack_names[stack.name] = name
            self._stack_base[stack.name] = slot
            for index, header_name in enumerate(stack.headers):
                place = self.stack_element(stack.name, str(index))
                self._places[header_name] = place
            slot += len(stack.headers) + 1
        self.valid_count = slot

    # --- Access --------------------------------------------------------------------------------

    def place(self, header: str) -> Place:
        return self._places[header]

    def stack_element(self, stack: str, index: str) -> Place:
        name = self._stack_names[stack]
        base = self._stack_base[stack]
        return Place(f"p->{name}[{index}]", f"p->wide_{name}[{index}]", f"p->valid[{base} + ({index})]")

    def stack_next(self, stack: str) -> str:
        """The number of elements that were pushed: an lvalue."""
        return f"p->next_{self._stack_names[stack]}"

    def stack_valid_base(self, stack: str) -> int:
        return self._stack_base[stack]

    def stack_arrays(self, stack: str) -> tuple[str, str]:
        """Narrow and wide arrays of a stack; the latter empty when there are no wide fields."""
        name = self._stack_names[stack]
        kind = self.program.stacks[stack].type
        return (
            f"p->{name}" if self.has_narrow(kind) else "",
            f"p->wide_{name}" if self.has_wide(kind) else "",
        )

    def member(self, place: Place, kind: HeaderType, item: Field) -> str:
        """The lvalue of a field: an integer or a limb array."""
        struct = place.wide if item.width > 64 else place.narrow
        return f"{struct}.{self._field_names[kind.name, item.name]}"

    def field(self, ref: FieldRef) -> str:
        place = self._places[ref.header]
        if ref.field == "$valid$":
            return place.valid or "1"
        kind = self.program.headers[ref.header].type
        return self.member(place, kind, kind.by_name[ref.field])

    def field_name(self, kind: HeaderType, item: Field) -> str:
        return self._field_names[kind.name, item.name]

    def type_name(self, kind: HeaderType) -> str:
        return self._type_names[kind.name]

    @staticmethod
    def has_wide(kind: HeaderType) -> bool:
        return any(item.width > 64 for item in kind.fields)

    @staticmethod
    def has_narrow(kind: HeaderType) -> bool:
        return any(item.width <= 64 for item in kind.fields)

    # --- Declarations --------------------------------------------------------------------------

    def declare(self, out: Writer) -> None:
        """Writes the header structs and ``struct headers``."""
        for kind in self._types:
            self._declare_type(out, kind)
        headers = self.program.headers.values()
        in_stack = {name for stack in self.program.stacks.values() for name in stack.headers}
        single = [h for h in headers if h.name not in in_stack]
        with out.block("typedef struct headers", " headers;"):
            out.line(f"uint8_t valid[{max(self.valid_count, 1)}];")
            for stack in self.program.stacks:
                out.line(f"uint16_t {self.stack_next(stack).removeprefix('p->')};")
            for metadata in (True, False):
                out.line(f"_Alignas(8) char {'narrow_metadata' if metadata else 'narrow_headers'}[0];")
                for header in single:
                    if header.metadata == metadata and self.has_narrow(header.type):
                        self._declare_header(out, header, wide=False)
            for stack in self.program.stacks.values():
                narrow, _ = self.stack_arrays(stack.name)
                if narrow:
                    count = len(stack.headers) + 1
                    out.line(f"struct {self.type_name(stack.type)} {narrow.removeprefix('p->')}[{count}];")
            out.line("_Alignas(64) char wide_metadata[0];")
            for header in single:
                if header.metadata and self.has_wide(header.type):
                    self._declare_header(out, header, wide=True)
            out.line("_Alignas(64) char wide_headers[0];")
            for header in single:
                if not header.metadata and self.has_wide(header.type):
                    self._declare_header(out, header, wide=True)
            for stack in self.program.stacks.values():
                _, wide = self.stack_arrays(stack.name)
                if wide:
                    count = len(stack.headers) + 1
                    out.line(f"struct {self.type_name(stack.type)}_wide {wide.removeprefix('p->')}[{count}];")
        out.line()
        out.line("#define NARROW_SIZE offsetof(headers, wide_metadata)")
        out.line("#define CLEARED_SIZE offsetof(headers, wide_headers)")
        out.line()

    def _declare_type(self, out: Writer, kind: HeaderType) -> None:
        name = self.type_name(kind)
        if self.has_narrow(kind):
            with out.block(f"struct {name}", ";"):
                for item in kind.fields:
                    if item.width <= 64:
                        field_name = self._field_names[kind.name, item.name]
                        out.line(f"uint{storage_bits(item.width)}_t {field_name};")
        if self.has_wide(kind):
            with out.block(f"struct {name}_wide", ";"):
                for item in kind.fields:
                    if item.width > 64:
                        align = "_Alignas(64) " if item.width >= 512 else ""
                        field_name = self._field_names[kind.name, item.name]
                        out.line(f"{align}uint64_t {field_name}[{limbs_of(item.width)}];")

    def _declare_header(self, out: Writer, header: Header, wide: bool) -> None:
        place = self._places[header.name]
        suffix, lvalue = ("_wide", place.wide) if wide else ("", place.narrow)
        out.line(f"struct {self.type_name(header.type)}{suffix} {lvalue.removeprefix('p->')};")
