"""Checksums, hashes, registers and counters of compiled programs, against independent computations."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from bmv2_json import ProgramBuilder, assign, const, expression, field, op, primitive, table
from scapy.layers.inet import IP, UDP

from netreduce.softswitch.pipeline import Count, Pipeline
from netreduce.softswitch.pipeline_abi import ProgramError, ProgramStatus

PROGRAM = Path(__file__).parent / "programs" / "computing.json"
REPORT = struct.Struct(">BHIHQHIHHB9sI")


@dataclass(frozen=True)
class Report:
    checksum_error: int
    crc16: int
    crc32: int
    csum16: int
    identity: int
    odd_crc16: int
    limited: int
    xor16: int
    packets: int
    small: int
    big: bytes
    length: int


@pytest.fixture
def pipeline() -> Iterator[Pipeline]:
    with Pipeline(PROGRAM) as running:
        yield running


def send(pipeline: Pipeline, frame: bytes) -> tuple[Report, bytes]:
    ((_, out),) = pipeline.process(1, frame)
    return Report(*REPORT.unpack(out[: REPORT.size])), out[REPORT.size :]


def datagram(payload: bytes = b"payload", **fields) -> bytes:
    return bytes(IP(src="10.1.2.3", dst="10.9.8.7", tos=3, **fields) / UDP(sport=5, dport=6) / payload)


@pytest.mark.parametrize("payload", [b"", b"x", b"xy", bytes(range(97))])
def test_checksums_with_and_without_payload(pipeline, payload):
    """Updated as scapy computes them, for even and odd lengths."""
    report, out = send(pipeline, datagram(payload, ttl=64, id=7))
    assert report.checksum_error == 0
    packet = IP(out)
    assert (packet.ttl, packet.id) == (61, 0x8007)
    expected = packet.copy()
    del expected.chksum, expected[UDP].chksum
    assert out == bytes(expected)


def test_wrong_checksum_is_reported(pipeline):
    frame = bytearray(datagram())
    frame[10] ^= 1
    report, _ = send(pipeline, bytes(frame))
    assert report.checksum_error == 1


def test_checksum_of_headers_with_options_is_not_touched(pipeline):
    frame = bytes(IP(src="10.1.2.3", dst="10.9.8.7", ihl=6, chksum=0x1234, proto=6)) + bytes(4)
    report, out = send(pipeline, frame)
    assert report.checksum_error == 0
    assert IP(out).chksum == 0x1234


def crc16_arc(data: bytes) -> int:
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xA001 if crc & 1 else 0)
    return crc


def test_hashes(pipeline):
    assert crc16_arc(b"123456789") == 0xBB3D  # the algorithm's published check value
    frame = datagram(ttl=77, id=0xBEAD)
    report, _ = send(pipeline, frame)
    source, destination, checksum = frame[12:16], frame[16:20], frame[10:12]
    assert report.crc16 == crc16_arc(source + destination + b"\x11")
    assert report.crc32 == zlib.crc32(source + destination + b"\xbe\xef" + checksum)
    total = sum(struct.unpack(">3H", source + b"\x4d\0"))
    assert report.csum16 == ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    assert report.identity == int.from_bytes(b"\x4d" + source + destination[:3], "big")
    words = struct.unpack(">5H", source + b"\x4d" + destination + b"\0")
    assert report.xor16 == words[0] ^ words[1] ^ words[2] ^ words[3] ^ words[4]
    assert report.limited == 1000 + zlib.crc32(b"\xbe\xad") % 10


def test_hash_over_fields_that_fill_no_bytes(pipeline):
    """3 + 13 + 4 + 130 + 3 bits, padded with zeros at the end."""
    header = IP(src="10.1.2.3", dst="10.9.8.7", proto=99, flags=5, frag=0x1234)
    x, y, z = 0b101, (1 << 130) - 3, 0x2AA
    odd = (x << 141 | y << 11 | z).to_bytes(18, "big")
    report, _ = send(pipeline, bytes(header) + odd)
    bits = ((((5 << 13 | 0x1234) << 4 | 4) << 130) | y) << 3 | x
    assert report.odd_crc16 == crc16_arc((bits << 7).to_bytes(20, "big"))


def test_registers_keep_their_width(pipeline):
    address = 0x0A010203
    expected_packets, expected_small, expected_big = 0, 0, 0
    for _ in range(5):
        report, _ = send(pipeline, datagram())
        assert report.packets == expected_packets
        assert report.small == expected_small
        assert report.big == expected_big.to_bytes(9, "big")
        expected_packets = (expected_packets + 0x7FFF) % (1 << 16)
        expected_small = (expected_small + 9) % 32
        expected_big = ((expected_big << 9) - address) % (1 << 72)
    assert pipeline.read_register("Forward.seen", 3) == expected_packets
    assert pipeline.read_register("Forward.small", 3) == expected_small
    assert pipeline.read_register("Forward.big", 3) == expected_big
    assert pipeline.read_register("Forward.big", 2) == 0
    pipeline.write_register("Forward.big", 3, (1 << 72) - 1)
    report, _ = send(pipeline, datagram())
    assert report.big == b"\xff" * 9


def test_accesses_out_of_bounds_do_nothing(pipeline):
    frame = bytearray(datagram())
    frame[1] = 16
    report, _ = send(pipeline, bytes(frame))
    assert (report.packets, report.small, report.big) == (0, 0, bytes(9))
    assert [pipeline.read_register("Forward.seen", i) for i in range(16)] == [0] * 16
    assert pipeline.counters("Forward.sizes") == [Count(0, 0)] * 16
    for index, status in ((16, ProgramStatus.NOT_FOUND), (1 << 63, ProgramStatus.NOT_FOUND)):
        with pytest.raises(ProgramError) as caught:
            pipeline.read_register("Forward.seen", index)
        assert caught.value.status == status
    with pytest.raises(ProgramError) as caught:
        pipeline.write_register("Forward.small", 0, 32)
    assert caught.value.status == ProgramStatus.INVALID


def test_counters_count_packets_and_ingress_bytes(pipeline):
    sizes = [len(datagram(bytes(n))) for n in (0, 10, 1000)]
    for n in (0, 10, 1000):
        send(pipeline, datagram(bytes(n)))
    assert pipeline.counters("Forward.sizes", 2, 3) == [Count(0, 0), Count(3, sum(sizes)), Count(0, 0)]
    pipeline.set_counter("Forward.sizes", 3, Count(1, 2))
    send(pipeline, datagram())
    assert pipeline.counters("Forward.sizes", 3, 1) == [Count(2, 2 + len(datagram()))]
    with pytest.raises(ProgramError):
        pipeline.counters("Forward.sizes", 10, 7)


def test_packet_length_follows_added_headers(pipeline):
    report, out = send(pipeline, datagram())
    assert report.length == len(datagram()) << 16 | len(datagram()) + REPORT.size
    assert len(out) == len(datagram())


def test_truncation(pipeline):
    ((_, out),) = pipeline.process(1, datagram(ttl=0))
    assert len(out) == 50


def test_saturating_arithmetic(pipeline):
    for ttl, identification in ((1, 0x7FFF), (3, 0x8000), (4, 0x8001), (255, 0xFFFF)):
        _, out = send(pipeline, datagram(ttl=ttl, id=identification))
        assert IP(out).ttl == max(ttl - 3, 0)
        assert IP(out).id == min(identification + 0x8000, 0xFFFF)


def test_exit_and_drop(pipeline):
    assert pipeline.process(1, b"too short for ipv4") == []


def test_timestamps_come_from_the_host():
    builder = ProgramBuilder().header("h", [("ingress", 48), ("egress", 48), ("waited", 32)]).parse("h")
    builder.main(assign(field("h", "ingress"), field("standard_metadata", "ingress_global_timestamp")))
    builder.action(
        "leave",
        [
            assign(field("h", "egress"), field("standard_metadata", "egress_global_timestamp")),
            assign(field("h", "waited"), field("standard_metadata", "deq_timedelta")),
        ],
    )
    builder.egress.append(table("tbl_leave", [], ["leave"], "leave", const=True))
    times = iter([0x1_0000_0001, 0x1_0000_0007])
    with Pipeline(builder.json(), now_us=lambda: next(times)) as pipeline:
        ((_, out),) = pipeline.process(1, b"\xff" * 16)
    assert out == bytes.fromhex("000100000001 000100000007 00000000")


@pytest.mark.parametrize("priority, leaves", [(0, True), (1, False)])
def test_priorities_without_a_queue_are_dropped(priority, leaves):
    """The target has one queue for each port unless it is started with more."""
    builder = ProgramBuilder().header("h", [("a", 8)]).parse("h")
    builder.main(assign(field("standard_metadata", "priority"), const(priority)))
    with Pipeline(builder.json()) as pipeline:
        assert bool(pipeline.process(1, b"a")) == leaves


def test_log_messages_and_assertions():
    builder = ProgramBuilder().header("h", [("a", 8)]).parse("h")
    message = {"type": "string", "value": "a is {} and {}"}
    values = {"type": "parameters_vector", "value": [field("h", "a"), const(7)]}
    condition = expression(op("b2d", op("==", field("h", "a"), const(1))))
    builder.main(primitive("log_msg", message, values), primitive("assert", condition, line=5))
    with Pipeline(builder.json()) as pipeline:
        assert pipeline.process(1, b"\x01") == [(1, b"\x01")]
        assert pipeline.log == [(2, "a is 1 and 7")]
        assert pipeline.process(1, b"\x02") == [(1, b"\x02")], "the switch goes on"
        assert pipeline.log[-1] == (0, "test.p4:5: assertion failed: assert")


def test_large_registers_take_no_memory_before_use():
    """4096 cells of 2048 bits, 64 times: 64 MiB that loading must not touch."""
    builder = ProgramBuilder().header("h", [("a", 16)]).parse("h").main()
    builder.sections["register_arrays"] = [
        {"name": f"r{i}", "id": i, "size": 4096, "bitwidth": 2048} for i in range(64)
    ]

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    with Pipeline(builder.json()) as first:  # whatever loading costs once
        first.process(1, b"ab")
    before = resident()
    with Pipeline(builder.json()) as pipeline:
        pipeline.process(1, b"ab")
        assert resident() - before < 4 << 20
        value = random.Random(1).getrandbits(2048)
        pipeline.write_register("r63", 4095, value)
        assert pipeline.read_register("r63", 4095) == value
        assert pipeline.read_register("r63", 4094) == 0
