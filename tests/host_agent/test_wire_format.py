"""The bytes of preludes and data messages: docs/protocol.md."""

from __future__ import annotations

import itertools
import struct

import local_sum
import numpy as np
import pytest

from netreduce.host_agent._datapath import Call, DType, IntegrityError, MismatchError, ReduceOp

MASK64 = (1 << 64) - 1


def call(array: np.ndarray, **changes: object) -> Call:
    options: dict = {"rank": 1, "world_size": 3, "lane_bits": 32} | changes
    return Call(array, options.pop("op", ReduceOp.SUM), **options)


def weights(lane_bits: int) -> list[list[int]]:
    """SplitMix64 from 0, made odd: three rows of 2048 (16-bit lanes), else one of 1024 or 512."""
    state, rows = 0, []
    for _ in range(3 if lane_bits == 16 else 1):
        row = []
        for _ in range(4096 * 8 // lane_bits):
            state = (state + 0x9E3779B97F4A7C15) & MASK64
            z = state
            z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK64
            z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK64
            row.append(((z ^ z >> 31) | 1) & ((1 << lane_bits) - 1))
        rows.append(row)
    return rows


def mixed(*parts: int) -> int:
    """The hash of docs/protocol.md."""
    h = 0
    for part in parts:
        h = (h + 0x9E3779B97F4A7C15 + part) & MASK64
        h = ((h ^ h >> 33) * 0xFF51AFD7ED558CCD) & MASK64
        h = ((h ^ h >> 33) * 0xC4CEB9FE1A85EC53) & MASK64
        h ^= h >> 33
    return h


def lanes(payload: bytes, lane_bits: int) -> list[int]:
    return np.frombuffer(payload, local_sum.LANE_TYPES[lane_bits]).tolist()


def test_prelude_fields() -> None:
    payload = call(np.array([1.0, -0.375, 0.0], np.float32)).pack_prelude(0)
    assert len(payload) == 256
    f, complement, participants, flags, reserved = struct.unpack_from("!QQQII", payload)
    assert f ^ complement == MASK64
    assert (participants, flags, reserved) == (1 << 1, 0, 0)
    # One message; its largest magnitude is 1.0, whose biased exponent is 127.
    bitmap = payload[32:64]
    assert [i for i in range(256) if bitmap[i // 8] & 0x80 >> i % 8] == [127]
    assert not any(payload[64:])


def test_prelude_of_many_messages_is_cut_wherever_a_packet_ends() -> None:
    """float64 bitmaps are as long as a block, so that with packets of one block each lies in two."""
    array = np.concatenate([np.full(126, 2.0**e) for e in range(-3, 4)])
    c = call(array, lane_bits=64, max_blocks=1)
    payloads = [c.pack_prelude(i) for i in range(c.prelude_packets)]
    assert len(payloads) == 8 and {len(p) for p in payloads} == {256}
    bitmaps = b"".join(p[32:] for p in payloads)
    bits = [i for i in range(len(bitmaps) * 8) if bitmaps[i // 8] & 0x80 >> i % 8]
    assert bits == [m * 2048 + 1023 + e for m, e in enumerate(range(-3, 4))]


def test_integers_send_no_exponents() -> None:
    payload = call(np.arange(100_000, dtype=np.int32)).pack_prelude(0)
    assert len(payload) == 256 and not any(payload[28:])


def test_prelude_fingerprint() -> None:
    c = call(np.zeros(7, np.int64), lane_bits=64, number=5, op=ReduceOp.AVG, max_blocks=4)
    payload = c.pack_prelude(0)
    int64, average = 7, 1
    assert struct.unpack_from("!Q", payload) == (mixed(5, int64, 7, average, 64, 4, 3, 0),)


def test_non_finite_flag() -> None:
    payload = call(np.array([1, np.inf], np.float32)).pack_prelude(0)
    assert struct.unpack_from("!I", payload, 24) == (1,)


@pytest.mark.parametrize(
    "other",
    [
        {"array": np.zeros(4, np.float32)},
        {"array": np.zeros(3, np.int32)},
        {"array": np.zeros(3, np.int64), "lane_bits": 64},
        {"op": ReduceOp.AVG},
        {"number": 2},
        {"array": np.zeros(6000, np.float32)},
    ],
    ids=["count", "dtype", "lane width", "op", "number", "length of the prelude"],
)
def test_both_sides_notice_a_different_call(other: dict) -> None:
    mine = call(np.zeros(3, np.float32), rank=0, world_size=2)
    theirs = call(other.pop("array", np.zeros(3, np.float32)), rank=1, world_size=2, **other)
    result = local_sum.or_bytes([c.pack_prelude(0)[:256] for c in (mine, theirs)])
    for c in (mine, theirs):
        with pytest.raises(MismatchError):
            c.unpack_prelude(0, result)


def test_a_missing_participant_is_an_error() -> None:
    ranks = [call(np.zeros(3, np.float32), rank=r) for r in range(3)]
    result = local_sum.or_bytes([c.pack_prelude(0) for c in ranks[:2]])
    with pytest.raises(IntegrityError, match="participants 0x3 instead of 0x7"):
        ranks[0].unpack_prelude(0, result)


@pytest.mark.parametrize("lane_bits", [16, 32, 64])
@pytest.mark.parametrize("max_blocks", [1, 16])
def test_data_message_fields(lane_bits: int, max_blocks: int) -> None:
    """Values, zero padding, count, and checksums computed here from the description alone."""
    modulus = 1 << lane_bits
    packet_lanes = max_blocks * 256 * 8 // lane_bits
    array = np.linspace(-1, 1, 3 * packet_lanes + 5).astype(np.float32)
    [c] = local_sum.begin([array], lane_bits=lane_bits, max_blocks=max_blocks)
    c.begin_data()
    packets = [lanes(c.pack_data(i), lane_bits) for i in range(c.data_packets)]
    assert [len(p) for p in packets] == [packet_lanes] * 3 + [256 * 8 // lane_bits]

    # E = 1 for a largest magnitude of 1.0, whose biased exponent is 127, and F = L - 1 for a single rank.
    float32 = total = 0
    seed = (1, float32, len(array), total, lane_bits, max_blocks, 1, MASK64, 0, 127)
    trailer = 4 if lane_bits == 16 else 2
    checksums = [mixed(*seed, 16 + c) for c in range(trailer - 1)]
    for p, packet in enumerate(packets):
        packet[0] = (packet[0] - (mixed(*seed, p) | 1)) % modulus
        for row, w in enumerate(weights(lane_bits)):
            covered = packet[: -(trailer - 1)] if p == 3 else packet
            checksums[row] += (2 * p + 1) * sum(a * b for a, b in zip(w, covered, strict=False))
    count = 1 | 1 << lane_bits // 2  # the exponent is this rank's own
    assert packets[3][-trailer:] == [count, *(s % modulus for s in checksums)]
    assert packets[3][5:-trailer] == [0] * (len(packets[3]) - 5 - trailer)
    sent = [lane for packet in packets for lane in packet][: len(array)]
    limit = (modulus >> 1) - 1
    expected = [min(limit, max(-limit, round(float(x) * 2.0 ** (lane_bits - 2)))) for x in array]
    assert sent == [q % modulus for q in expected]


@pytest.mark.parametrize("lane_bits", [16, 32, 64])
@pytest.mark.parametrize(
    ("fill", "fault"),
    [
        *itertools.product([0.0, 1.0, 2.0**100, None], ["missing", "twice", "count", "flipped bit"]),
        (None, "another packet"),  # all packets of a constant tensor are equal
    ],
)
def test_a_wrong_sum_never_passes(lane_bits: int, fill: float | None, fault: str) -> None:
    """Every packet of a message, for tensors that are as regular as real ones often are."""
    rng = np.random.default_rng(7)
    size = 4 * 4096 * 8 // lane_bits - 4
    for packet in range(4):
        arrays = [
            np.full(size, fill, np.float32)
            if fill is not None
            else rng.standard_normal(size).astype(np.float32)
            for _ in range(4)
        ]
        calls = local_sum.begin(arrays, lane_bits=lane_bits)
        for c in calls:
            c.begin_data()
        sent = [[c.pack_data(i) for c in calls] for i in range(4)]
        if fault == "missing":
            sent[packet].pop()
        elif fault == "twice":
            sent[packet].append(sent[packet][1])
        elif fault == "another packet":
            sent[packet][2] = sent[(packet + 1) % 4][2]
        elif fault == "count":
            sent[3].append(bytes(4096 - 4 * lane_bits // 8) + sent[3][0][-4 * lane_bits // 8 :])
        results = [local_sum.add_lanes(s, lane_bits) for s in sent]
        if fault == "flipped bit":
            at = int(rng.integers(4096))
            changed = bytearray(results[packet])
            changed[at] ^= 1 << int(rng.integers(8))
            results[packet] = bytes(changed)
        order = rng.permutation(4)
        for i in order[:-1]:
            calls[0].unpack_data(int(i), results[i])
        with pytest.raises(
            IntegrityError, match=r"message 0 of 1 \(k 0-3\) has (contributor count|checksum)"
        ):
            calls[0].unpack_data(int(order[-1]), results[order[-1]])


def test_repacking_gives_the_same_bytes_after_other_results_came() -> None:
    """A resent packet is made again from the tensor, part of which holds results by then."""
    arrays = [np.random.default_rng(r).standard_normal(4094).astype(np.float32) for r in range(2)]
    calls = local_sum.begin(arrays, lane_bits=32)
    for c in calls:
        c.begin_data()
    sent = [[c.pack_data(i) for c in calls] for i in range(4)]
    for i in (0, 2):
        for c in calls:
            c.unpack_data(i, local_sum.add_lanes(sent[i], 32))
    for i in (1, 3):
        assert [c.pack_data(i) for c in calls] == sent[i]


def test_bfloat16_is_taken_from_uint16() -> None:
    ranks = [np.array([0x3F80, 0xBF80], np.uint16) for _ in range(2)]  # 1, -1
    local_sum.reduce(ranks, lane_bits=32, dtype=DType.bfloat16)
    assert ranks[0].tolist() == [0x4000, 0xC000]
