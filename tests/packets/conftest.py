"""Fixtures of the packet tests."""

from collections.abc import Iterator

import pytest

from packets.fixtures import BMV2, SOFTSWITCH, running
from packets.targets import Target
from packets.twin import Twin

target = pytest.fixture(scope="session", params=[SOFTSWITCH, BMV2])(running)


@pytest.fixture
def switch(target: Target) -> Iterator[Twin]:
    """The target with a fresh program beside the reference model; counters are compared at the end."""
    twin = Twin(target)
    yield twin
    twin.check_counters()
