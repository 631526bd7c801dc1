"""Time, so that tests can set it."""

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings in seconds."""

    def monotonic(self) -> float:
        """For durations; never goes back."""

    def time(self) -> float:
        """Unix time, for people."""


class SystemClock:
    """The machine's clocks."""

    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)
