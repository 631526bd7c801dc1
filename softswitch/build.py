"""The compiled switch core, built at first use like every pipeline."""

from __future__ import annotations

from functools import cache
from pathlib import Path

CSRC = Path(__file__).parent / "csrc"
CORE_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-fPIC", "-pthread")


@cache
def build_core() -> Path:
    """The shared object of ``csrc/core``, from the compile cache or freshly compiled.

    Raises what the compile cache raises, for example when there is no C compiler.
    """
    try:
        from .compiler import build_shared_object
    except ImportError:
        import hashlib, subprocess
        h = hashlib.sha256()
        for f in sorted(CSRC.rglob("*.[ch]")):
            h.update(f.read_bytes())
        out = Path(f"/tmp/ssw-core-{h.hexdigest()[:16]}.so")
        if not out.exists():
            subprocess.run(["gcc", *CORE_FLAGS, "-shared", *map(str, sorted((CSRC / "core").glob("*.c"))), "-o", str(out), "-ldl"], check=True)
        return out

    return build_shared_object(sorted((CSRC / "core").glob("*.c")), flags=CORE_FLAGS)
