"""A running switch and controller for the tests of the torch backend."""

from collections.abc import Iterator

import pytest

from netreduce.topologies.embedded import EmbeddedOptions, EmbeddedStack

SHM_PORTS = 64


@pytest.fixture(scope="session")
def stack() -> Iterator[EmbeddedStack]:
    """One embedded switch and controller for all tests here; every process group is a job of its own."""
    with EmbeddedStack(EmbeddedOptions(shm_ports=SHM_PORTS)) as running:
        yield running


@pytest.fixture
def through_switch(stack: EmbeddedStack) -> dict[str, str]:
    """Environment of a script that shall use the switch."""
    return {"NETREDUCE_CONTROLLER": stack.controller, "NETREDUCE_TRANSPORT": "shm"}
