"""First-fit allocation of contiguous aggregator slots."""

from dataclasses import dataclass


class NoRoom(Exception):
    """No gap is large enough.  The message says how much is free and how much of it in one piece."""


@dataclass(frozen=True, order=True)
class SlotRange:
    """``count`` slots from ``first`` on."""

    first: int
    count: int

    @property
    def end(self) -> int:
        """The slot after the last one."""
        return self.first + self.count


class SlotAllocator:
    """The slots 0 … total-1 of one switch.

    First fit keeps the high end free for large requests; ranges are few (at most one per stream), so
    the list of used ranges is searched linearly.
    """

    def __init__(self, total: int):
        self.total = total
        self._used: list[SlotRange] = []

    @property
    def used(self) -> int:
        """Slots allocated."""
        return sum(r.count for r in self._used)

    def allocate(self, count: int) -> SlotRange:
        """The lowest free range of ``count`` slots.  Raises NoRoom, or ValueError for count < 1."""
        if count < 1:
            raise ValueError(f"cannot allocate {count} slots")
        largest = position = 0
        for index, taken in enumerate([*self._used, SlotRange(self.total, 0)]):
            gap = taken.first - position
            if gap >= count:
                found = SlotRange(position, count)
                self._used.insert(index, found)
                return found
            largest = max(largest, gap)
            position = taken.end
        raise NoRoom(
            f"{count} slots are needed in one piece; of {self.total} slots {self.total - self.used} are free,"
            f" the largest piece has {largest}"
        )

    def reserve(self, taken: SlotRange) -> None:
        """Mark a range found on the switch as used.  Raises ValueError when part of it is used already
        or outside the switch's slots."""
        outside = taken.first < 0 or taken.count < 1 or taken.end > self.total
        if outside or any(r.first < taken.end and taken.first < r.end for r in self._used):
            raise ValueError(f"slots {taken.first} to {taken.end - 1} are not free")
        self._used = sorted([*self._used, taken])

    def free(self, taken: SlotRange) -> None:
        """Give back a range that was allocated or reserved.  Raises ValueError for any other."""
        try:
            self._used.remove(taken)
        except ValueError:
            raise ValueError(f"slots {taken.first} to {taken.end - 1} are not one allocated range") from None
