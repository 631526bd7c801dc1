"""Slots and numbers: never given twice, all given again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from netreduce.controller.identifiers import WIRE_JOBS, Generations, NumberPool, WireJobs
from netreduce.controller.slots import NoRoom, SlotAllocator, SlotRange

TOTAL = 64


class SlotMachine(RuleBasedStateMachine):
    """Random allocations, against a plain set of free slots."""

    def __init__(self) -> None:
        super().__init__()
        self.allocator = SlotAllocator(TOTAL)
        self.held: list[SlotRange] = []

    def taken(self) -> list[int]:
        return [slot for r in self.held for slot in range(r.first, r.end)]

    def longest_gap(self) -> int:
        taken, best, run = set(self.taken()), 0, 0
        for slot in range(TOTAL):
            run = 0 if slot in taken else run + 1
            best = max(best, run)
        return best

    @rule(count=st.integers(1, TOTAL + 1))
    def allocate(self, count: int) -> None:
        possible = self.longest_gap() >= count
        try:
            found = self.allocator.allocate(count)
        except NoRoom:
            assert not possible
        else:
            assert possible and found.count == count
            self.held.append(found)

    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        if self.held:
            self.allocator.free(self.held.pop(data.draw(st.integers(0, len(self.held) - 1))))

    @rule(first=st.integers(-1, TOTAL), count=st.integers(0, 8))
    def reserve(self, first: int, count: int) -> None:
        wanted = SlotRange(first, count)
        slots = set(range(first, first + count))
        possible = count > 0 and slots <= set(range(TOTAL)) and not slots & set(self.taken())
        try:
            self.allocator.reserve(wanted)
        except ValueError:
            assert not possible
        else:
            assert possible
            self.held.append(wanted)

    @invariant()
    def no_overlap(self) -> None:
        taken = self.taken()
        assert len(taken) == len(set(taken)) == self.allocator.used
        assert all(0 <= slot < TOTAL for slot in taken)

    def teardown(self) -> None:
        for held in self.held:
            self.allocator.free(held)
        assert self.allocator.allocate(TOTAL) == SlotRange(0, TOTAL)


TestSlotMachine = SlotMachine.TestCase


def test_fragmentation_is_explained():
    allocator = SlotAllocator(32)
    ranges = [allocator.allocate(8) for _ in range(4)]
    allocator.free(ranges[0])
    allocator.free(ranges[2])
    with pytest.raises(NoRoom, match="16 slots are needed in one piece; of 32 slots 16 are free"):
        allocator.allocate(16)
    allocator.free(ranges[1])
    assert allocator.allocate(24) == SlotRange(0, 24)


@pytest.mark.parametrize("bad", [SlotRange(0, 4), SlotRange(0, 16), SlotRange(8, 8)])
def test_only_whole_ranges_are_freed(bad):
    allocator = SlotAllocator(32)
    allocator.allocate(8)
    with pytest.raises(ValueError, match="not one allocated range"):
        allocator.free(bad)


def test_numbers_rest_before_they_are_used_again():
    pool = NumberPool(range(1, 5))
    first, second = pool.take(), pool.take()
    pool.give_back(first)
    assert [pool.take() for _ in range(3)] == [3, 4, first]
    with pytest.raises(LookupError):
        pool.take()
    pool.give_back(second)
    with pytest.raises(ValueError, match="not in use"):
        pool.give_back(second)
    with pytest.raises(ValueError, match="not in use"):
        pool.give_back(9)


@given(st.integers(0, 2**33))
def test_wire_jobs_fit_and_are_not_reused_soon(start):
    jobs = WireJobs(start)
    seen = [jobs.take() for _ in range(1000)]
    for job in seen:
        jobs.give_back(job)
    again = [jobs.take() for _ in range(1000)]
    assert len({*seen, *again}) == 2000
    assert all(0 < job < WIRE_JOBS for job in [*seen, *again])


def test_wire_jobs_in_use_are_skipped():
    jobs = WireJobs(0)
    jobs.reserve(2)
    assert [jobs.take(), jobs.take()] == [1, 3]
    for _ in range(WIRE_JOBS - 1 - 3):
        jobs.take()
    with pytest.raises(LookupError):
        jobs.take()


def test_generations_only_grow_and_start_at_the_time():
    now = 1000.0
    generations = Generations(lambda: now)
    assert [generations.take() for _ in range(3)] == [64_000, 64_001, 64_002]
    now = 2000.0
    assert generations.take() == 128_000
    generations.observe(500_000)
    generations.observe(10)
    assert generations.take() == 500_001


def test_a_controller_restarted_within_the_second_repeats_no_generation():
    """Admitting a job takes longer than a tick: several writes to the switch."""
    now = 1_796_063_525.0

    def clock():
        return now

    used = []
    for _ in range(20):
        generations = Generations(clock)
        for _ in range(5):
            used.append(generations.take())
            now += 1 / 50
    assert len(set(used)) == len(used)


def test_generations_wrap_around_without_zero():
    now = (1 << 32) / 64 - 1 / 64
    generations = Generations(lambda: now)
    assert [generations.take() for _ in range(3)] == [(1 << 32) - 1, 1, 2]
    now += 1.0
    assert generations.take() == 63
    generations.observe((1 << 32) - 5)
    assert generations.take() == 64, "what is from before the wrap is behind"
