"""The inputs of the golden traces. They are recorded with the outputs; replaying does not use this module."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from goldens.trace import ReadCounters, Send, Step, Write
from netreduce.p4 import wire
from netreduce.p4.wire import Kind, Op
from packets.entries import Discarded, Flooded, Group, Station, UnknownStations
from packets.frames import lanes, other_traffic
from packets.jobs import Job
from packets.targets import PORTS

SCRIPTS: dict[str, Callable[[], Iterator[Step]]] = {}


def script(function: Callable[[], Iterator[Step]]) -> Callable[[], Iterator[Step]]:
    SCRIPTS[function.__name__] = function
    return function


def contribution(job: Job, rank: int, k: int, blocks: bytes, **options: int) -> Send:
    return Send(job.port(rank), (job.packet(rank, k, blocks, **options),))


@script
def slot_life() -> Iterator[Step]:
    """Every row of the slot protocol, on one window that goes round several times."""
    job = Job(ranks=3, window=2)
    yield Write(tuple(job.entries()))
    for k in range(10):
        for rank in (k % 3, (k + 2) % 3, (k + 1) % 3):
            yield contribution(job, rank, k, lanes([k, -rank, 2**31 - 1], 32, 1), ttl=60 + rank, ip_id=k)
            yield contribution(job, rank, k, lanes([k, -rank, 2**31 - 1], 32, 1))
        yield contribution(job, k % 3, k - 4, lanes([9], 32, 1))
    yield contribution(job, 1, 14, lanes([1], 32, 1))  # takes over the slot of 10
    yield contribution(job, 0, 10, lanes([1], 32, 1))
    yield contribution(job, 0, 14 + 2**31, lanes([1], 32, 1))
    yield Write(tuple(replace(job, generation=job.generation + 1).connection(r) for r in range(3)), "modify")
    for rank in range(3):
        yield contribution(job, rank, 14, lanes([4], 32, 1))
    yield Write((job.connection(2),), "delete")
    yield contribution(job, 2, 14, lanes([4], 32, 1))
    yield ReadCounters()


@script
def lanes_and_blocks() -> Iterator[Step]:
    """Random blocks in every size and lane width, summed and ORed."""
    for stream, bits in enumerate((16, 32, 64), 1):
        job = Job(number=stream, stream=stream, ranks=2, window=4, slot_base=8 * stream, lane_bits=bits)
        yield Write(tuple(job.entries()))
        sizes = wire.BLOCK_COUNTS if bits == 32 else (1, 4)
        for k, (blocks, op) in enumerate((blocks, op) for op in (Op.SUM, Op.OR) for blocks in sizes):
            for rank in range(2):
                data = random.Random(f"{bits} {k} {rank}").randbytes(blocks * wire.BLOCK_BYTES)
                yield contribution(job, rank, k, data, op=op)
    yield ReadCounters()


@script
def unequal_sizes() -> Iterator[Step]:
    """Ranks that disagree on a packet's size, over slots that hold older blocks."""
    job = Job(ranks=2, window=1)
    yield Write(tuple(job.entries()))
    sizes = [(4, 4), (1, 2), (2, 2), (4, 1), (4, 2), (2, 4)]
    for k, pair in enumerate(sizes):
        for rank, blocks in enumerate(pair):
            data = random.Random(f"{k} {rank}").randbytes(blocks * wire.BLOCK_BYTES)
            yield contribution(job, rank, 2 * k, data, op=Op.OR if k % 2 else Op.SUM)
        for blocks in (1, 4):
            yield contribution(job, 0, 2 * k, bytes([k]) * (blocks * wire.BLOCK_BYTES))
    yield ReadCounters()


@script
def wrap_around() -> Iterator[Step]:
    """The stream index passes 2^16, 2^24, 2^31 and 2^32."""
    for stream, wrap in enumerate((2**16, 2**24, 2**31, 2**32), 1):
        job = Job(number=stream, stream=stream, ranks=2, window=1, slot_base=2 * stream)
        yield Write(tuple(job.entries()))
        for k in range(wrap - 3, wrap + 3):
            for rank in range(2):
                yield contribution(job, rank, k, lanes([k, rank], 32, 1))
            yield contribution(job, 0, k, lanes([k], 32, 1))
            yield contribution(job, 1, k - 2, lanes([k], 32, 1))
    yield ReadCounters()


@script
def eight_ranks() -> Iterator[Step]:
    """One rank on every port."""
    job = Job(ranks=8, ports=PORTS)
    yield Write(tuple(job.entries()))
    for k in range(2):
        for rank in random.Random(k).sample(range(8), 8):
            yield contribution(job, rank, k, lanes([rank, 1], 32, 1), tos=rank)
    for rank in (7, 0):
        yield contribution(job, rank, 1, lanes([rank, 1], 32, 1))
    yield ReadCounters()


@script
def admission() -> Iterator[Step]:
    """Unknown, spoofed, malformed and foreign packets, cut at and beside every header boundary."""
    job = Job(ranks=2)
    yield Write(tuple(job.entries()))
    packet = job.packet(0, 0, lanes([1], 32, 1))
    lengths = [14, 15, 33, 34, 35, 41, 42, 43, 44, 45, 57, 58, 59, 313]
    yield Send(job.port(0), tuple(packet[:length] for length in lengths))
    yield Send(job.port(0), (packet + b"\0", packet + bytes(256)))
    changes = [
        (0, b"\x06"),
        (12, b"\x86\xdd"),
        (14, b"\x46"),
        (14, b"\x65"),
        (16, b"\x01\x2d"),
        (16, b"\x02\x2c"),
        (20, b"\x20\x00"),
        (20, b"\x00\x01"),
        (20, b"\x80\x00"),
        (23, b"\x06"),
        (24, b"\xde\xad"),
        (26, b"\x0b"),
        (36, b"\x4e\x51"),
        (36, b"\x4e\x92"),
        (38, b"\x00\x00"),
        (38, b"\x00\x0a"),
        (38, b"\x00\x0b"),
        (38, b"\x02\x18"),
        (38, b"\xff\xff"),
        (42, b"\x00"),
        (43, b"\x00"),
        (44, b"\x20"),
        (44, b"\x11"),
        (44, b"\x1f"),
        (45, b"\x02"),
        (46, b"\xff\xff"),
        (48, b"\x02"),
    ]
    for offset, value in changes:
        yield Send(job.port(0), (packet[:offset] + value + packet[offset + len(value) :],))
    for kind in (Kind.RESULT, Kind.PARTIAL_UP, Kind.RESULT_DOWN):
        yield contribution(job, 0, 0, bytes(256), kind=kind)
    for size in (0, 3 * 256, 4096 + 4):
        yield contribution(job, 0, 0, bytes(size))
    yield Send(job.port(1), (packet,))
    yield Write((job.rewrite(1),), "delete")
    for rank in range(2):
        yield contribution(job, rank, 1, lanes([1], 32, 1))
    yield ReadCounters()


@script
def forwarding() -> Iterator[Step]:
    """Known, unknown, broadcast, discarded and grouped addresses, and changes of the tables."""
    a, b, c = 0x0200_0000_00AA, 0x0200_0000_00BB, 0x0200_0000_00CC
    yield Write((Station(a, 3), Station(b, 6), Group(20, ((2, 0), (4, 0), (6, 0))), Flooded(c, 20)))
    for port, source, destination in [(3, a, b), (6, b, a), (6, b, b), (4, a, c), (1, b, c)]:
        yield Send(port, (other_traffic(source, destination),))
    for port in PORTS:
        yield Send(port, (other_traffic(a, 0xFFFF_FFFF_FFFF), other_traffic(a, 0x0200_0000_0001)))
    yield Send(1, tuple(other_traffic(b, a, bytes(size)) for size in (0, 1, 46, 1500, 4140)))
    yield Write((Station(b, 7), Discarded(c)), "modify")
    yield Send(1, (other_traffic(a, b), other_traffic(a, c)))
    yield Write((UnknownStations(0),))
    yield Send(1, (other_traffic(a, 0x0200_0000_0001),))
    yield Write((Station(b, 7),), "delete")
    yield Send(1, (other_traffic(a, b),))
    yield ReadCounters()


@script
def two_jobs_at_random() -> Iterator[Step]:
    """Two jobs whose ranks resend, lag and stray, with frames damaged now and then."""
    chance = random.Random(2009_09736)
    a = Job(number=7, stream=1, ranks=3, window=2, slot_base=0, lane_bits=32)
    b = Job(number=8, stream=2, ranks=2, window=1, slot_base=4, lane_bits=16, ports=(3, 5))
    yield Write((*a.entries(), *b.entries()))
    for step in range(300):
        job = chance.choice((a, b))
        rank = chance.randrange(job.ranks)
        k = 2**32 - 10 + step // 15 + chance.randrange(2 * job.window)
        frame = job.packet(rank, k, chance.randbytes(256), op=Op.OR if k % 4 == 0 else Op.SUM)
        fate = chance.random()
        if fate < 0.05:
            damaged = bytearray(frame)
            damaged[chance.randrange(len(frame))] ^= 1 << chance.randrange(8)
            frame = bytes(damaged)
        elif fate < 0.08:
            frame = frame[: chance.randrange(14, len(frame))]
        yield Send(chance.choice(PORTS) if fate > 0.97 else job.port(rank), (frame,))
    yield ReadCounters()
