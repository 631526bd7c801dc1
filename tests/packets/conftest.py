"""Fixtures of the packet tests."""

from collections.abc import Iterator

import pytest

from packets.fixtures import target
from packets.targets import Target
from packets.twin import Twin

__all__ = ["switch", "target"]


@pytest.fixture
def switch(target: Target) -> Iterator[Twin]:
    """The target with a fresh program beside the reference model; counters are compared at the end."""
    twin = Twin(target)
    yield twin
    twin.check_counters()
