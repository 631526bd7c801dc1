"""All-reduce of several ranks' payloads without a switch: blocks are combined right here with numpy.

Tests use it to look at encoding and decoding alone; ``emulated_switch.py`` adds packets and loss.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netreduce.host_agent._datapath import Call, DType, ReduceOp

LANE_TYPES = {16: ">u2", 32: ">u4", 64: ">u8"}


def add_lanes(payloads: Sequence[bytes], lane_bits: int) -> bytes:
    """The lane-wise sum modulo 2**lane_bits of packets of equal length."""
    lanes = [np.frombuffer(p, LANE_TYPES[lane_bits]).astype(f"u{lane_bits // 8}") for p in payloads]
    total = lanes[0].copy()
    for other in lanes[1:]:
        total += other
    return total.astype(LANE_TYPES[lane_bits]).tobytes()


def or_bytes(payloads: Sequence[bytes]) -> bytes:
    total = np.frombuffer(payloads[0], np.uint8).copy()
    for other in payloads[1:]:
        total |= np.frombuffer(other, np.uint8)
    return total.tobytes()


def begin(
    arrays: Sequence[np.ndarray],
    *,
    lane_bits: int,
    op: ReduceOp = ReduceOp.SUM,
    max_blocks: int = 16,
    dtype: DType | None = None,
) -> list[Call]:
    """One call per rank with its prelude done; the arrays are reduced in place later."""
    n = len(arrays)
    calls = [
        Call(a, op, rank=r, world_size=n, lane_bits=lane_bits, max_blocks=max_blocks, dtype=dtype)
        for r, a in enumerate(arrays)
    ]
    for i in range(calls[0].prelude_packets):
        result = or_bytes([c.pack_prelude(i) for c in calls])
        for c in calls:
            c.unpack_prelude(i, result)
    return calls


def reduce(arrays: Sequence[np.ndarray], **options) -> list[Call]:
    """Reduces one array per rank in place, as ``begin`` takes them; False-finite inputs are left alone."""
    calls = begin(arrays, **options)
    if not all(c.all_finite for c in calls):
        return calls
    for c in calls:
        c.begin_data()
    for i in range(calls[0].data_packets):
        result = add_lanes([c.pack_data(i) for c in calls], options["lane_bits"])
        for c in calls:
            c.unpack_data(i, result)
    return calls
