"""From a P4 program's BMv2 JSON to a shared object that implements ``csrc/pipeline.h``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .native_cache import CSRC, build_shared_object
from .translator import Program, load_program, translate

RUNTIME = CSRC / "runtime"


@dataclass(frozen=True)
class CompiledProgram:
    """``library`` exports the symbol ``ssw_pipeline_ops_v1``."""

    program: Program
    library: Path


def compile_program(source: str | Path | bytes | dict | Program, name: str = "") -> CompiledProgram:
    """Translates and compiles a program, or takes it from the cache.

    Args:
        source: a path of BMv2 JSON, its bytes, its decoded object, or a loaded program.

    Raises:
        UnsupportedConstruct, MalformedProgram: before anything is compiled.
        CompilerNotFound, CompilationFailed, OSError: see :func:`build_shared_object`.
    """
    program = source if isinstance(source, Program) else load_program(source, name)
    text = translate(program)
    sources = [text, *sorted(RUNTIME.glob("*.c"))]
    stem = "".join(c if c.isalnum() else "_" for c in program.name)[:40] or "program"
    return CompiledProgram(program, build_shared_object(sources, stem))
