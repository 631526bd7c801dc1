"""What goes wrong: unlike calls, ranks that go away, timeouts, and exits at inconvenient moments."""

import re

import pytest
from launch import Ranks, Result, run

DISAGREE = "the ranks disagree on"


def faults(case: str, world_size: int, environment: dict[str, str]) -> list[Result]:
    results = run(["faults.py", case], world_size, environment, seconds=60)
    for result in results:
        assert result.code is not None, f"rank {result.rank} hung: {result.out}{result.err}"
        assert result.code >= 0, f"rank {result.rank} died of signal {-result.code}: {result.err}"
    return results


@pytest.fixture(scope="module")
def unlike_calls(stack) -> list[Result]:
    return faults("unlike_calls", 2, {"NETREDUCE_CONTROLLER": stack.controller})


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("shapes", {0: "shape [3, 4]", 1: "shape [3, 5]"}),
        ("dtypes", {0: "int32, shape [8]", 1: "float32, shape [8]"}),
        ("lane_widths", {0: "float32, shape [8]", 1: "float64, shape [8]"}),
        ("ops", {0: "SUM", 1: "AVG"}),
        ("routes", {0: "SUM", 1: "MAX"}),
        ("emptiness", {0: "shape [0]", 1: "shape [5]"}),
        ("gloo_sizes", {0: "shape [8]", 1: "shape [9]"}),
    ],
)
def test_every_rank_learns_what_all_ranks_called(
    unlike_calls: list[Result], kind: str, words: dict[int, str]
) -> None:
    # The process groups' timeout is an hour: whoever ended was told, and did not wait for it.
    for result in unlike_calls:
        (line,) = [line for line in result.out.splitlines() if line.startswith(f"{kind} error: ")]
        assert "DistBackendError" in line and DISAGREE in line and re.search(r"call 1\b", line), line
        for rank, text in words.items():
            assert re.search(rf"rank {rank}: [^;]*{re.escape(text)}", line), line


def test_a_failed_group_stays_failed_and_others_go_on(unlike_calls: list[Result]) -> None:
    for result in unlike_calls:
        later = [line for line in result.out.splitlines() if " later " in line]
        assert len(later) == 7 and all("failed before" in line for line in later), later
        assert result.code == 0 and result.out.endswith("default group [2.0, 2.0]\n"), result


def test_peers_of_a_killed_rank_name_it(through_switch: dict[str, str]) -> None:
    with Ranks(["faults.py", "rank_one_is_killed"], 3, through_switch) as ranks:
        assert ranks.processes[1].stdout.readline() == "ready\n"
        ranks.kill(1)
        pid = ranks.processes[1].pid
        results = ranks.wait(60)
    for rank in (0, 2):
        assert results[rank].code == 0, results[rank]
        assert f"rank 1 (pid {pid}" in results[rank].out and "died" in results[rank].out, results[rank]


def test_peers_of_a_rank_that_raised_name_it_and_its_exception(through_switch: dict[str, str]) -> None:
    results = faults("rank_one_raises", 2, through_switch)
    assert results[1].code == 1 and "this rank's own trouble" in results[1].err
    assert "rank 1" in results[0].out and "SystemError: this rank's own trouble" in results[0].out


def test_a_rank_in_another_collective_is_named(through_switch: dict[str, str]) -> None:
    results = faults("rank_one_calls_broadcast", 3, through_switch)
    for rank in (0, 2):
        assert "disagree on collective 2" in results[rank].out, results[rank]
        assert "; rank 1: broadcast; make" in results[rank].out, results[rank]
    assert results[1].out.startswith("error: "), "Gloo ends with its peers"
    assert "disagree on collective 2" in results[1].err, results[1]


def test_peers_of_a_rank_that_returned_early_name_it(through_switch: dict[str, str]) -> None:
    results = faults("rank_one_returns_early", 2, through_switch)
    assert "rank 1 left the process group after call 1" in results[0].out, results[0]


def test_the_groups_timeout_ends_a_call(through_switch: dict[str, str]) -> None:
    results = faults("rank_one_is_late", 3, through_switch)
    for rank in (0, 2):
        assert results[rank].out.startswith("error: DistBackendError"), results[rank]
    assert "2000 ms" in results[0].out + results[2].out


def test_waiting_has_a_timeout_of_its_own(through_switch: dict[str, str]) -> None:
    results = faults("waiting_has_a_timeout", 2, through_switch)
    assert "error: RuntimeError: Operation timed out" in results[0].out
    for result in results:
        assert result.code == 0 and result.out.endswith("[2.0, 2.0, 2.0, 2.0]\n"), result


def test_futures_carry_errors(through_switch: dict[str, str]) -> None:
    for result in faults("futures_carry_errors", 2, through_switch):
        assert result.out.startswith("error:") and DISAGREE in result.out, result


@pytest.mark.parametrize(
    ("case", "code", "out"),
    [
        ("exit_with_calls_outstanding", 0, "end\n"),
        ("exit_with_calls_that_cannot_finish", 0, "end\n"),
        ("exit_from_an_exception", 1, ""),
        ("exit_while_callbacks_run", 0, "end\n"),
        ("exit_without_destroying", 0, "end\n"),
        ("destroyed_and_made_again", 0, "True 2.0\nTrue 2.0\nTrue 2.0\n"),
        ("destroy_with_calls_outstanding", 0, "2.0 2.0\n"),
        ("last_reference_goes_in_a_callback", 0, "2.0\n"),
    ],
)
def test_ends_in_order(through_switch: dict[str, str], case: str, code: int, out: str) -> None:
    for result in faults(case, 2, through_switch):
        assert result.code == code, result
        assert result.out == out, result
        assert "terminate called" not in result.err and "Fatal Python error" not in result.err, result


def test_a_forked_child_is_refused_and_harmless(through_switch: dict[str, str]) -> None:
    for result in faults("forked_children", 2, through_switch):
        assert "a forked child must make its own" in result.out, result
        assert result.out.endswith("child 3 sum 2.0\n"), result
        assert result.err == "", result


def test_abort_ends_the_call_on_all_ranks(through_switch: dict[str, str]) -> None:
    results = faults("aborted_by_the_script", 2, through_switch)
    for result in results:
        assert "aborted by this process" in result.out, result
    assert "rank 0 (pid" in results[1].out
