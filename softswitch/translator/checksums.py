"""Verification after the parser and update before the deparser."""

from __future__ import annotations

from .actions import ActionCodegen
from .calculations import Calculations
from .program import Checksum, Program
from .writer import Writer, comment


class ChecksumCodegen:
    def __init__(self, program: Program, actions: ActionCodegen, calculations: Calculations):
        self.program = program
        self.actions = actions
        self.calculations = calculations

    def write(self, out: Writer) -> None:
        parameters = "(ssw_pipeline *pl, ssw_packet *pk, headers *p)"
        with out.block(f"static inline void verify_checksums{parameters}"):
            out.line("(void)pl; (void)pk; (void)p;")
            for checksum in self.program.checksums:
                if checksum.verify:
                    self._verify(out, checksum)
        out.line()
        with out.block(f"static inline void update_checksums{parameters}"):
            out.line("(void)pl; (void)pk; (void)p;")
            for checksum in self.program.checksums:
                if checksum.update:
                    self._update(out, checksum)
        out.line()

    def _computed(self, checksum: Checksum) -> str:
        return f"{self.calculations.function(checksum.calculation)}(pk, p)"

    def _verify(self, out: Writer, checksum: Checksum) -> None:
        out.line(comment(f"{checksum.name} {checksum.source or ''}"))
        valid = self.actions.layout.place(checksum.target.header).valid or "1"
        with out.block(f"if ({valid})"):
            e = self.actions.expressions(out, (), f"checksum {checksum.name}", checksum.source)
            condition = e.boolean(checksum.condition) if checksum.condition else "true"
            with out.block(f"if ({condition})"):
                field = e.scalar(checksum.target)
                out.line(f"if ({self._computed(checksum)} != {field}) pk->checksum_error = true;")

    def _update(self, out: Writer, checksum: Checksum) -> None:
        out.line(comment(f"{checksum.name} {checksum.source or ''}"))
        with out.block():
            e = self.actions.expressions(out, (), f"checksum {checksum.name}", checksum.source)
            condition = e.boolean(checksum.condition) if checksum.condition else "true"
            with out.block(f"if ({condition})"):
                lvalue, item = e.location(checksum.target)
                if item.width > 64:
                    raise e.unsupported(f"checksum field of {item.width} bits")
                e.store_scalar(lvalue, item, self._computed(checksum))
