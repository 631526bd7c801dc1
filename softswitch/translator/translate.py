"""A program as one C file over the runtime in ``softswitch/csrc/runtime``."""

from __future__ import annotations

from .actions import ActionCodegen
from .calculations import Calculations
from .checksums import ChecksumCodegen
from .control_flow import ControlCodegen
from .deparser import DeparserCodegen
from .errors import MalformedProgram
from .expressions import ConstantPool
from .externs import Externs
from .header_codegen import HeaderCodegen
from .layout import Layout
from .parser_codegen import ParserCodegen
from .program import Program
from .tables import TableCodegen
from .traffic_manager import TrafficManagerCodegen
from .writer import Writer, comment


def translate(program: Program) -> str:
    """The C source of a pipeline.

    Raises:
        UnsupportedConstruct: naming the construct and where the P4 program uses it.
        MalformedProgram: parts of the program do not belong together.
    """
    try:
        return _translate(program)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as error:
        # References are followed only here: to names, ids and values that the compiler would never write.
        raise MalformedProgram(
            f"{program.name}: not a BMv2 JSON program: {type(error).__name__}: {error}"
        ) from error


def _translate(program: Program) -> str:
    layout = Layout(program)
    pool = ConstantPool()
    headers = HeaderCodegen(layout)
    calculations = Calculations(program, layout, headers)
    externs = Externs(program, calculations)
    actions = ActionCodegen(program, layout, pool, externs)
    tables = TableCodegen(program, actions)
    deparser = DeparserCodegen(program, headers)
    control = ControlCodegen(actions, tables)

    body = Writer()  # everything that may add constants
    calculations.write(body)
    actions.write(body)
    ParserCodegen(program, headers, actions).write(body)
    ChecksumCodegen(program, actions, calculations).write(body)
    deparser.write(body)
    control.write(body, program.ingress)
    control.write(body, program.egress)
    TrafficManagerCodegen(program, layout).write(body)

    out = Writer()
    out.line(comment(f"Translated from {program.name}; do not edit."))
    out.line("#include <stdlib.h>")
    out.line('#include "runtime.h"')
    out.line()
    layout.declare(out)
    pool.declare(out)
    headers.declare(out)
    tables.declare(out)
    externs.declare(out)
    out.lines.extend(body.lines)
    out.line()
    with out.block("const ssw_program_spec ssw_program =", ";"):
        out.line(f".table_count = {len(tables.tables)}, .tables = table_specs,")
        out.line(f".counter_count = {len(externs.counters)}, .counters = counter_specs,")
        out.line(f".register_count = {len(externs.registers)}, .registers = register_specs,")
        out.line(f".headers_size = sizeof(headers), .headroom = {deparser.headroom()},")
    return out.text()
