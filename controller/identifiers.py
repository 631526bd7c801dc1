"""Numbers that name things on the switch: streams, wire jobs, generations."""

import time
from collections import deque

WIRE_JOBS = 1 << 16
GENERATIONS = 1 << 32
TICKS_PER_SECOND = 64


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
    """32-bit generations, none of which comes again for two years, over restarts too.

    A generation is a reading of the clock in ticks of 1/64 s, modulo 2^32 and never 0, or the number after
    the last one where that is larger.  So a restarted controller begins beyond what an earlier one used,
    unless that one admitted more than 64 jobs a second all its life, which no switch could take; and
    ``observe`` covers the entries that it left on a switch.
    """

    def __init__(self, clock=time.time):
        self._clock = clock
        self._last: int | None = None

    def take(self) -> int:
        """A generation that is not in any slot."""
        now = int(self._clock() * TICKS_PER_SECOND) % GENERATIONS
        following = now if self._last is None else (self._last + 1) % GENERATIONS
        self._last = following if _ahead(following, now) else now
        if self._last == 0:
            self._last = 1
        return self._last

    def observe(self, generation: int) -> None:
        """A generation found on a switch: later ones are ahead of it."""
        if self._last is None or _ahead(generation, self._last):
            self._last = generation


def _ahead(one: int, other: int) -> bool:
    """Whether a generation is later than another, or the same (serial numbers, RFC 1982)."""
    return (one - other) % GENERATIONS < GENERATIONS // 2
