"""Renders the wire constants for P4 and C++ from :mod:`netreduce.p4.wire`.

``python -m netreduce.p4.generate`` (``make wire``) writes ``p4src/include/wire_constants.p4`` and
``host_agent/csrc/wire_constants.h``.
"""

from enum import IntEnum
from pathlib import Path

from netreduce.p4 import wire

REPOSITORY = Path(__file__).resolve().parent.parent
P4_FILE = REPOSITORY / "p4src/include/wire_constants.p4"
CPP_FILE = REPOSITORY / "host_agent/csrc/wire_constants.h"

NOTICE = "Generated from p4src/wire.py by `python -m netreduce.p4.generate` (make wire); do not edit."

ENUMS: tuple[type[IntEnum], ...] = (wire.Kind, wire.Op, wire.Cause)

P4_WIDTHS = {
    "UDP_PORT_FIRST": 16,
    "NR_MAGIC": 16,
    "NR_VERSION": 4,
}
"""Constants that P4 compares with header fields, and the fields' widths; the rest are ``int``."""

P4_CONST = '@noWarn("unused") const'
"""The protocol has constants that the program needs only later; the compiler need not mention it."""

P4_ENUM_WIDTHS = {wire.Kind: 4, wire.Op: 8, wire.Cause: 4}


def integer_constants() -> dict[str, int]:
    """The scalar constants of :mod:`netreduce.p4.wire`, in the order in which they are written there."""
    return {
        name: value
        for name, value in vars(wire).items()
        if name.isupper() and isinstance(value, int) and not isinstance(value, bool)
    }


def nr_offsets() -> dict[str, int]:
    """Byte offset of each NR field inside the header; of a field narrower than a byte, the byte's."""
    offsets, position = {}, 0
    for field, bits in wire.NR_LAYOUT:
        offsets[field] = position // 8
        position += bits
    return offsets


def _literal(name: str, value: int) -> str:
    return f"0x{value:04X}" if name.endswith("MAGIC") else str(value)


def render_p4() -> str:
    """The text of ``wire_constants.p4``: constants, the NR header type and one constant per enum member."""
    lines = [f"// {NOTICE}", "#ifndef NETREDUCE_WIRE_CONSTANTS_P4", "#define NETREDUCE_WIRE_CONSTANTS_P4", ""]
    for name, value in integer_constants().items():
        kind = f"bit<{P4_WIDTHS[name]}>" if name in P4_WIDTHS else "int"
        lines.append(f"{P4_CONST} {kind} {name} = {_literal(name, value)};")
    for enum in ENUMS:
        lines += ["", f"// {enum.__doc__.splitlines()[0]}"]
        kind, prefix = f"bit<{P4_ENUM_WIDTHS[enum]}>", enum.__name__.upper()
        lines += [f"{P4_CONST} {kind} {prefix}_{member.name} = {member.value};" for member in enum]
    lines += ["", "// The NR header, which follows UDP.", "header nr_t {"]
    lines += [f"    bit<{bits}> {field};" for field, bits in wire.NR_LAYOUT]
    lines += ["}", "", "#endif", ""]
    return "\n".join(lines)


def render_cpp() -> str:
    """The text of ``wire_constants.h``: constants, byte offsets of the NR fields and the enums."""
    lines = [f"// {NOTICE}", "#pragma once", "", "#include <cstdint>", "", "namespace netreduce::wire {", ""]
    for name, value in integer_constants().items():
        lines.append(f"inline constexpr uint32_t {name} = {_literal(name, value)};")
    counts = ", ".join(map(str, wire.BLOCK_COUNTS))
    lines.append(f"inline constexpr uint32_t BLOCK_COUNTS[] = {{{counts}}};")
    lines += ["", "// Byte offsets inside the NR header; version and kind are the halves of one byte."]
    for field, offset in nr_offsets().items():
        lines.append(f"inline constexpr uint32_t NR_{field.upper()}_OFFSET = {offset};")
    for enum in ENUMS:
        underlying = "uint32_t" if enum is wire.Cause else "uint8_t"
        lines += ["", f"// {enum.__doc__.splitlines()[0]}", f"enum class {enum.__name__} : {underlying} {{"]
        lines += [f"  {member.name} = {member.value}," for member in enum]
        lines.append("};")
    lines += ["", "}  // namespace netreduce::wire", ""]
    return "\n".join(lines)


def renderings() -> dict[Path, str]:
    """Every generated file with the text it must have."""
    return {P4_FILE: render_p4(), CPP_FILE: render_cpp()}


def main() -> None:
    for path, text in renderings().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"wrote {path.relative_to(REPOSITORY)}")


if __name__ == "__main__":
    main()
