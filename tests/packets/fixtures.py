"""What the tests of several folders run on: every target that this machine has."""

from collections.abc import Iterator

import pytest

from packets.targets import Bmv2, Softswitch, Target


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
