"""Whole sessions of random calls, over a switch that loses, repeats and reorders packets."""

from collections.abc import Iterator

import pytest
from launch import run

from netreduce.topologies.embedded import EmbeddedOptions, EmbeddedStack


@pytest.fixture(scope="module")
def lossy() -> Iterator[EmbeddedStack]:
    """Few packets outstanding, so that slots are reused all the time."""
    faults = ("drop=0.02,duplicate=0.02,reorder=0.05,seed=11",)
    with EmbeddedStack(EmbeddedOptions(shm_ports=32, window=4, faults=faults)) as running:
        yield running


@pytest.mark.parametrize("seed", [1, 2])
def test_every_sum_is_right(lossy: EmbeddedStack, seed: int) -> None:
    results = run(["random_calls.py", str(seed)], 3, {"NETREDUCE_CONTROLLER": lossy.controller})
    for result in results:
        assert result.code == 0 and result.out.endswith(" calls\n"), result
