"""Numbers that name things on the switch: streams, wire jobs, generations."""

import time
from collections import deque

WIRE_JOBS = 1 << 16
GENERATIONS = 1 << 32


class NumberPool:
    """A set of numbers (stream numbers, shm ports), each in use at most once.

    The one given back longest ago is taken first, so that whatever is still under way to its last user
    has the most time to arrive.
    """

    def __init__(self, numbers: range | list[int]):
        self._free = deque(numbers)
        self._all = frozenset(numbers)

    @property
    def available(self) -> int:
        """Numbers not in use."""
        return len(self._free)

    def take(self) -> int:
        """A number not in use.  Raises LookupError when there is none."""
        if not self._free:
            raise LookupError("all numbers are in use")
        return self._free.popleft()

    def reserve(self, number: int) -> None:
        """Mark a number found on the switch as used.  Raises ValueError when it is used or unknown."""
        self._free.remove(number)

    def give_back(self, number: int) -> None:
        """The number may be taken again.  Raises ValueError when it was not in use."""
        if number not in self._all or number in self._free:
            raise ValueError(f"{number} is not in use")
        self._free.append(number)


class WireJobs:
    """NR.job values: 1 … 65535, in turn, so that one is reused only after all the others.

    The first one is derived from the time: a restarted controller does not begin with those of the jobs
    that ran before it, whose packets may still be under way.
    """

    def __init__(self, start: int | None = None):
        self._next = int(time.time()) if start is None else start
        self._used: set[int] = set()

    def take(self) -> int:
        """The next value not in use.  Raises LookupError when all are."""
        for _ in range(WIRE_JOBS - 1):
            value = self._next % (WIRE_JOBS - 1) + 1
            self._next += 1
            if value not in self._used:
                self._used.add(value)
                return value
        raise LookupError("all wire job numbers are in use")

    def reserve(self, value: int) -> None:
        """Mark a value found on a switch as used."""
        self._used.add(value)

    def give_back(self, value: int) -> None:
        """The value may be used again, after all the others."""
        self._used.discard(value)


class Generations:
    """32-bit generations that only grow, over restarts too: never below the Unix time in seconds.

    Uniqueness over restarts holds as long as fewer jobs start than seconds pass, and ``observe`` covers
    the entries that an earlier controller left on a switch.
    """

    def __init__(self, clock=time.time):
        self._clock = clock
        self._last = 0

    def take(self) -> int:
        """A generation that was never used.  Raises OverflowError in the year 2106."""
        self._last = max(self._last + 1, int(self._clock()))
        if self._last >= GENERATIONS:
            raise OverflowError("generations are exhausted")
        return self._last

    def observe(self, generation: int) -> None:
        """A generation found on a switch: later ones are larger."""
        self._last = max(self._last, generation)
