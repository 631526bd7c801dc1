"""The switch of docs/protocol.md in plain Python: a frame goes in, frames come out, causes are counted.

It is the specification in executable form, written for reading: slots are objects, lanes are Python
integers, and nothing here follows the P4 program's way of doing it.
"""

from collections import Counter
from dataclasses import dataclass, field

from netreduce.p4 import wire
from netreduce.p4.wire import Cause, Kind, Op
from packets.entries import (
    Connection,
    Discarded,
    Entry,
    Flooded,
    Group,
    Rewrite,
    Station,
    UnknownStations,
)

ETHERNET = slice(0, 14)
IPV4 = slice(14, 34)
UDP = slice(34, 42)
NR = slice(42, 58)


@dataclass
class Slot:
    """State for one stream index; ``blocks`` has only what some contribution to it had."""

    generation: int
    k: int
    seen: set[int] = field(default_factory=set)
    done: bool = False
    blocks: list[bytes] = field(default_factory=list)


def combine(op: int, lane_bits: int, a: bytes, b: bytes) -> bytes:
    """One block: lanes added modulo their width, or bits ORed."""
    if op == Op.OR:
        return bytes(x | y for x, y in zip(a, b, strict=True))
    size = lane_bits // 8
    lanes = (
        (int.from_bytes(a[i : i + size], "big") + int.from_bytes(b[i : i + size], "big")) % (1 << lane_bits)
        for i in range(0, len(a), size)
    )
    return b"".join(lane.to_bytes(size, "big") for lane in lanes)


def internet_checksum(header: bytes) -> int:
    """RFC 1071 over a header whose checksum field is zero."""
    total = sum(int.from_bytes(header[i : i + 2], "big") for i in range(0, len(header), 2))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def is_behind(k: int, other: int) -> bool:
    """Whether ``k`` is older than ``other`` in 32-bit serial number arithmetic (RFC 1982)."""
    return (k - other) % 2**32 >= 2**31


class ReferenceSwitch:
    """``receive`` takes what comes in on a port and returns what goes out, as (port, frame) pairs."""

    def __init__(self) -> None:
        self.connections: dict[tuple[int, int], Connection] = {}
        self.stations: dict[int, Station | Flooded | Discarded] = {}
        self.rewrites: dict[tuple[int, int], Rewrite] = {}
        self.groups: dict[int, Group] = {}
        self.unknown = UnknownStations(0)
        self.slots: dict[int, Slot] = {}
        self.packets: Counter[tuple[int, Cause]] = Counter()
        self.bytes: Counter[tuple[int, Cause]] = Counter()
        self.delivered: Counter[tuple[int, int]] = Counter()

    def write(self, entry: Entry) -> None:
        """Inserts an entry, or replaces the one with the same key."""
        match entry:
            case Connection():
                self.connections[entry.job, entry.rank] = entry
            case Station() | Flooded() | Discarded():
                self.stations[entry.destination] = entry
            case Rewrite():
                self.rewrites[entry.stream, entry.rank] = entry
                self.delivered.pop((entry.stream, entry.rank), None)
            case Group():
                self.groups[entry.number] = entry
            case UnknownStations():
                self.unknown = entry

    def delete(self, entry: Entry) -> None:
        """Removes an entry."""
        match entry:
            case Connection():
                del self.connections[entry.job, entry.rank]
            case Station() | Flooded() | Discarded():
                del self.stations[entry.destination]
            case Rewrite():
                del self.rewrites[entry.stream, entry.rank]
                self.delivered.pop((entry.stream, entry.rank), None)
            case Group():
                del self.groups[entry.number]
            case UnknownStations():
                self.unknown = UnknownStations(0)

    def receive(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        if len(frame) < wire.ETHERNET_HEADER_BYTES:
            return []
        if not self._is_for_netreduce_port(frame):
            return self._forward(port, frame)
        if not self._has_magic(frame):
            self._count(0, Cause.MALFORMED, frame)
            return self._forward(port, frame)
        if not self._is_well_formed(frame):
            self._count(0, Cause.MALFORMED, frame)
            return []
        nr = frame[NR]
        connection = self.connections.get((int.from_bytes(nr[4:6], "big"), nr[6]))
        if connection is None:
            self._count(0, Cause.UNKNOWN, frame)
            return self._forward(port, frame)
        if port != connection.port or int.from_bytes(frame[26:30], "big") != connection.source:
            self._count(connection.stream, Cause.SPOOFED, frame)
            return []
        cause, outputs = self._contribute(connection, frame)
        self._count(connection.stream, cause, frame)
        return outputs

    @staticmethod
    def _is_for_netreduce_port(frame: bytes) -> bool:
        if len(frame) < UDP.stop or frame[12:14] != b"\x08\x00":
            return False
        ip = frame[IPV4]
        is_fragment = int.from_bytes(ip[6:8], "big") & 0x3FFF != 0
        if ip[0] != 0x45 or is_fragment or ip[9] != 17:
            return False
        to = int.from_bytes(frame[36:38], "big")
        return wire.UDP_PORT_FIRST <= to < wire.UDP_PORT_FIRST + wire.UDP_PORT_COUNT

    @staticmethod
    def _has_magic(frame: bytes) -> bool:
        if int.from_bytes(frame[38:40], "big") < 8 + 3 or len(frame) < NR.start + 3:
            return False
        return frame[42:44] == b"NR" and frame[44] >> 4 == wire.NR_VERSION

    @staticmethod
    def _is_well_formed(frame: bytes) -> bool:
        payload = len(frame) - wire.FRAME_OVERHEAD_BYTES
        return (
            payload in {count * wire.BLOCK_BYTES for count in wire.BLOCK_COUNTS}
            and int.from_bytes(frame[16:18], "big") == len(frame) - 14
            and int.from_bytes(frame[38:40], "big") == len(frame) - 34
            and frame[44] & 0xF == Kind.CONTRIBUTION
            and frame[45] in (Op.SUM, Op.OR)
        )

    def _contribute(self, connection: Connection, frame: bytes) -> tuple[Cause, list[tuple[int, bytes]]]:
        op, k = frame[45], int.from_bytes(frame[50:54], "big")
        body = frame[NR.stop :]
        blocks = [body[i : i + wire.BLOCK_BYTES] for i in range(0, len(body), wire.BLOCK_BYTES)]
        rank = connection.rank
        number = connection.slot_base + (k & connection.slot_mask)
        slot = self.slots.get(number)

        if slot is not None and slot.generation == connection.generation:
            if slot.k == k and slot.done:
                answer = [*slot.blocks[: len(blocks)], *blocks[len(slot.blocks) :]]
                result = self._result(connection, frame, b"".join(answer))
                return Cause.DUPLICATE_ANSWERED, self._rewrite(connection, rank, connection.port, result)
            if slot.k == k and connection.rank_bit in slot.seen:
                return Cause.DUPLICATE_ABSORBED, []
            if is_behind(k, slot.k):
                return Cause.STALE, []
        first = slot is None or (slot.generation, slot.k) != (connection.generation, k)
        if first:
            slot = self.slots[number] = Slot(connection.generation, k)

        slot.seen.add(connection.rank_bit)
        for index, block in enumerate(blocks):
            if index < len(slot.blocks):
                slot.blocks[index] = combine(op, connection.lane_bits, slot.blocks[index], block)
            else:
                slot.blocks.append(block)
        if sum(slot.seen) != connection.full:
            return Cause.FIRST if first else Cause.ADDED, []

        slot.done = True
        result = self._result(connection, frame, b"".join(slot.blocks[: len(blocks)]))
        outputs: list[tuple[int, bytes]] = []
        for port, instance in self._replicas(connection.group):
            outputs += self._rewrite(connection, instance, port, result)
        return Cause.COMPLETED, outputs

    @staticmethod
    def _result(connection: Connection, frame: bytes, body: bytes) -> bytes:
        """The contribution with the combined blocks instead of its own."""
        nr = bytearray(frame[NR])
        nr[2] = wire.NR_VERSION << 4 | Kind.RESULT
        nr[12:14] = connection.ranks.to_bytes(2, "big")
        return frame[: NR.start] + bytes(nr) + body

    def _rewrite(self, connection: Connection, rank: int, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """The frame as it looks when ``rank`` receives it from its predecessor."""
        entry = self.rewrites.get((connection.stream, rank))
        if entry is None:
            return []
        self.delivered[connection.stream, rank] += 1
        ip = bytearray(frame[IPV4])
        ip[10:12] = b"\0\0"
        ip[12:16] = entry.source_ip.to_bytes(4, "big")
        ip[16:20] = entry.destination_ip.to_bytes(4, "big")
        ip[10:12] = internet_checksum(bytes(ip)).to_bytes(2, "big")
        udp = bytearray(frame[UDP])
        udp[0:2] = entry.source_port.to_bytes(2, "big")
        udp[2:4] = entry.destination_port.to_bytes(2, "big")
        udp[6:8] = b"\0\0"
        nr = bytearray(frame[NR])
        nr[6] = entry.predecessor
        macs = entry.destination_mac.to_bytes(6, "big") + entry.source_mac.to_bytes(6, "big")
        return [(port, macs + frame[12:14] + bytes(ip + udp + nr) + frame[NR.stop :])]

    def _forward(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        match self.stations.get(int.from_bytes(frame[0:6], "big"), self.unknown):
            case Station() as station:
                return [(station.port, frame)]
            case Flooded(group=group) | UnknownStations(group=group):
                return [(to, frame) for to, _ in self._replicas(group) if to != port]
        return []

    def _replicas(self, group: int) -> tuple[tuple[int, int], ...]:
        return self.groups[group].replicas if group in self.groups else ()

    def _count(self, stream: int, cause: Cause, frame: bytes) -> None:
        self.packets[stream, cause] += 1
        self.bytes[stream, cause] += len(frame)
