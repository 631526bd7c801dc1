"""Results that a faulty switch could return, payload by payload: none may pass as a sum.

``test_wire_format.py`` damages single packets of a message; here whole results are taken from elsewhere, and
preludes, which no checksum covers, are damaged.  ``test_faulty_switch.py`` does the same with packets.
"""

from __future__ import annotations

from collections.abc import Sequence

import local_sum
import numpy as np
import pytest

from netreduce.host_agent._datapath import Call, DatapathError, IntegrityError, ReduceOp

RANKS = 3


def arrays(lane_bits: int, messages: int, kind: str) -> list[np.ndarray]:
    """One per rank.  ``regular``: what real tensors are like, whose lanes have many zero bits."""
    elements = messages * (4 * 4096 * 8 // lane_bits - (4 if lane_bits == 16 else 2))
    rng = np.random.default_rng(3)
    if kind == "integers":
        dtype = np.int64 if lane_bits == 64 else np.int32
        return [rng.integers(-9, 9, elements).astype(dtype) for _ in range(RANKS)]
    if kind == "regular":
        return [rng.integers(0, 2, elements).astype(np.float32) for _ in range(RANKS)]
    return [rng.standard_normal(elements).astype(np.float32) for _ in range(RANKS)]


def begin(inputs: Sequence[np.ndarray], lane_bits: int, number: int) -> list[Call]:
    calls = [
        Call(a.copy(), ReduceOp.SUM, rank=r, world_size=RANKS, lane_bits=lane_bits, number=number)
        for r, a in enumerate(inputs)
    ]
    for i in range(calls[0].prelude_packets):
        result = local_sum.or_bytes([c.pack_prelude(i) for c in calls])
        for c in calls:
            c.unpack_prelude(i, result)
    for c in calls:
        c.begin_data()
    return calls


def data_results(calls: Sequence[Call], lane_bits: int) -> list[bytes]:
    return [
        local_sum.add_lanes([c.pack_data(i) for c in calls], lane_bits) for i in range(calls[0].data_packets)
    ]


KINDS = [
    *((bits, kind) for bits in (16, 32, 64) for kind in ("regular", "random")),
    (32, "integers"),
    (64, "integers"),
]


@pytest.mark.parametrize(("lane_bits", "kind"), KINDS)
@pytest.mark.parametrize("swapped", ["messages", "packets between messages", "packets within a message"])
def test_results_of_other_slots_never_pass(lane_bits: int, kind: str, swapped: str) -> None:
    """A switch that mixes its slots up returns sums that are right, but of something else."""
    calls = begin(arrays(lane_bits, 2, kind), lane_bits, number=1)
    results = data_results(calls, lane_bits)
    if swapped == "messages":
        results = results[4:] + results[:4]
    elif swapped == "packets between messages":
        results[1], results[5] = results[5], results[1]
    else:
        results[1], results[2] = results[2], results[1]
    with pytest.raises(IntegrityError):
        for i, result in enumerate(results):
            calls[0].unpack_data(i, result)


@pytest.mark.parametrize(("lane_bits", "kind"), KINDS)
def test_results_of_an_earlier_call_never_pass(lane_bits: int, kind: str) -> None:
    """What a slot that was never taken over would return."""
    inputs = arrays(lane_bits, 1, kind)
    old = data_results(begin(inputs, lane_bits, number=1), lane_bits)
    calls = begin([a + a for a in inputs], lane_bits, number=2)
    with pytest.raises(IntegrityError):
        for i, result in enumerate(old):
            calls[0].unpack_data(i, result)


def reduce_with(inputs: Sequence[np.ndarray], lane_bits: int, damage: dict[int, int]) -> list[np.ndarray]:
    """Reduces, flipping bit ``damage[rank]`` of the prelude result that the rank sees.

    Returns the ranks' results.

    Raises:
        DatapathError: some rank has found out.
    """
    outputs = [a.copy() for a in inputs]
    calls = [
        Call(a, ReduceOp.SUM, rank=r, world_size=RANKS, lane_bits=lane_bits) for r, a in enumerate(outputs)
    ]
    result = local_sum.or_bytes([c.pack_prelude(0) for c in calls])
    for rank, c in enumerate(calls):
        seen = bytearray(result)
        if rank in damage:
            seen[damage[rank] // 8] ^= 0x80 >> damage[rank] % 8
        c.unpack_prelude(0, bytes(seen))
    if not any(c.all_finite for c in calls):
        return outputs  # Gloo's turn: no harm is done
    if not all(c.all_finite for c in calls):
        raise IntegrityError("ranks without a partner: a timeout")
    for c in calls:
        c.begin_data()
    for i, result in enumerate(data_results(calls, lane_bits)):
        for c in calls:
            c.unpack_data(i, result)
    return outputs


@pytest.mark.parametrize("lane_bits", [16, 32, 64])
@pytest.mark.parametrize("seen_by", [[0], [2], [0, 1, 2]], ids=["by rank 0", "by rank 2", "by all"])
def test_a_flipped_bit_in_a_prelude_never_changes_a_sum(lane_bits: int, seen_by: list[int]) -> None:
    """Every bit of the header and of the exponents of one message."""
    rng = np.random.default_rng(5)
    # Rank 0 has the largest element, so that damage to its exponent is not always its own.
    inputs = [rng.standard_normal(50).astype(np.float32) * 2.0 ** (8 - 4 * r) for r in range(RANKS)]
    right = reduce_with(inputs, lane_bits, {})[0]
    harmless = 0
    for bit in range(8 * (32 + 32)):
        try:
            results = reduce_with(inputs, lane_bits, dict.fromkeys(seen_by, bit))
        except DatapathError:
            continue
        harmless += 1
        for rank, result in enumerate(results):
            unchanged = np.array_equal(result, inputs[rank])  # not reduced: every rank said "not finite"
            assert np.array_equal(result, right) or unchanged, f"bit {bit}: rank {rank} has a wrong sum"
    assert harmless < 8 * 64 / 2, "most damage should not even pass"


@pytest.mark.parametrize("lane_bits", [16, 32, 64])
def test_a_prelude_that_hides_a_non_finite_element_is_an_error(lane_bits: int) -> None:
    inputs = [np.array([1.0, np.nan if r == 1 else 2.0], np.float32) for r in range(RANKS)]
    not_finite = 24 * 8 + 31
    with pytest.raises(DatapathError):
        reduce_with(inputs, lane_bits, dict.fromkeys(range(RANKS), not_finite))
