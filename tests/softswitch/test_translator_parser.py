"""Parsers and deparsers of compiled programs."""

from __future__ import annotations

import ctypes
import mmap
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from bmv2_json import ProgramBuilder, const, field, op

from netreduce.softswitch.pipeline import Pipeline

PROGRAMS = Path(__file__).parent / "programs"

REPORT_BYTES = 16
BAD_VERSION, BAD_LENGTH, TOO_SHORT, OUT_OF_BOUNDS = 1, 2, 3, 4


@pytest.fixture(scope="module")
def parsing() -> Iterator[Pipeline]:
    with Pipeline(PROGRAMS / "parsing.json") as pipeline:
        yield pipeline


def start(version: int, kind: int, length: int = 0, a: int = 0, b: int = 0, c: int = 31, d: int = 0) -> bytes:
    bits = 0
    for value, width in ((version, 4), (kind, 4), (length, 16), (a, 3), (b, 13), (c, 5), (d, 67)):
        bits = bits << width | value
    return bits.to_bytes(14, "big")


def label(value: int, last: bool = False, ttl: int = 64) -> bytes:
    return (value << 12 | last << 8 | ttl).to_bytes(4, "big")


def wide(offset: int = 0, value: int = 0) -> bytes:
    return (0xABC << 140 | (offset & 0xFFF) << 128 | value).to_bytes(19, "big")


def report(pipeline: Pipeline, frame: bytes) -> tuple[dict[str, int], bytes]:
    """The fields of the report, and the frame behind it."""
    ((port, out),) = pipeline.process(1, frame)
    assert port == 1
    names = {"error": 4, "labels": 1, "kind": 1, "first": 2, "indexed": 2, "peeked": 4, "offset": 2}
    found, at = {}, 0
    for name, size in names.items():
        found[name] = int.from_bytes(out[at : at + size], "big")
        at += size
    return found, out[at:]


def test_headers_and_payload_come_back(parsing):
    rng = random.Random(1)
    frame = start(4, 9, rng.getrandbits(16), 5, 0x1550, 17, rng.getrandbits(67)) + rng.randbytes(50)
    found, rest = report(parsing, frame)
    assert rest == frame
    assert found["error"] == 0
    assert found["kind"] == 9


@pytest.mark.parametrize(
    "frame, error",
    [
        (start(5, 1) + label(1, last=True), BAD_VERSION),
        (start(6, 3) + b"\xff\0\0\0" + bytes(20), BAD_LENGTH),
        (start(6, 3) + label(1, last=True) + bytes(2), 0),
        (start(4, 1)[:-1], TOO_SHORT),
        (b"", TOO_SHORT),
        (start(4, 1), TOO_SHORT),
        (start(4, 1) + label(1) + label(2)[:3], TOO_SHORT),
        (start(4, 1) + label(1) * 5, OUT_OF_BOUNDS),
        (start(4, 1) + label(1) * 3 + label(1, last=True) + b"\xab\xc0", TOO_SHORT),
        (start(4, 1) + label(1) * 3 + label(1, last=True), TOO_SHORT),  # lookahead of 12 bits
        (start(4, 1) + label(1) * 3 + label(1, last=True) + b"\xab", TOO_SHORT),
        (start(4, 1) + label(1) * 3 + label(1, last=True) + b"\xab\xb0", 0),
        (start(6, 4, a=3) + bytes(2), TOO_SHORT),  # advance of three bytes
        (start(6, 4, a=3) + bytes(5), 0),
        (start(6, 3) + bytes(3), TOO_SHORT),
        (start(4, 5) + b"\0\0\x12\x34"[:3], TOO_SHORT),
    ],
)
def test_parser_errors(parsing, frame, error):
    found, _ = report(parsing, frame)
    assert found["error"] == error


@pytest.mark.parametrize("length, taken", [(99, False), (100, True), (150, True), (200, True), (201, False)])
def test_select_on_a_range(parsing, length, taken):
    found, rest = report(parsing, start(4, 2, length) + wide(offset=-400))
    assert found["offset"] == (-100 & 0xFFFF if taken else 0), "an arithmetic shift"
    assert rest[14:17] == bytes.fromhex("abce6b" if taken else "abce70"), "-405 or -400 in 12 bits"


def test_stack_extraction_and_indexing(parsing):
    labels = [label(0x11110 + i, last=i == 2, ttl=9) for i in range(3)]
    found, rest = report(parsing, start(4, 1, c=1) + b"".join(labels) + b"\0\0payload")
    assert found["labels"] == 3
    assert found["first"] == 0x1110
    assert found["indexed"] == 0x1111
    changed = [labels[0], label(0x11111, ttl=8), labels[2]]
    assert rest == start(4, 1, c=1) + b"".join(changed) + b"\0\0payload"


def test_push_and_pop(parsing):
    """push_front(1) moves all up and drops the last of a full stack, pop_front(2) moves them down."""
    labels = [label(0x10000 + i, last=i == 3) for i in range(4)]
    _, rest = report(parsing, start(4, 1, b=1) + b"".join(labels) + b"\0\0")
    assert rest[14:-2] == (0xFACE5 << 12).to_bytes(4, "big") + b"".join(labels[:3])
    _, rest = report(parsing, start(4, 1, b=2) + b"".join(labels) + b"\0\0")
    assert rest[14:-2] == b"".join(labels[2:])


def test_fields_that_cross_bytes_and_limbs(parsing):
    d = (1 << 67) - 2
    _, rest = report(parsing, start(4, 9, b=4, d=d))
    assert rest == start(4, 9, b=4, d=(d + 0x3_0000_0000_0000_0001) % (1 << 67))
    value = 0x0123456789ABCDEFFEDCBA9876543210
    _, rest = report(parsing, start(4, 2, 100, d=d) + wide(7, value))
    assert rest[14:] == wide(2, (value << 7) % (1 << 128) ^ d)


def test_invalid_header_is_not_emitted(parsing):
    _, rest = report(parsing, start(4, 9, b=8) + b"payload")
    assert rest == b"payload"


def test_nothing_is_read_past_the_frame(parsing):
    """Frames of every length end where memory ends: reading on would crash the process."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    assert libc.mprotect(address + page, page, 0) == 0
    process = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32)
    run = ctypes.cast(parsing.ops.process, process)
    rng = random.Random(3)
    shapes = [
        start(version, kind, 150, a=7)
        + middle
        + b"".join(label(0xABC00, last=i == 2) for i in range(3))
        + wide()
        for version in (4, 6)
        for kind in (1, 2, 3, 4, 5)
        for middle in (b"", b"\0\0\x12\x34", rng.randbytes(7))
    ]
    for shape in shapes:
        for length in range(len(shape) + 1):
            parsing.transmitted.clear()
            ctypes.memmove(address + page - length, shape, length)
            run(parsing.instance, 1, address + page - length, length)
            assert len(parsing.transmitted) == 1


def test_endless_parser_loop_times_out():
    builder = ProgramBuilder().header("h", [("error", 32)])
    builder.order = ["h"]
    extract = {"op": "extract", "parameters": [{"type": "regular", "value": "h"}]}
    builder.state("start", [extract], transitions=[(None, None, "again")])
    builder.state("again", [{"op": "advance", "parameters": [const(0)]}], transitions=[(None, None, "again")])
    set_error = {
        "op": "assign",
        "parameters": [field("h", "error"), field("standard_metadata", "parser_error")],
    }
    builder.main(set_error)
    with Pipeline(builder.json()) as pipeline:
        ((_, out),) = pipeline.process(1, b"\xff" * 9)
        assert out == (5).to_bytes(4, "big") + b"\xff" * 5  # ParserTimeout


@pytest.mark.parametrize("bits, error", [(8, 0), (12, 6), (1 << 40, 1), (1 << 63, 1)])
def test_advance_by_an_expression(bits, error):
    """Not whole bytes: ParserInvalidArgument; beyond the frame, however far: PacketTooShort."""
    builder = ProgramBuilder().header("h", [("amount", 64), ("error", 32)])
    builder.order = ["h"]
    extract = {"op": "extract", "parameters": [{"type": "regular", "value": "h"}]}
    advance = {"op": "advance", "parameters": [op("+", field("h", "amount"), const(0))]}
    builder.state("start", [extract, advance], transitions=[(None, None, None)])
    set_error = {
        "op": "assign",
        "parameters": [field("h", "error"), field("standard_metadata", "parser_error")],
    }
    builder.main(set_error)
    with Pipeline(builder.json()) as pipeline:
        ((_, out),) = pipeline.process(1, bits.to_bytes(8, "big") + bytes(4) + b"abc")
        assert out[8:12] == error.to_bytes(4, "big")
        assert out[12:] == (b"bc" if error == 0 else b"abc")
