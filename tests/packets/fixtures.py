"""What the tests of several folders run on: every target that this machine has."""

from collections.abc import Iterator

import pytest

from packets.targets import Bmv2, Softswitch, SoftswitchOnInterfaces, Target

SOFTSWITCH = pytest.param(Softswitch, id="softswitch")
SOFTSWITCH_ON_INTERFACES = pytest.param(SoftswitchOnInterfaces, id="interfaces", marks=pytest.mark.root)
BMV2 = pytest.param(Bmv2, id="bmv2", marks=[pytest.mark.bmv2, pytest.mark.root])


def running(request: pytest.FixtureRequest) -> Iterator[Target]:
    """Body of a fixture: a running switch of the class that the test is parametrised with."""
    with request.param() as target:
        yield target
