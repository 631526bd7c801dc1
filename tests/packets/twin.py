"""A target and the reference model side by side: both get the same, and must do the same."""

from collections import defaultdict
from collections.abc import Sequence

from netreduce.p4.wire import Cause
from packets.entries import Entry
from packets.reference import ReferenceSwitch
from packets.targets import BASIC_FORWARDING, Target


class Twin:
    """Every frame sent is checked against the model: same frames out of the same ports, in order.

    Attributes:
        causes: what the packets of this twin were counted under, by the model.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.model = ReferenceSwitch()
        target.restart_program()
        for entry in BASIC_FORWARDING:
            self.model.write(entry)

    def write(self, *entries: Entry) -> None:
        self.target.write(*entries)
        for entry in entries:
            self.model.write(entry)

    def modify(self, *entries: Entry) -> None:
        self.target.modify(*entries)
        for entry in entries:
            self.model.write(entry)

    def delete(self, *entries: Entry) -> None:
        self.target.delete(*entries)
        for entry in entries:
            self.model.delete(entry)

    def send(self, port: int, *frames: bytes) -> dict[int, list[bytes]]:
        """Sends frames into a port; returns what came out, by port, after comparing it with the model."""
        actual = self.target.exchange(port, frames)
        expected: dict[int, list[bytes]] = defaultdict(list)
        for frame in frames:
            copies: dict[int, list[bytes]] = defaultdict(list)
            for to, output in self.model.receive(port, frame):
                copies[to].append(output)
            for to, outputs in copies.items():
                # Several replicas of one packet out of one port have no order among them.
                begin = len(expected[to])
                arrived = actual.get(to, [])[begin : begin + len(outputs)]
                expected[to] += arrived if sorted(arrived) == sorted(outputs) else outputs
        assert describe(actual) == describe(expected)
        assert actual == expected
        return actual

    def send_counted(self, port: int, frame: bytes) -> tuple[int, Cause]:
        """Sends a packet to a NetReduce port; returns (stream, cause) of its one count."""
        before = self.model.packets.copy()
        self.send(port, frame)
        (counted,) = (self.model.packets - before).elements()
        return counted

    def check_counters(self) -> None:
        """All cells of all counters, in packets and bytes."""
        expected = {key: (count, self.model.bytes[key]) for key, count in self.model.packets.items()}
        assert self.target.causes() == expected
        assert self.target.delivered() == {key: n for key, n in self.model.delivered.items() if n}


def describe(outputs: dict[int, list[bytes]] | dict[int, Sequence[bytes]]) -> dict[int, list[str]]:
    """Outputs in a form whose differences can be read: headers in hex, payload by length and hash."""
    return {
        port: [f"{frame[:58].hex(' ', 2)} + {len(frame) - 58} bytes" for frame in frames]
        for port, frames in sorted(outputs.items())
    }
