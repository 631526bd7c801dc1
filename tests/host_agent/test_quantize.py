"""Encoding and decoding against exact arithmetic: docs/numerics.md, statement by statement."""

from __future__ import annotations

from fractions import Fraction

import local_sum
import numpy as np
import pytest
from exact import FORMATS, array_of, floor_log2, values
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netreduce.host_agent._datapath import DType, ReduceOp, exponent_bound, fraction_bits

WORLD_SIZES = (1, 2, 3, 4, 5, 8, 63, 64)
FLOAT_LANES = [(d, bits) for d in (DType.float32, DType.float16, DType.bfloat16) for bits in (16, 32, 64)]
FLOAT_LANES.append((DType.float64, 64))
INTEGERS = [(np.int8, 32), (np.uint8, 32), (np.int32, 32), (np.int64, 64)]
EXAMPLES = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def ids(value: object) -> str:
    return getattr(value, "name", None) or getattr(value, "__name__", None) or str(value)


@st.composite
def finite_ranks(draw: st.DrawFn, dtype: DType, world_size: int) -> list[np.ndarray]:
    """One array of bit patterns for each rank, with exponents that are often close together."""
    fmt = FORMATS[dtype]
    elements = draw(st.integers(1, 6))
    top = (1 << fmt.exponent_bits) - 2
    highest = draw(st.one_of(st.sampled_from([0, 1, 2, fmt.bias, top]), st.integers(0, top)))
    spread = draw(st.sampled_from([0, 1, 5, 30, top]))
    exponents = st.integers(max(0, highest - spread), highest)
    mantissas = st.one_of(
        st.integers(0, (1 << (fmt.precision - 1)) - 1),
        st.sampled_from([0, 1, (1 << (fmt.precision - 1)) - 1]),
    )
    # Few distinct numbers keep drawing for 64 ranks fast.
    pool = [
        draw(st.booleans()) << (fmt.precision - 1 + fmt.exponent_bits)
        | draw(exponents) << (fmt.precision - 1)
        | draw(mantissas)
        for _ in range(8)
    ]
    seed = draw(st.integers(0, 1 << 32))
    rng = np.random.default_rng(seed)
    return [array_of([pool[i] for i in rng.integers(0, 8, elements)], dtype) for _ in range(world_size)]


def model(ranks: list[np.ndarray], dtype: DType, lane_bits: int) -> tuple[list[Fraction], Fraction, bool]:
    """The exact sums of the quantised values, their unit, and whether rounding may have been clamped."""
    n, exact = len(ranks), [values(r, dtype) for r in ranks]
    fraction = fraction_bits(lane_bits, n)
    wide = FORMATS[DType.float64 if dtype == DType.float64 else DType.float32]
    largest = max(abs(v) for rank in exact for v in rank)
    biased = 0 if largest == 0 else max(0, floor_log2(largest) + wide.bias)
    unit = Fraction(2) ** (exponent_bound(dtype, biased) - fraction)
    clamps = fraction < FORMATS[dtype].precision
    limit = (1 << fraction) - 1

    def quantised(v: Fraction) -> int:
        q = round(v / unit)
        return max(-limit, min(limit, q)) if clamps else q

    sums = [sum(quantised(rank[i]) for rank in exact) for i in range(len(ranks[0]))]
    assert all(abs(s) < 1 << (lane_bits - 1) for s in sums), "a lane overflowed"
    return [s * unit for s in sums], unit, clamps


@pytest.mark.parametrize(("dtype", "lane_bits"), FLOAT_LANES, ids=ids)
@given(data=st.data(), n=st.sampled_from(WORLD_SIZES))
@EXAMPLES
def test_sum_is_the_quantised_sum_rounded_once(
    dtype: DType, lane_bits: int, data: st.DataObject, n: int
) -> None:
    ranks = data.draw(finite_ranks(dtype, n))
    inputs = [r.copy() for r in ranks]
    local_sum.reduce(ranks, lane_bits=lane_bits, dtype=dtype)
    sums, unit, clamps = model(inputs, dtype, lane_bits)
    fmt = FORMATS[dtype]
    for i, got in enumerate(values(ranks[0], dtype)):
        assert got == fmt.round(sums[i])
        # The bound of docs/numerics.md against the sum of the inputs themselves.
        exact = sum(values(r, dtype)[i] for r in inputs)
        bound = n * unit * (1 if clamps else Fraction(1, 2)) + fmt.spacing(sums[i]) / 2
        assert isinstance(got, float) or abs(got - exact) <= bound
    for other in ranks[1:]:
        assert other.tobytes() == ranks[0].tobytes()


@pytest.mark.parametrize(("dtype", "lane_bits"), FLOAT_LANES, ids=ids)
@given(data=st.data(), n=st.sampled_from(WORLD_SIZES))
@EXAMPLES
def test_average_of_floats(dtype: DType, lane_bits: int, data: st.DataObject, n: int) -> None:
    ranks = data.draw(finite_ranks(dtype, n))
    inputs = [r.copy() for r in ranks]
    local_sum.reduce(ranks, lane_bits=lane_bits, dtype=dtype, op=ReduceOp.AVG)
    sums, _, _ = model(inputs, dtype, lane_bits)
    fmt = FORMATS[dtype]
    for got, quantised in zip(values(ranks[0], dtype), sums, strict=True):
        mean = quantised / n
        if n & (n - 1) == 0:
            assert got == fmt.round(mean)  # division by a power of two is exact
        else:
            # One more rounding, in double precision.
            slack = abs(mean) * Fraction(2) ** -52
            assert isinstance(got, Fraction), "an average of finite numbers is finite"
            assert abs(got - mean) <= fmt.spacing(mean) / 2 + slack
    for other in ranks[1:]:
        assert other.tobytes() == ranks[0].tobytes()


@pytest.mark.parametrize("n", WORLD_SIZES)
@pytest.mark.parametrize(("dtype", "lane_bits"), FLOAT_LANES, ids=ids)
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("at_top", [False, True], ids=["near 1", "largest finite"])
def test_extremes_do_not_overflow_the_lane(
    dtype: DType, lane_bits: int, n: int, sign: int, at_top: bool
) -> None:
    """All ranks at the largest magnitude below a power of two: the sum must keep its sign and size."""
    fmt = FORMATS[dtype]
    exponent = (1 << fmt.exponent_bits) - 2 if at_top else fmt.bias
    bits = (sign < 0) << (fmt.precision - 1 + fmt.exponent_bits) | ((exponent + 1) << (fmt.precision - 1)) - 1
    ranks = [array_of([bits] * 3, dtype) for _ in range(n)]
    [exact] = set(values(ranks[0], dtype))
    sums, unit, clamps = model(ranks, dtype, lane_bits)
    local_sum.reduce(ranks, lane_bits=lane_bits, dtype=dtype)
    got = values(ranks[0], dtype)
    assert got == [fmt.round(s) for s in sums]
    if at_top and n > 1:
        assert got[0] == sign * float("inf")  # as IEEE rounds the exact sum
    else:
        assert abs(got[0] - n * exact) <= n * unit * (1 if clamps else 0) + fmt.spacing(n * exact) / 2


@pytest.mark.parametrize(("dtype", "lane_bits"), INTEGERS, ids=ids)
@given(data=st.data(), n=st.sampled_from(WORLD_SIZES))
@EXAMPLES
def test_integers_wrap_and_average_truncates(
    dtype: type, lane_bits: int, data: st.DataObject, n: int
) -> None:
    info = np.iinfo(dtype)
    element = st.one_of(st.integers(info.min, info.max), st.sampled_from([info.min, info.max, 0]))
    pool = data.draw(st.lists(element, min_size=4, max_size=4))
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    inputs = [np.array([pool[i] for i in rng.integers(0, 4, 5)], dtype) for _ in range(n)]
    sums = np.add.reduce(np.stack(inputs), axis=0, dtype=dtype)
    summed, averaged = [r.copy() for r in inputs], [r.copy() for r in inputs]
    local_sum.reduce(summed, lane_bits=lane_bits)
    local_sum.reduce(averaged, lane_bits=lane_bits, op=ReduceOp.AVG)
    for rank in summed:
        assert rank.tolist() == sums.tolist()
    for rank in averaged:
        assert rank.tolist() == [abs(int(s)) // n * (1 if s >= 0 else -1) for s in sums]


@pytest.mark.parametrize(("dtype", "lane_bits"), FLOAT_LANES, ids=ids)
def test_zeros_and_subnormals(dtype: DType, lane_bits: int) -> None:
    """Subnormals are numbers like others: exact where the lane has room for them."""
    fmt = FORMATS[dtype]
    patterns = [0, 1, 2, (1 << (fmt.precision - 1)) - 1]
    sign = 1 << (fmt.precision - 1 + fmt.exponent_bits)
    ranks = [array_of(patterns + [p | sign for p in patterns], dtype) for _ in range(3)]
    exact = [3 * v for v in values(ranks[0], dtype)]
    sums, _, _ = model(ranks, dtype, lane_bits)
    local_sum.reduce(ranks, lane_bits=lane_bits, dtype=dtype)
    assert values(ranks[0], dtype) == [fmt.round(s) for s in sums]
    if fraction_bits(lane_bits, 3) >= fmt.precision:
        assert values(ranks[0], dtype) == [fmt.round(e) for e in exact]


def test_flush_to_zero_does_not_change_results() -> None:
    """torch.set_flush_denormal(True) on one rank must not make it differ from the others."""
    torch = pytest.importorskip("torch")
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor has no flush-to-zero mode")
    try:
        ranks = [array_of([1, 5, 0x7FFFFF], DType.float32) for _ in range(2)]
        local_sum.reduce(ranks, lane_bits=32)
        still_flushing = float(torch.tensor([1e-39]) * 1.0) == 0.0
    finally:
        torch.set_flush_denormal(False)
    assert ranks[0].view(np.uint32).tolist() == [2, 10, 0xFFFFFE]
    assert still_flushing, "the caller's mode was not restored"


@pytest.mark.parametrize("dtype", [DType.float32, DType.float16, DType.bfloat16, DType.float64], ids=ids)
@pytest.mark.parametrize("bad", ["nan", "inf", "-inf"])
def test_every_rank_learns_of_a_non_finite_element(dtype: DType, bad: str) -> None:
    fmt = FORMATS[dtype]
    infinity = ((1 << fmt.exponent_bits) - 1) << (fmt.precision - 1)
    sign = 1 << (fmt.precision - 1 + fmt.exponent_bits)
    bits = {"nan": infinity | 1, "inf": infinity, "-inf": infinity | sign}
    ranks = [array_of([0x100] * 20_000, dtype) for _ in range(3)]
    ranks[1].view(f"u{fmt.storage.itemsize}")[15_000] = bits[bad]
    calls = local_sum.begin(ranks, lane_bits=64, dtype=dtype)
    assert [c.all_finite for c in calls] == [False] * 3


def test_half_precision_conversions_are_right_for_every_pattern() -> None:
    """All finite float16 and bfloat16 numbers survive a sum with zero."""
    for dtype, storage in ((DType.float16, np.float16), (DType.bfloat16, np.uint16)):
        fmt = FORMATS[dtype]
        bits = np.arange(1 << 16, dtype=np.uint16)
        exponent = (bits >> (fmt.precision - 1)) & ((1 << fmt.exponent_bits) - 1)
        finite = bits[exponent != (1 << fmt.exponent_bits) - 1]
        # Messages of equal exponents, so that quantisation loses nothing.
        order = np.argsort((finite & 0x7FFF), kind="stable")
        for part in np.array_split(finite[order], 64):
            ranks = [part.view(storage).copy(), np.zeros(len(part), storage)]
            local_sum.reduce(ranks, lane_bits=64, dtype=dtype)
            got = ranks[1].view(np.uint16)
            negative_zero = part == 0x8000
            assert (got[~negative_zero] == part[~negative_zero]).all()
            assert (got[negative_zero] == 0).all()  # -0 + 0 = +0
