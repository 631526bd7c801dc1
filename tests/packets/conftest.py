"""Fixtures of the packet tests: each test runs on every target that this machine has."""

from collections.abc import Iterator

import pytest

from packets.targets import Bmv2, Softswitch, Target
from packets.twin import Twin


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(Softswitch, id="softswitch"),
        pytest.param(Bmv2, id="bmv2", marks=[pytest.mark.bmv2, pytest.mark.root]),
    ],
)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    """A running switch, shared by all tests."""
    with request.param() as running:
        yield running


@pytest.fixture
def switch(target: Target) -> Iterator[Twin]:
    """The target with a fresh program beside the reference model; counters are compared at the end."""
    twin = Twin(target)
    yield twin
    twin.check_counters()
