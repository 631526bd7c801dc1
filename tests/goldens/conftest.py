"""The targets on which the traces are replayed."""

import pytest

from packets.fixtures import BMV2, SOFTSWITCH, SOFTSWITCH_ON_INTERFACES, running

target = pytest.fixture(scope="session", params=[SOFTSWITCH, SOFTSWITCH_ON_INTERFACES, BMV2])(running)
