"""Why a call does not finish: what ranks conclude from each other's notes."""

from datetime import timedelta

import pytest

from netreduce.host_agent import stall
from netreduce.host_agent.stall import FORWARDED_AFTER, SILENT_AFTER, STALL_AFTER, Running, StallWatch

LONG = STALL_AFTER.total_seconds() + 1


class Notes:
    """A store in memory; waiting for what is not there times out at once."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def set(self, key: str, value: str) -> None:
        self.values[key] = value.encode()

    def get(self, key: str) -> bytes:
        return self.values[key]

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)

    def wait(self, keys: list[str], timeout: timedelta) -> None:
        if not self.check(keys):
            raise RuntimeError("timed out")


def in_call(
    number: int,
    signature: str = "switch SUM float32 8",
    seconds: float = LONG,
    results: int = 5,
    unaggregated: int = 0,
) -> Running:
    description = f"all_reduce({signature})"
    return Running(number, description, signature, seconds, results, unaggregated, collective=number)


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def watches(notes: Notes) -> list[StallWatch]:
    return [StallWatch(notes, rank, 3, "s1") for rank in range(3)]


def test_says_nothing_about_a_young_call(notes: Notes, watches: list[StallWatch]) -> None:
    assert watches[0].check(in_call(1, seconds=STALL_AFTER.total_seconds() - 0.1)) is None
    assert notes.values == {}


def test_waits_for_a_straggler(watches: list[StallWatch]) -> None:
    assert watches[0].check(in_call(1)) is None
    assert watches[2].check(in_call(1)) is None
    assert watches[0].check(in_call(1, seconds=10 * LONG)) is None


def test_names_both_calls(watches: list[StallWatch]) -> None:
    assert watches[0].check(in_call(7)) is None
    reason = watches[2].check(in_call(7, "gloo MAX float32 8"))
    assert reason is not None and "call 7" in reason
    assert "rank 2: all_reduce(gloo MAX float32 8)" in reason
    assert "rank 0: all_reduce(switch SUM float32 8)" in reason
    assert watches[0].check(in_call(7)) is not None


def test_an_old_note_is_no_evidence(watches: list[StallWatch]) -> None:
    assert watches[0].check(in_call(7)) is None
    assert watches[1].check(in_call(8, "gloo MAX float32 8")) is None


def test_a_rank_that_left_before_the_call(watches: list[StallWatch]) -> None:
    watches[1].leave(6)
    reason = watches[0].check(in_call(7))
    assert reason is not None and "rank 1 left the process group after call 6" in reason


def test_a_rank_that_left_after_making_the_call(watches: list[StallWatch]) -> None:
    watches[1].leave(7)
    assert watches[0].check(in_call(7)) is None


def test_a_silent_switch(watches: list[StallWatch]) -> None:
    late = LONG + SILENT_AFTER.total_seconds()
    for watch in watches:
        assert watch.check(in_call(3)) is None
    reason = watches[0].check(in_call(3, seconds=late))
    assert reason is not None and "switch s1 sent no result" in reason


def test_a_switch_that_only_forwards(watches: list[StallWatch]) -> None:
    late = LONG + FORWARDED_AFTER.total_seconds()
    for watch in watches:
        assert watch.check(in_call(3, unaggregated=2)) is None
    assert watches[0].check(in_call(3, seconds=late, unaggregated=2)) is None, "these came before"
    reason = watches[0].check(in_call(3, seconds=late, unaggregated=6))
    assert reason is not None and "switch s1 does not know this job any more" in reason
    assert "forwarded 4 packets" in reason


def test_a_call_that_makes_progress_may_take_as_long_as_it_likes(watches: list[StallWatch]) -> None:
    for watch in watches:
        assert watch.check(in_call(3)) is None
    for minute in range(1, 10):
        assert watches[0].check(in_call(3, seconds=60.0 * minute, results=5 + minute)) is None


def test_silence_is_not_the_switchs_fault_while_a_rank_is_missing(watches: list[StallWatch]) -> None:
    assert watches[1].check(in_call(3)) is None
    assert watches[0].check(in_call(3)) is None
    assert watches[0].check(in_call(3, seconds=LONG + 10 * SILENT_AFTER.total_seconds())) is None


def collectives(*names: str, first: int = 1):
    return lambda: (first, list(names))


def test_a_rank_in_another_collective(watches: list[StallWatch]) -> None:
    called = collectives("all_reduce", "broadcast")
    watches[2].observe(2, called, 10.0)
    assert watches[0].check(in_call(2)) is None, "it has only just called that"
    watches[2].observe(2, called, 10.0 + LONG)
    reason = watches[0].check(in_call(2))
    assert reason is not None and "disagree on collective 2 of this process group" in reason
    assert "rank 0: call 2, all_reduce(switch SUM float32 8); rank 2: broadcast" in reason


def test_a_rank_that_is_behind_in_another_collective_may_still_come(watches: list[StallWatch]) -> None:
    for now in (0.0, LONG):
        watches[1].observe(2, collectives("all_reduce", "broadcast"), now)
    assert watches[0].check(in_call(3)) is None


def test_collectives_too_long_ago_to_be_known(watches: list[StallWatch]) -> None:
    for now in (0.0, LONG):
        watches[1].observe(900, collectives(*["barrier"] * 256, first=645), now)
    assert watches[0].check(in_call(600)) is None
    assert watches[0].check(in_call(644)) is None
    assert watches[0].check(in_call(645)) is not None


def test_a_rank_that_calls_on_says_nothing(notes: Notes, watches: list[StallWatch]) -> None:
    for count in range(1, 9):
        watches[1].observe(count, collectives(*["barrier"] * count), count * LONG)
    assert notes.values == {}


def test_what_was_called_is_said_once(notes: Notes, watches: list[StallWatch]) -> None:
    for now in range(1, 40):
        watches[1].observe(1, collectives("barrier"), float(now))
        notes.values = {} if now == 20 else notes.values
    assert notes.values == {}


def test_the_handshake_is_bounded() -> None:
    assert timedelta(0) < stall.HANDSHAKE < timedelta(seconds=10)
