"""Every collective and every kind of tensor, against plain Gloo, at several world sizes.

Importing torch in every rank is what costs time, so one run per configuration does all checks of
``workers/conformance.py``, and each check is a test of its own here.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from launch import WORKERS, Result, run

CHECKS = re.findall(r"^@check\ndef (\w+)", (WORKERS / "conformance.py").read_text(), re.MULTILINE)

CONFIGURATIONS = {
    "1 rank": (1, "gloo", {}),
    "2 ranks": (2, "gloo", {}),
    "3 ranks, explicit": (3, "netreduce", {}),
    "4 ranks": (4, "gloo", {}),
    "2 ranks, 64-bit lanes": (2, "gloo", {"NETREDUCE_PRECISION": "64"}),
    "2 ranks, no controller": (2, "gloo", {"NETREDUCE_CONTROLLER": "127.0.0.1:1"}),
}


@dataclass(frozen=True)
class Report:
    """What one configuration's ranks said."""

    errors: dict[tuple[int, str], str | None]
    """Traceback, or None, by (rank, check)."""
    attached: list[bool]
    finished: list[bool]
    trouble: str


def read(results: list[Result]) -> Report:
    """From what the ranks printed."""
    errors, attached, finished = {}, [], []
    for result in results:
        lines = [json.loads(line) for line in result.out.splitlines() if line.startswith("{")]
        errors |= {(result.rank, line["check"]): line["error"] for line in lines if "check" in line}
        attached += [line["attached"] for line in lines if "attached" in line]
        finished.append(result.code == 0 and any("finished" in line for line in lines))
    trouble = "\n".join(f"rank {r.rank}: exit code {r.code}\n{r.err[-2000:]}" for r in results)
    return Report(errors, attached, finished, trouble)


@pytest.fixture(scope="session")
def report(stack) -> Callable[[str], Report]:
    """Runs a configuration once and remembers what came out."""
    cache: dict[str, Report] = {}

    def of(configuration: str) -> Report:
        if configuration not in cache:
            world_size, backend, environment = CONFIGURATIONS[configuration]
            environment = {"NETREDUCE_CONTROLLER": stack.controller, **environment}
            results = run(["conformance.py", backend], world_size, environment)
            cache[configuration] = read(results)
        return cache[configuration]

    return of


def test_the_checks_are_found() -> None:
    assert len(CHECKS) > 20


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_all_ranks_run_to_the_end(report: Callable[[str], Report], configuration: str) -> None:
    assert all(report(configuration).finished), report(configuration).trouble


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_the_switch_is_used_where_it_can_be(report: Callable[[str], Report], configuration: str) -> None:
    world_size, _, environment = CONFIGURATIONS[configuration]
    expected = world_size > 1 and "NETREDUCE_CONTROLLER" not in environment
    assert report(configuration).attached == [expected] * world_size, report(configuration).trouble


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_check(report: Callable[[str], Report], configuration: str, check: str) -> None:
    world_size = CONFIGURATIONS[configuration][0]
    errors = report(configuration).errors
    for rank in range(world_size):
        assert (rank, check) in errors, f"rank {rank} did not get there: {report(configuration).trouble}"
        assert errors[rank, check] is None, f"rank {rank}: {errors[rank, check]}"
