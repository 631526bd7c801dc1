"""Values on the wire (Bytestrings): any length is accepted if the number fits, the shortest is sent."""

from __future__ import annotations

from .errors import out_of_range


def decode(data: bytes, width: int, what: str) -> int:
    """The unsigned integer in ``data``.

    Raises:
        P4RuntimeError: OUT_OF_RANGE if it is empty or has more than ``width`` significant bits.
    """
    if not data:
        raise out_of_range(f"{what}: an empty byte string is not a value")
    value = int.from_bytes(data, "big")
    if value.bit_length() > width:
        raise out_of_range(f"{what}: {value:#x} does not fit in {width} bits")
    return value


def encode(value: int) -> bytes:
    """The canonical byte string: the shortest, at least one byte."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def pad(value: int, width: int) -> bytes:
    """The layout of ``csrc/pipeline.h``: whole bytes, zeros on the left."""
    return value.to_bytes((width + 7) // 8, "big")


def ones(width: int) -> int:
    return (1 << width) - 1
