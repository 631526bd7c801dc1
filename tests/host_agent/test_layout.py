"""How a call is cut into messages and packets: docs/protocol.md, "The payload"."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netreduce.host_agent._datapath import data_layout
from netreduce.p4.wire import BLOCK_BYTES, BLOCK_COUNTS

TRAILER = {16: 4, 32: 2, 64: 2}


def lanes_of(blocks: int, lane_bits: int) -> int:
    return blocks * BLOCK_BYTES * 8 // lane_bits


def check(lane_bits: int, max_blocks: int, elements: int) -> None:
    packets = data_layout(lane_bits, max_blocks, elements)
    capacity = 4 * lanes_of(max_blocks, lane_bits) - TRAILER[lane_bits]
    assert sum(p["elements"] for p in packets) == elements
    assert packets[-1]["message"] + 1 == -(-elements // capacity)
    position = 0
    for i, p in enumerate(packets):
        assert (p["message"], p["packet"]) == divmod(i, 4)
        assert p["lanes"] == lanes_of(p["blocks"], lane_bits)
        assert p["blocks"] in BLOCK_COUNTS and p["blocks"] <= max_blocks
        if p["elements"]:
            assert p["first_element"] == position
        position += p["elements"]
        message_ends = i + 1 == len(packets) or packets[i + 1]["message"] != p["message"]
        assert p["last"] == message_ends
        # The trailer is the message's last lanes, and nothing else lies there.
        assert p["elements"] + (TRAILER[lane_bits] if p["last"] else 0) <= p["lanes"]
        if not p["last"]:
            assert p["blocks"] == max_blocks
        elif p["blocks"] > 1:
            # One size smaller would not hold it.
            needed = (
                p["message_elements"] + TRAILER[lane_bits] - p["packet"] * lanes_of(max_blocks, lane_bits)
            )
            assert lanes_of(p["blocks"] // 2, lane_bits) < needed


@given(
    lane_bits=st.sampled_from([16, 32, 64]),
    max_blocks=st.sampled_from(BLOCK_COUNTS),
    elements=st.integers(1, 40_000),
)
@settings(max_examples=200, deadline=None)
def test_layout(lane_bits: int, max_blocks: int, elements: int) -> None:
    check(lane_bits, max_blocks, elements)


@pytest.mark.parametrize("lane_bits", [16, 32, 64])
@pytest.mark.parametrize("max_blocks", BLOCK_COUNTS)
def test_layout_at_boundaries(lane_bits: int, max_blocks: int) -> None:
    packet, trailer = lanes_of(max_blocks, lane_bits), TRAILER[lane_bits]
    for edge in (packet, 4 * packet - trailer, 4 * packet, 8 * packet - 2 * trailer, lanes_of(1, lane_bits)):
        for elements in range(max(1, edge - trailer - 1), edge + 2):
            check(lane_bits, max_blocks, elements)


def test_a_full_16_block_message_of_float32_has_4094_elements() -> None:
    """The figure of docs/protocol.md: 16 KiB less two trailer lanes."""
    assert len(data_layout(32, 16, 4094)) == 4
    assert len(data_layout(32, 16, 4095)) == 5


def test_no_elements_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one element"):
        data_layout(32, 16, 0)
