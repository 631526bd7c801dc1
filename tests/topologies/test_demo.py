"""``make demo``: what it calls a failure, and one short run of it."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from netreduce.controller.api import job_service_pb2 as api
from netreduce.topologies.demo import Metrics, problems
from netreduce.topologies.launcher import RunResult

GLOO = Metrics(losses=[2.0, 1.0, 0.5], accuracies=[0.8, 0.9], seconds=1.0)


def result(calls: int = 3, counted: int = 12, trouble: str = "") -> RunResult:
    """Two ranks that sent 6 packets each, by their own account."""
    statistics = api.HostStatistics(calls=calls, packets_sent=6, results_received=6)
    members = [api.MemberInfo(rank=rank, statistics=statistics, results_delivered=6) for rank in range(2)]
    counters = api.CauseCounters(first=counted - 6, completed=6)
    job = api.JobInfo(job_id=1, name="train", world_size=2, members=members, switch_counters=counters)
    return RunResult(0, [job], trouble)


def test_two_runs_that_fit_together_are_no_problem() -> None:
    assert problems(GLOO, replace(GLOO, accuracies=[0.8, 0.91]), result()) == []


@pytest.mark.parametrize(
    ("changes", "outcome", "words"),
    [
        ({}, {"counted": 11}, "workers sent 12 packets, the switch summed 11"),
        ({}, {"counted": 13}, "workers sent 12 packets, the switch summed 13"),
        ({}, {"calls": 2}, "2 all-reduces went through the switch for 3 steps"),
        ({}, {"trouble": "the switch ended"}, "the switch ended"),
        ({"losses": [2.0, 1.0]}, {}, "3 steps under Gloo, 2 through the switch"),
        ({"accuracies": [0.9, 0.8]}, {}, "the accuracies are 10.00% apart, more than 2%"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict, outcome: dict, words: str) -> None:
    assert [line for line in problems(GLOO, replace(GLOO, **changes), result(**outcome)) if words in line]


@pytest.mark.timeout(240)
def test_a_short_demo_succeeds_and_draws_its_picture(tmp_path: Path) -> None:
    picture = tmp_path / "new folder" / "demo.png"
    done = subprocess.run(
        [
            sys.executable, "-m", "netreduce.topologies.demo",
            "--workers", "2", "--epochs", "1", "--plot", str(picture),
        ],
        capture_output=True, text=True, timeout=220, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The switch's counters match what the workers sent." in done.stdout
    assert picture.stat().st_size > 0
