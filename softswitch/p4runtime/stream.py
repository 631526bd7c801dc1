"""One controller's StreamChannel: what waits to be sent to it."""

from __future__ import annotations

import queue
from collections.abc import Iterator

from .errors import P4RuntimeError, resource_exhausted
from .protos import p4r

MAX_WAITING = 1024
"""Packet-ins and stream errors beyond this many are dropped: the controller is too slow.  Arbitration
updates must not be; a controller that lets so many pile up has its stream ended."""


_Waiting = p4r.StreamMessageResponse | P4RuntimeError | None


class Stream:
    """A queue between the threads that have something to say and the one that writes to the network."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[_Waiting] = queue.SimpleQueue()
        self.ended = False

    def send(self, message: p4r.StreamMessageResponse) -> None:
        if self.ended:
            return
        if self._waiting.qsize() >= 2 * MAX_WAITING:
            self.end(resource_exhausted("this controller does not read what the switch sends it"))
        else:
            self._waiting.put(message)

    def offer(self, message: p4r.StreamMessageResponse) -> bool:
        """Sends something that may be lost."""
        if self._waiting.qsize() >= MAX_WAITING:
            return False
        self._waiting.put(message)
        return True

    def end(self, error: P4RuntimeError | None = None) -> None:
        """Ends the stream once everything before is sent, with a status if there was an error."""
        self.ended = True
        self._waiting.put(error)

    def messages(self) -> Iterator[p4r.StreamMessageResponse]:
        """Until the end; raises the error it ended with."""
        while (message := self._waiting.get()) is not None:
            if isinstance(message, P4RuntimeError):
                raise message
            yield message
