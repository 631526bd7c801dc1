"""DistributedDataParallel through the switch trains the same model as through plain Gloo."""

import re

import pytest
from launch import WORKERS, Result, run

CASES = re.findall(r'^    "(\w+)": \(', (WORKERS / "ddp.py").read_text(), re.MULTILINE)


@pytest.fixture(scope="module", params=["gloo", "netreduce"])
def results(request: pytest.FixtureRequest, stack) -> list[Result]:
    return run(["ddp.py", request.param], 2, {"NETREDUCE_CONTROLLER": stack.controller})


def test_runs_to_the_end(results: list[Result]) -> None:
    for result in results:
        assert result.code == 0 and result.out.endswith("finished\n"), result
        assert "fork" not in result.err, result


@pytest.mark.parametrize("case", CASES)
def test_trains_the_same_model(results: list[Result], case: str) -> None:
    for result in results:
        assert f"\n{case} same switch\n" in "\n" + result.out, result


def test_forked_data_loader_workers(results: list[Result]) -> None:
    for result in results:
        assert "\ndata_loader_workers same\n" in result.out, result
