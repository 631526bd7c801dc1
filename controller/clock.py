"""Time, so that tests can set it."""

import time
from typing import Protocol

LONGEST_ROUND = 5.0
"""Seconds between two calls of `AttentiveClock.look` beyond which nobody was looking."""


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


class AttentiveClock:
    """A clock that stands still while this process does not run.

    What members reported meanwhile (the machine was suspended, the process stopped or starved) still
    waits to be read when it runs again, so that their silence must not be measured by a clock that went on.
    """

    def __init__(self, clock: Clock):
        self._clock = clock
        self._looked_at = clock.monotonic()
        self._missed = 0.0

    def look(self) -> float:
        """To be called all the time, far more often than every `LONGEST_ROUND`; returns the seconds that
        were missed since the last call."""
        now = self._clock.monotonic()
        gap, self._looked_at = now - self._looked_at, now
        missed = max(gap - LONGEST_ROUND, 0.0)
        self._missed += missed
        return missed

    def monotonic(self) -> float:
        """For durations; never goes back, and never runs more than `LONGEST_ROUND` ahead of the last look."""
        return min(self._clock.monotonic(), self._looked_at + LONGEST_ROUND) - self._missed

    def time(self) -> float:
        """Unix time, for people."""
        return self._clock.time()
