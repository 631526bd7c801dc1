"""Finds out why a call does not finish: ranks in different calls, a rank that left, a silent switch.

Ranks in one call meet in the switch, which notices unlike arguments at once.  Ranks of which one calls
the switch and another calls Gloo, or has left, never meet; so a rank whose call takes long says in the
c10d store what it waits in, and reads what the others say.  And a rank that has called no collective for as
long says which ones it has called, since it may be waiting in one of Gloo's.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

STALL_AFTER = timedelta(seconds=4)
"""How long a call may take before the ranks compare notes."""

SILENT_AFTER = timedelta(seconds=30)
"""How long no result may come from the switch while all ranks are in the same call."""

FORWARDED_AFTER = timedelta(seconds=5)
"""The same, when the switch forwards the ranks' packets instead: it knows nothing of the job."""

ALL_REDUCE = "all_reduce"
"""What all-reduces are called in a list of collectives."""

HANDSHAKE = timedelta(seconds=3)
"""How long a rank that found a disagreement waits for the other to find it too."""


class Store(Protocol):
    """The part of ``torch.distributed.Store`` that is used here."""

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes: ...
    def check(self, keys: list[str]) -> bool: ...
    def wait(self, keys: list[str], timeout: timedelta) -> None: ...


@dataclass(frozen=True)
class Running:
    """The call that a rank is in."""

    number: int
    description: str
    signature: str
    """Equal on all ranks of a correct program."""
    seconds: float
    """Since the call began."""
    results: int
    """Results that this rank has received in all its calls."""
    unaggregated: int
    """Packets that this rank has received as its ring predecessor sent them."""
    collective: int
    """The call's place among the group's collectives, whoever does them; 1 is the first."""


class StallWatch:
    """One rank's view of a process group's stalls.

    Args:
        store: shared by the ranks of this process group alone.
        rank: of this process.
        size: of the group.
        switch: name of the switch, for messages.
    """

    def __init__(self, store: Store, rank: int, size: int, switch: str) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._switch = switch
        self._last_results = -1
        self._silent_since = 0.0
        self._unaggregated = 0
        self._number = 0
        self._count = 0
        self._count_since = 0.0
        self._published = 0

    def observe(self, count: int, collectives: Callable[[], tuple[int, list[str]]], now: float) -> None:
        """To be called about once a second, with the number of the group's collectives so far.

        Args:
            count: how many collectives this rank has called.
            collectives: their latest names, as ``(number of the first, names)``.
            now: seconds of a monotonic clock.
        """
        if count != self._count:
            self._count, self._count_since = count, now
        elif count != self._published and now - self._count_since >= STALL_AFTER.total_seconds():
            self._store.set(f"log/{self._rank}", json.dumps(collectives()))
            self._published = count

    def leave(self, submitted: int) -> None:
        """Tell the others that this rank leaves after ``submitted`` calls."""
        self._store.set(f"left/{self._rank}", str(submitted))

    def check(self, running: Running) -> str | None:
        """Why ``running`` can never finish, or None: it may.  To be called about once a second.

        Raises whatever the store raises when its host is gone.
        """
        if running.number != self._number or running.results != self._last_results:
            self._number = running.number
            self._last_results = running.results
            self._silent_since = running.seconds
            self._unaggregated = running.unaggregated
        if running.seconds < STALL_AFTER.total_seconds():
            return None
        self._store.set(
            f"stall/{self._rank}",
            json.dumps([running.number, running.signature, running.description]),
        )
        same = 1
        for peer in range(self._size):
            if peer == self._rank:
                continue
            if self._store.check([f"left/{peer}"]):
                submitted = int(self._store.get(f"left/{peer}"))
                if submitted < running.number:
                    return (
                        f"rank {peer} left the process group after call {submitted}, "
                        f"so call {running.number}, {running.description}, can never finish"
                    )
            other = self._collective_of(peer, running.collective)
            if other not in (None, ALL_REDUCE):
                return (
                    f"the ranks disagree on collective {running.collective} of this process group: rank "
                    f"{self._rank}: call {running.number}, {running.description}; rank {peer}: {other}; make "
                    "all ranks call the same collectives in the same order"
                )
            if not self._store.check([f"stall/{peer}"]):
                continue
            number, signature, description = json.loads(self._store.get(f"stall/{peer}"))
            if number != running.number:
                continue
            if signature != running.signature:
                self._let_them_see(peer)
                return (
                    f"the ranks disagree on call {number}: rank {self._rank}: {running.description}; "
                    f"rank {peer}: {description}; make all ranks call all_reduce in the same order with "
                    "equal element counts, dtypes and ops"
                )
            same += 1
        silent = running.seconds - self._silent_since
        forwarded = running.unaggregated - self._unaggregated
        if same == self._size and forwarded and silent >= FORWARDED_AFTER.total_seconds():
            return (
                f"switch {self._switch} does not know this job any more: it forwarded {forwarded} packets of "
                f"{running.description} unaggregated, and sent no result for {silent:.0f} s; see "
                "`netreduce ctl switches`, and restart the job"
            )
        if same == self._size and silent >= SILENT_AFTER.total_seconds():
            return (
                f"switch {self._switch} sent no result for {silent:.0f} s while all {self._size} ranks were "
                f"in call {running.number}, {running.description}; see `netreduce ctl switches`, and restart "
                "the job"
            )
        return None

    def _collective_of(self, peer: int, number: int) -> str | None:
        """The name of ``peer``'s collective of that number; None: not known, or not called yet."""
        if not self._store.check([f"log/{peer}"]):
            return None
        first, names = json.loads(self._store.get(f"log/{peer}"))
        return names[number - first] if 0 <= number - first < len(names) else None

    def _let_them_see(self, peer: int) -> None:
        # Whoever gives up first ends its process and with it the other's Gloo connection, and then the
        # other would report that instead of the disagreement.
        self._store.set(f"seen/{self._rank}", "")
        with contextlib.suppress(Exception):
            self._store.wait([f"seen/{peer}"], HANDSHAKE)
