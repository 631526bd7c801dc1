"""How the ranks of one process group decide together, over the c10d store, whether to use the switch.

Rank 0 names the job and its terms; every rank reports whether it can take part; rank 0 decides and
writes the decision down, so that no rank can see another one.
"""

from __future__ import annotations

import json
import secrets
import time
from datetime import timedelta
from typing import Any

from netreduce.host_agent.options import Options

DECISION_MARGIN = timedelta(seconds=10)
"""Beyond what rank 0 may take to hear from every rank."""

CAUSE_PATIENCE = timedelta(seconds=2)
"""How long a rank whose obstacle may be the cause of another's is waited for."""

HEARSAY = "\0"
"""In front of an obstacle in the store, when it is one."""

SHORTEST_WAIT = timedelta(milliseconds=100)
"""c10d stores take a timeout of zero for none."""


class Disagreement(Exception):
    """The ranks cannot use the switch together; the message says why."""


class Agreement:
    """One process group's negotiation.

    Args:
        store: ``torch.distributed.Store`` of this process group alone.
        rank: of this process.
        size: of the group.
        patience: how long to wait for the other ranks.
    """

    def __init__(self, store: Any, rank: int, size: int, patience: timedelta) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._patience = patience

    def open(self, options: Options) -> str:
        """The group's identifier, which is never used twice, from rank 0.

        Raises:
            Disagreement: rank 0 says nothing, or has other settings.
        """
        if self._rank == 0:
            group = secrets.token_hex(16)
            self._store.set("terms", json.dumps([group, options.terms]))
            return group
        if not self._wait("terms", self._patience):
            raise Disagreement(
                f"rank 0 said nothing within {self._patience.total_seconds():g} s; "
                "is netreduce installed and NETREDUCE_CONTROLLER set there?"
            )
        group, terms = json.loads(self._store.get("terms"))
        for variable, mine in options.terms.items():
            if terms.get(variable) != mine:
                raise Disagreement(
                    f"rank {self._rank} has {variable}={mine} and rank 0 has {terms.get(variable)}; "
                    "set it to the same on all ranks"
                )
        return group

    def decide(
        self,
        question: str,
        obstacle: str | None,
        patience: timedelta = timedelta(0),
        hearsay: bool = False,
    ) -> str | None:
        """What stands in the way; the same on all ranks; None: nothing.

        Args:
            question: what is decided, once per group.
            obstacle: this rank's reason against it, or None.
            patience: how much longer than usual the ranks may take to get here.
            hearsay: the obstacle was told to this rank and may be no more than the consequence of another
                rank's, which then is the one that counts.

        Raises:
            RuntimeError: rank 0 wrote no decision, so it has died or stopped.
        """
        patience += self._patience
        self._store.set(f"{question}/{self._rank}", f"{HEARSAY if hearsay else ''}{obstacle or ''}")
        if self._rank == 0:
            decision = self._first_obstacle(question, patience)
            self._store.set(f"{question}/decision", decision)
            return decision or None
        if self._never_opened(obstacle):
            return obstacle
        if not self._wait(f"{question}/decision", 2 * patience + DECISION_MARGIN):
            raise RuntimeError("netreduce: rank 0 did not say whether the ranks use the switch; has it died?")
        return self._store.get(f"{question}/decision").decode() or None

    def _first_obstacle(self, question: str, patience: timedelta) -> str:
        deadline = time.monotonic() + patience.total_seconds()
        rumour = ""
        for rank in range(self._size):
            key = f"{question}/{rank}"
            if rumour:
                deadline = min(deadline, time.monotonic() + CAUSE_PATIENCE.total_seconds())
            left = max(deadline - time.monotonic(), SHORTEST_WAIT.total_seconds())
            if not self._wait(key, timedelta(seconds=left)):
                if rumour:
                    continue
                return (
                    f"rank {rank} did not take part; "
                    "is netreduce installed and NETREDUCE_CONTROLLER set there?"
                )
            obstacle = self._store.get(key).decode()
            if obstacle and not obstacle.startswith(HEARSAY):
                return obstacle
            rumour = rumour or obstacle.removeprefix(HEARSAY)
        return rumour

    def _never_opened(self, obstacle: str | None) -> bool:
        # Where rank 0 is no part of this, no rank can have gone on. Where it is merely late, it will
        # find this rank's obstacle.
        return obstacle is not None and not self._store.check(["terms"])

    def _wait(self, key: str, patience: timedelta) -> bool:
        try:
            self._store.wait([key], patience)
        except Exception:  # c10d stores raise RuntimeError or DistStoreError for a timeout
            return False
        return True
