"""Seeded faults: each decision follows from (seed, port, direction, frame number) alone."""

import struct
import time

import pytest
from hub import frame, running_hub

from netreduce.softswitch.core import PortKind, PortStats
from netreduce.softswitch.fault import Fault
from netreduce.softswitch.shm_client import ShmPort

SOON = 10.0
MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
DIRECTIONS = {"in": 1, "out": 2}


def mix(x: int) -> int:
    """SplitMix64's finaliser."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def draw(fault: Fault, port: int, direction: str, number: int, purpose: int) -> int:
    key = mix(fault.seed + mix((port << 2 | DIRECTIONS[direction]) + GOLDEN & MASK) & MASK)
    return mix(key + (number * 4 + purpose + 1) * GOLDEN & MASK)


def expected(fault: Fault, port: int, direction: str, frames: list[int]) -> list[int]:
    """What comes out of a gate when nothing is held so long that its time is up."""
    out: list[int] = []
    held: list[tuple[int, int]] = []

    def happens(number: int, purpose: int, probability: float) -> bool:
        return (draw(fault, port, direction, number, purpose) >> 11) * 2.0**-53 < probability

    for number, item in enumerate(frames):
        if not happens(number, 0, fault.drop):
            if happens(number, 1, fault.duplicate):
                out.append(item)
            if happens(number, 2, fault.reorder):
                distance = 1 + draw(fault, port, direction, number, 3) % fault.depth
                held.append((number + distance, item))
            else:
                out.append(item)
        out += [i for when, i in held if when <= number]
        held = [(when, i) for when, i in held if when > number]
    return out + [item for _, item in held]


def transfer(*faults: Fault, count: int = 600) -> tuple[list[int], tuple[PortStats, PortStats]]:
    """Sends numbered frames from port 1 to port 2; what arrives, and port 1's and 2's statistics."""
    with running_hub(*faults) as hub, ShmPort(hub.socket, 1) as a, ShmPort(hub.socket, 2) as b:
        received: list[int] = []

        def take() -> None:
            while (got := b.poll()) is not None:
                received.append(struct.unpack("!I", got[14:])[0])

        deadline = time.monotonic() + SOON
        for number in range(count):
            while (a.layout.to_switch.head - a.layout.to_switch.tail) & 0xFFFFFFFF > 32:
                take()
                assert time.monotonic() < deadline
            assert a.send(frame(2, struct.pack("!I", number)))
            take()
        # Everything is out when the gates hold nothing: their counts then add up.
        while True:
            take()
            one, two = hub.port_stats(1), hub.port_stats(2)
            sent = count - one.fault_in.dropped + one.fault_in.duplicated
            sent += two.fault_out.duplicated - two.fault_out.dropped
            if one.rx_frames == count and two.tx_frames == sent and len(received) == sent:
                return received, (one, two)
            assert time.monotonic() < deadline, f"{len(received)} of {sent} frames after {SOON} s"
            time.sleep(0.001)


LONG = 60_000.0
"""Milliseconds; no frame is released by time."""

FAULTS = [
    Fault(drop=0.2, seed=7),
    Fault(duplicate=0.2, seed=7),
    Fault(reorder=0.2, seed=7, hold_ms=LONG),
    Fault(drop=0.1, duplicate=0.1, reorder=0.3, seed=2**64 - 1, depth=64, hold_ms=LONG),
    Fault(drop=1.0),
    Fault(duplicate=1.0),
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
@pytest.mark.parametrize("direction", ["in", "out"])
def test_decisions_follow_the_reference(fault: Fault, direction: str) -> None:
    port = 1 if direction == "in" else 2
    given = Fault(**{**vars(fault), "port": port, "direction": direction, "hold_ms": fault.hold_ms})
    count = 600
    wanted = expected(given, port, direction, list(range(count)))
    if given.reorder:
        # The last frames may be held without a successor that releases them: leave time to do it.
        given = Fault(**{**vars(given), "hold_ms": 200.0})
    received, (one, two) = transfer(given, count=count)
    assert sorted(received) == sorted(wanted)
    stats = one.fault_in if direction == "in" else two.fault_out
    other = two.fault_out if direction == "in" else one.fault_in
    assert stats.dropped == count - len(set(wanted))
    assert stats.duplicated == len(wanted) - len(set(wanted))
    assert (stats.reordered > 0) == (given.reorder > 0)
    assert (other.dropped, other.duplicated, other.reordered) == (0, 0, 0)
    if not given.reorder:
        assert received == wanted


def test_reordering_by_count_alone() -> None:
    """With a long hold time only successors release frames: the order is the reference's, to the letter."""
    fault = Fault(reorder=0.3, seed=11, depth=5, hold_ms=LONG, port=1, direction="in")
    count = 200
    # Enough more frames of another kind, so that nothing is held at the end.
    wanted = expected(fault, 1, "in", list(range(count)))
    with running_hub(fault) as hub, ShmPort(hub.socket, 1) as a, ShmPort(hub.socket, 2) as b:
        for number in range(count):
            assert a.send(frame(2, struct.pack("!I", number)))
        settled = len(wanted) - 5
        received = [struct.unpack("!I", got[14:])[0] for got in b.drain(settled, SOON)]
        assert received == wanted[:settled]
        assert received != sorted(received)


def test_same_seed_same_run_other_seed_other_run() -> None:
    runs = [transfer(Fault(drop=0.3, seed=seed))[0] for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_ports_and_directions_differ_under_one_seed() -> None:
    fault = Fault(drop=0.5, seed=3)
    fates = {
        (port, direction): [draw(fault, port, direction, n, 0) for n in range(8)]
        for port in range(4)
        for direction in DIRECTIONS
    }
    assert len({tuple(fate) for fate in fates.values()}) == len(fates)


def test_held_frame_leaves_by_time() -> None:
    """The only frame there is cannot be overtaken; it leaves when its time is up, on a sleeping switch."""
    fault = Fault(reorder=1.0, hold_ms=20)
    with running_hub(fault) as hub, ShmPort(hub.socket, 1) as a, ShmPort(hub.socket, 2) as b:
        a.send(frame(2, b"held"))
        assert b.receive(SOON) == frame(2, b"held")
        assert hub.port_stats(1).fault_in.reordered == 1
        assert hub.port_stats(2).fault_out.reordered == 1


def test_held_frames_of_packet_out_leave_by_time() -> None:
    """Held by the caller's thread while the packet thread sleeps: it must be woken to set its timer."""
    fault = Fault(reorder=1.0, hold_ms=20)
    with running_hub(fault, cpu_port=500) as hub, ShmPort(hub.socket, 2) as b:
        hub.packet_out(frame(2, b"held"))
        assert b.receive(SOON) == frame(2, b"held")


def test_later_fault_replaces_earlier_one() -> None:
    received, _ = transfer(Fault(drop=1.0), Fault(drop=0.0, port=1), Fault(drop=0.0, port=2))
    assert received == list(range(600))


def test_unplugging_forgets_held_frames_and_restarts_the_count() -> None:
    fault = Fault(drop=0.5, seed=5, port=1, direction="in")
    with running_hub(fault, Fault(reorder=1.0, hold_ms=LONG, port=3)) as hub, ShmPort(hub.socket, 2) as b:
        runs = []
        for _ in range(2):
            while True:
                try:
                    a = ShmPort(hub.socket, 1)
                    break
                except OSError:
                    time.sleep(0.001)
            with a:
                for number in range(64):
                    a.send(frame(2, bytes([number])))
                survivors = expected(fault, 1, "in", list(range(64)))
                runs.append([got[14] for got in b.drain(len(survivors), SOON)])
        assert runs == [survivors, survivors]
        with ShmPort(hub.socket, 3) as c:
            c.send(frame(2, b"held for ever"))
        deadline = time.monotonic() + SOON
        while hub.port_stats(3).kind is not PortKind.NONE:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        assert hub.port_stats(3).fault_in.reordered == 1
        assert b.poll() is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("drop=0.01,duplicate=0.02,reorder=0.05,seed=7", Fault(0.01, 0.02, 0.05, 7)),
        ("drop=1,port=3,direction=in", Fault(drop=1.0, port=3, direction="in")),
        (" reorder=0.5 , depth=64 , hold_ms=2.5", Fault(reorder=0.5, depth=64, hold_ms=2.5)),
    ],
)
def test_parse(text: str, fault: Fault) -> None:
    assert Fault.parse(text) == fault


@pytest.mark.parametrize(
    "text",
    [
        "",
        "drop",
        "drop=x",
        "drop=1.5",
        "drop=-0.1",
        "drop=nan",
        "loss=0.1",
        "drop=0.1,drop=0.2",
        "port=511",
        "port=1.5",
        "direction=both",
        "depth=0",
        "depth=65",
        "hold_ms=0",
        "seed=-1",
        "seed=18446744073709551616",
    ],
)
def test_parse_refuses(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Fault.parse(text)
