"""What the switch compiles: its core, at first use, and the programs that it is given."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from .compiler import compile_program
from .native_cache import CSRC, build_shared_object
from .translator import Program

CORE_FLAGS = ("-O2", "-fvisibility=default")


@cache
def build_core() -> Path:
    """The shared object of ``csrc/core``, from the compile cache or freshly compiled.

    Raises what :func:`build_shared_object` raises, for example when there is no C compiler.
    """
    folder = CSRC / "core"
    return build_shared_object(sorted(folder.glob("*.c")), "core", CORE_FLAGS, [folder])


def build_pipeline(program: Program) -> Path:
    """The shared object of a P4 program.

    Raises what :func:`compile_program` raises.
    """
    return compile_program(program).library
