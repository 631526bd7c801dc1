"""Writes indented C."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager


class Writer:
    """Lines of C with the current indentation and fresh names for temporaries."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 0
        self._temporaries = 0

    def line(self, text: str = "") -> None:
        self.lines.append("  " * self._depth + text if text else "")

    def temporary(self) -> str:
        self._temporaries += 1
        return f"t{self._temporaries}"

    @contextmanager
    def block(self, head: str = "", tail: str = "") -> Iterator[None]:
        """``head { … } tail``"""
        self.line(f"{head} {{" if head else "{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}" + tail)

    @contextmanager
    def label_block(self, label: str) -> Iterator[None]:
        """A goto target whose temporaries are in a scope of their own."""
        # A table may have next nodes that none of its actions leads to.
        self.lines.append(f"{label}: __attribute__((unused)); {{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def identifier(prefix: str, number: int, name: str) -> str:
    """A C identifier that is unique by its number and readable by its name."""
    return f"{prefix}{number}_{re.sub(r'[^A-Za-z0-9]+', '_', name).strip('_')}"


def literal(value: int) -> str:
    """A 64-bit constant: the value modulo 2^64."""
    value &= (1 << 64) - 1
    return f"UINT64_C({value})" if value < 1 << 16 else f"UINT64_C({value:#x})"


def limbs_of(width: int) -> int:
    return (width + 63) // 64


def limb_array(value: int, limbs: int) -> str:
    """The initialiser of a limb array: the value modulo 2^(64 limbs)."""
    return "{" + ", ".join(literal(value >> (64 * i)) for i in range(limbs)) + "}"


def c_string(text: str) -> str:
    escaped = "".join(
        c if 32 <= ord(c) < 127 and c not in '"\\?' else "".join(f"\\{b:03o}" for b in c.encode())
        for c in text
    )
    return f'"{escaped}"'


def comment(text: str) -> str:
    """A comment line that the text cannot end early."""
    return "/* " + " ".join(text.replace("*/", "* /").replace("/*", "/ *").split()) + " */"
