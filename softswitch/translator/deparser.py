"""The deparser: valid headers in order, then the payload."""

from __future__ import annotations

from .header_codegen import HeaderCodegen
from .program import Program
from .writer import Writer


class DeparserCodegen:
    def __init__(self, program: Program, headers: HeaderCodegen):
        self.program = program
        self.headers = headers

    def headroom(self) -> int:
        """Bytes of all headers together."""
        return sum(self.program.headers[name].type.width // 8 for name in self.program.deparser_order)

    def write(self, out: Writer) -> None:
        """Writes ``deparse(pl, pk, p)``: the length of the frame in ``pl->output``, or -1 without memory."""
        with out.block("static int64_t deparse(ssw_pipeline *pl, ssw_packet *pk, headers *p)"):
            out.line("update_checksums(pl, pk, p);")
            out.line(f"if (!ssw_output_reserve(pl, {self.headroom()}u + pk->left)) return -1;")
            out.line("uint8_t *d = pl->output;")
            for name in self.program.deparser_order:
                header = self.program.headers[name]
                place, size = self.headers.layout.place(name), header.type.width // 8
                if size == 0:
                    continue
                with out.block(f"if ({place.valid})" if place.valid else ""):
                    out.line(self.headers.call("emit", place.narrow, place.wide, header.type, "d"))
                    out.line(f"d += {size};")
            out.line("memcpy(d, pk->data, pk->left);")
            out.line("d += pk->left;")
            out.line("const uint32_t length = (uint32_t)(d - pl->output);")
            out.line("return length < pk->truncated ? length : pk->truncated;")
        out.line()
