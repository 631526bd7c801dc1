"""The slot protocol, row by row: first, further, last, duplicate and stale contributions."""

import random
import struct

import pytest

from netreduce.p4 import wire
from netreduce.p4.wire import Cause, Op
from packets.frames import lanes
from packets.jobs import Job
from packets.twin import Twin

LANE_BITS = (16, 32, 64)


def noise(seed: int, blocks: int) -> bytes:
    return random.Random(seed).randbytes(blocks * wire.BLOCK_BYTES)


def test_contributions_are_absorbed_until_the_last_which_brings_the_sum_to_all(switch: Twin) -> None:
    job = Job(ranks=3)
    switch.write(*job.entries())
    assert switch.send(job.port(0), job.packet(0, 0, lanes([1, 10], 32, 1))) == {}
    assert switch.send(job.port(2), job.packet(2, 0, lanes([2, 20], 32, 1))) == {}
    outputs = switch.send(job.port(1), job.packet(1, 0, lanes([3, 30], 32, 1)))
    assert outputs == {job.port(rank): [job.result(rank, 0, lanes([6, 60], 32, 1))] for rank in range(3)}
    assert switch.target.causes() == {
        (1, Cause.FIRST): (1, 314),
        (1, Cause.ADDED): (1, 314),
        (1, Cause.COMPLETED): (1, 314),
    }


@pytest.mark.parametrize("bits", LANE_BITS)
@pytest.mark.parametrize("blocks", wire.BLOCK_COUNTS)
def test_every_lane_of_every_block_is_summed_modulo_its_width(switch: Twin, blocks: int, bits: int) -> None:
    job = Job(ranks=4, lane_bits=bits)
    switch.write(*job.entries())
    count = blocks * wire.BLOCK_BYTES * 8 // bits
    inputs = [[random.Random(rank).getrandbits(bits) for _ in range(count)] for rank in range(4)]
    for rank in range(4):
        outputs = switch.send(job.port(rank), job.packet(rank, 5, lanes(inputs[rank], bits, blocks)))
    sums = lanes([sum(column) for column in zip(*inputs, strict=True)], bits, blocks)
    assert outputs == {job.port(rank): [job.result(rank, 5, sums)] for rank in range(4)}


@pytest.mark.parametrize("bits", LANE_BITS)
def test_carries_stay_in_their_lane(switch: Twin, bits: int) -> None:
    """Two's complement at the ends of the range, beside lanes that would show a stray carry."""
    job = Job(ranks=2, lane_bits=bits)
    switch.write(*job.entries())
    top, bottom = 2 ** (bits - 1) - 1, -(2 ** (bits - 1))
    pairs = [(-1, -1), (0, 0), (-1, 1), (0, 0), (top, 1), (0, 0), (bottom, bottom), (0, 0), (bottom, -1)]
    pairs += [(top, top), (0, 0), (top, bottom), (bottom, top)]
    switch.send(job.port(0), job.packet(0, 0, lanes([a for a, _ in pairs], bits, 1)))
    outputs = switch.send(job.port(1), job.packet(1, 0, lanes([b for _, b in pairs], bits, 1)))
    assert outputs[job.port(0)] == [job.result(0, 0, lanes([a + b for a, b in pairs], bits, 1))]


@pytest.mark.parametrize("blocks", wire.BLOCK_COUNTS)
def test_or_combines_bits(switch: Twin, blocks: int) -> None:
    job = Job(ranks=3)
    switch.write(*job.entries())
    data = [noise(rank, blocks) for rank in range(3)]
    for rank in (2, 0, 1):
        outputs = switch.send(job.port(rank), job.packet(rank, 9, data[rank], op=Op.OR))
    union = bytes(a | b | c for a, b, c in zip(*data, strict=True))
    assert outputs[job.port(0)] == [job.result(0, 9, union, op=Op.OR)]


@pytest.mark.parametrize("ranks", [2, 3, 5, 8, 33, 64])
def test_rank_counts(switch: Twin, ranks: int) -> None:
    job = Job(ranks=ranks)
    switch.write(*job.entries())
    for rank in range(ranks):
        outputs = switch.send(job.port(rank), job.packet(rank, 3, lanes([rank, 1], 32, 1)))
    sums = lanes([ranks * (ranks - 1) // 2, ranks], 32, 1)
    for port in set(job.ports[:ranks]):
        on_port = [rank for rank in range(ranks) if job.port(rank) == port]
        assert sorted(outputs[port]) == sorted(job.result(rank, 3, sums) for rank in on_port)


def test_a_slot_is_reused_without_being_cleared(switch: Twin) -> None:
    job = Job(ranks=2, window=2)
    switch.write(*job.entries())
    for k in range(12):
        switch.send(job.port(0), job.packet(0, k, lanes([100 + k], 32, 1)))
        outputs = switch.send(job.port(1), job.packet(1, k, lanes([1000 * k], 32, 1)))
        assert outputs[job.port(1)] == [job.result(1, k, lanes([100 + 1001 * k], 32, 1))]


def test_packets_of_a_window_are_in_flight_together_in_any_order(switch: Twin) -> None:
    job = Job(ranks=3, window=4)
    switch.write(*job.entries())
    sends = [(rank, k) for rank in range(3) for k in range(8)]
    random.Random(1).shuffle(sends)
    results = []
    for rank, k in sends:
        outputs = switch.send(job.port(rank), job.packet(rank, k, lanes([k, rank], 32, 1)))
        results += outputs.get(job.port(0), [])
    assert sorted(results) == sorted(job.result(0, k, lanes([3 * k, 3], 32, 1)) for k in range(8))


def test_a_duplicate_is_absorbed_while_the_slot_is_unfinished(switch: Twin) -> None:
    job = Job(ranks=2)
    switch.write(*job.entries())
    packet = job.packet(0, 0, lanes([5], 32, 1))
    assert switch.send_counted(job.port(0), packet) == (1, Cause.FIRST)
    assert switch.send_counted(job.port(0), packet) == (1, Cause.DUPLICATE_ABSORBED)
    outputs = switch.send(job.port(1), job.packet(1, 0, lanes([6], 32, 1)))
    assert outputs[job.port(0)] == [job.result(0, 0, lanes([11], 32, 1))]


def test_a_duplicate_of_a_done_slot_is_answered_to_its_sender_alone(switch: Twin) -> None:
    job = Job(ranks=3, window=1)
    switch.write(*job.entries())
    for rank in range(3):
        switch.send(job.port(rank), job.packet(rank, 1, lanes([rank], 32, 2)))
    for rank in (1, 0, 2, 1):
        # What the resend carries does not matter: the answer is the stored result.
        outputs = switch.send(job.port(rank), job.packet(rank, 1, noise(rank, 2)))
        assert outputs == {job.port(rank): [job.result(rank, 1, lanes([3], 32, 2))]}
    assert switch.model.packets[1, Cause.DUPLICATE_ANSWERED] == 4


def test_a_stale_packet_is_dropped_and_changes_nothing(switch: Twin) -> None:
    job = Job(ranks=2, window=1)
    switch.write(*job.entries())
    switch.send(job.port(0), job.packet(0, 4, lanes([1], 32, 1)))
    assert switch.send_counted(job.port(1), job.packet(1, 2, lanes([99], 32, 1))) == (1, Cause.STALE)
    outputs = switch.send(job.port(1), job.packet(1, 4, lanes([2], 32, 1)))
    assert outputs[job.port(0)] == [job.result(0, 4, lanes([3], 32, 1))]


def test_a_newer_contribution_takes_over_an_unfinished_slot(switch: Twin) -> None:
    job = Job(ranks=2, window=1)
    switch.write(*job.entries())
    switch.send(job.port(0), job.packet(0, 0, lanes([50], 32, 1)))
    assert switch.send_counted(job.port(0), job.packet(0, 2, lanes([1], 32, 1))) == (1, Cause.FIRST)
    assert switch.send_counted(job.port(1), job.packet(1, 0, lanes([60], 32, 1))) == (1, Cause.STALE)
    outputs = switch.send(job.port(1), job.packet(1, 2, lanes([2], 32, 1)))
    assert outputs[job.port(1)] == [job.result(1, 2, lanes([3], 32, 1))]


@pytest.mark.parametrize("wrap", [2**16, 2**24, 2**31, 2**32], ids=["2^16", "2^24", "2^31", "2^32"])
def test_the_stream_index_wraps_around(switch: Twin, wrap: int) -> None:
    job = Job(ranks=2, window=2)
    switch.write(*job.entries())
    for k in range(wrap - 6, wrap + 6):
        switch.send(job.port(0), job.packet(0, k, lanes([1], 32, 1)))
        outputs = switch.send(job.port(1), job.packet(1, k, lanes([k], 32, 1)))
        assert outputs[job.port(0)] == [job.result(0, k, lanes([k + 1], 32, 1))]
        again, older = (job.packet(0, index, lanes([1], 32, 1)) for index in (k, k - 4))
        assert switch.send_counted(job.port(0), again) == (1, Cause.DUPLICATE_ANSWERED)
        assert switch.send_counted(job.port(0), older) == (1, Cause.STALE)


@pytest.mark.parametrize(
    ("ahead", "cause"),
    [
        (4, Cause.FIRST),
        (2**31 - 4, Cause.FIRST),
        (2**31, Cause.STALE),
        (2**31 + 4, Cause.STALE),
        (2**32 - 4, Cause.STALE),
    ],
)
@pytest.mark.parametrize("start", [0, 12, 2**31, 2**32 - 4])
def test_which_of_two_indices_is_newer_is_decided_as_in_rfc_1982(
    switch: Twin, start: int, ahead: int, cause: Cause
) -> None:
    job = Job(ranks=2, window=2)
    switch.write(*job.entries())
    switch.send(job.port(0), job.packet(0, start, lanes([1], 32, 1)))
    assert switch.send_counted(job.port(0), job.packet(0, start + ahead, lanes([1], 32, 1))) == (1, cause)


def test_a_new_generation_finds_its_slots_empty(switch: Twin) -> None:
    old = Job(ranks=2, generation=100)
    switch.write(*old.entries())
    for rank in range(2):
        switch.send(old.port(rank), old.packet(rank, 7, noise(rank, 1)))
    switch.send(old.port(0), old.packet(0, 6, noise(3, 1)))
    new = Job(ranks=2, generation=101)
    switch.modify(*(new.connection(rank) for rank in range(2)))
    for k in (7, 6, 5):
        assert switch.send_counted(new.port(1), new.packet(1, k, lanes([1], 32, 1))) == (1, Cause.FIRST)
        outputs = switch.send(new.port(0), new.packet(0, k, lanes([2], 32, 1)))
        assert outputs[new.port(0)] == [new.result(0, k, lanes([3], 32, 1))]


def test_two_jobs_share_a_switch_without_touching_each_other(switch: Twin) -> None:
    a = Job(number=7, stream=1, ranks=2, window=4, slot_base=0, lane_bits=32)
    b = Job(number=8, stream=2, ranks=3, window=2, slot_base=8, lane_bits=16, ports=(4, 2, 6))
    switch.write(*a.entries(), *b.entries())
    for k in range(20):
        switch.send(a.port(0), a.packet(0, k, lanes([k], 32, 2)))
        switch.send(b.port(2), b.packet(2, k, lanes([k], 16, 1)))
        switch.send(b.port(0), b.packet(0, k, lanes([k], 16, 1)))
        outputs = switch.send(a.port(1), a.packet(1, k, lanes([1], 32, 2)))
        assert outputs == {a.port(rank): [a.result(rank, k, lanes([k + 1], 32, 2))] for rank in range(2)}
        outputs = switch.send(b.port(1), b.packet(1, k, lanes([3], 16, 1)))
        assert outputs == {b.port(rank): [b.result(rank, k, lanes([2 * k + 3], 16, 1))] for rank in range(3)}
    assert switch.model.packets[1, Cause.COMPLETED] == switch.model.packets[2, Cause.COMPLETED] == 20


def test_one_job_with_two_streams_of_different_lanes(switch: Twin) -> None:
    """What a process group with float32 and int64 tensors has: two wire jobs, one set of hosts."""
    narrow = Job(number=7, stream=1, ranks=2, window=4, slot_base=0, lane_bits=32)
    wide = Job(number=9, stream=2, ranks=2, window=4, slot_base=8, lane_bits=64)
    switch.write(*narrow.entries(), *wide.entries())
    for rank in range(2):
        narrow_outputs = switch.send(narrow.port(rank), narrow.packet(rank, 0, lanes([-1, 1], 32, 1)))
        wide_outputs = switch.send(wide.port(rank), wide.packet(rank, 0, lanes([2**32 - 1, 1], 64, 1)))
    assert narrow_outputs[1] == [narrow.result(0, 0, lanes([-2, 2], 32, 1))]
    assert wide_outputs[1] == [wide.result(0, 0, lanes([2**33 - 2, 2], 64, 1))]


def test_the_last_slots_of_the_switch_work(switch: Twin) -> None:
    job = Job(ranks=2, window=4, slot_base=wire.SLOT_COUNT - 8)
    switch.write(*job.entries())
    for k in range(16):
        switch.send(job.port(0), job.packet(0, k, lanes([k], 32, 16)))
        outputs = switch.send(job.port(1), job.packet(1, k, lanes([1], 32, 16)))
        assert outputs[job.port(0)] == [job.result(0, k, lanes([k + 1], 32, 16))]


class TestUnequalSizes:
    """Ranks that disagree on a packet's size (a mismatched call): an absent block counts as zero."""

    @pytest.mark.parametrize("op", [Op.SUM, Op.OR])
    def test_a_block_that_only_one_rank_has_is_taken_as_it_is(self, switch: Twin, op: Op) -> None:
        job = Job(ranks=2, window=1)
        switch.write(*job.entries())
        for rank in range(2):  # leaves data of an earlier index in the slot's later blocks
            switch.send(job.port(rank), job.packet(rank, 0, noise(rank, 4)))
        own = noise(9, 4)
        switch.send(job.port(0), job.packet(0, 2, bytes(256), op=op))
        outputs = switch.send(job.port(1), job.packet(1, 2, own, op=op))
        assert outputs[job.port(1)] == [job.result(1, 2, own, op=op)]

    @pytest.mark.parametrize("sizes", [(1, 2, 2), (1, 4, 2), (2, 1, 4), (4, 1, 1), (1, 2, 4)])
    def test_sizes_that_grow_and_shrink(self, switch: Twin, sizes: tuple[int, ...]) -> None:
        job = Job(ranks=3, window=1)
        switch.write(*job.entries())
        for rank in range(3):
            switch.send(job.port(rank), job.packet(rank, 0, noise(rank, 4)))
        ones = [struct.pack(">64I", *[1 << rank] * 64) for rank in range(3)]
        for rank, blocks in enumerate(sizes):
            outputs = switch.send(job.port(rank), job.packet(rank, 2, ones[rank] * blocks))
        sums = [sum(1 << rank for rank in range(3) if sizes[rank] > index) for index in range(4)]
        combined = b"".join(struct.pack(">64I", *[total] * 64) for total in sums)
        for rank in range(3):
            assert outputs[job.port(rank)] == [job.result(rank, 2, combined[: 256 * sizes[2]])]
            answer = switch.send(job.port(rank), job.packet(rank, 2, bytes(256 * max(sizes))))
            assert answer == {job.port(rank): [job.result(rank, 2, combined[: 256 * max(sizes)])]}

    def test_the_result_has_the_size_of_the_last_contribution(self, switch: Twin) -> None:
        job = Job(ranks=2, window=1)
        switch.write(*job.entries())
        switch.send(job.port(0), job.packet(0, 0, lanes([1], 32, 8)))
        outputs = switch.send(job.port(1), job.packet(1, 0, lanes([2], 32, 2)))
        assert outputs[job.port(0)] == [job.result(0, 0, lanes([3], 32, 2))]

    def test_an_answer_has_the_size_of_the_question_and_no_old_data(self, switch: Twin) -> None:
        job = Job(ranks=2, window=1)
        switch.write(*job.entries())
        for rank in range(2):
            switch.send(job.port(rank), job.packet(rank, 0, noise(rank, 8)))
        for rank in range(2):
            switch.send(job.port(rank), job.packet(rank, 2, lanes([rank + 1], 32, 2)))
        question = noise(5, 4)
        outputs = switch.send(job.port(0), job.packet(0, 2, question))
        assert outputs == {job.port(0): [job.result(0, 2, lanes([3], 32, 2) + question[512:])]}
        outputs = switch.send(job.port(0), job.packet(0, 2, noise(6, 1)))
        assert outputs == {job.port(0): [job.result(0, 2, lanes([3], 32, 1))]}
