"""Random sequences of packets, good and bad, of two jobs: the switch does what the reference model does."""

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netreduce.p4 import wire
from netreduce.p4.wire import Cause, Op
from packets.frames import lanes, other_traffic
from packets.jobs import Job
from packets.targets import PORTS, Target
from packets.twin import Twin

A = Job(number=7, stream=1, ranks=3, window=2, slot_base=0, lane_bits=32)
B = Job(number=8, stream=2, ranks=2, window=1, slot_base=4, lane_bits=16, ports=(3, 5))

generations = count(1)


@dataclass(frozen=True)
class Step:
    """One packet of a rank, and what is wrong with it, if anything."""

    job: int
    rank: int
    k: int
    blocks: int
    op: Op
    seed: int
    flip: tuple[int, int] | None
    """Byte of the headers and bits to invert in it."""
    cut: int | None
    """Length to truncate the frame to, or to lengthen it to."""
    port: int | None
    """Ingress port if not the rank's."""


def rarely(strategy: st.SearchStrategy) -> st.SearchStrategy:
    """None most of the time."""
    return st.integers(0, 9).flatmap(lambda roll: strategy if roll == 9 else st.none())


steps = st.builds(
    Step,
    job=st.integers(0, 1),
    rank=st.integers(0, 2),
    k=st.one_of(st.integers(0, 1), st.integers(0, 7)),
    blocks=st.sampled_from([1, 1, 2, 4]),
    op=st.sampled_from([Op.SUM, Op.SUM, Op.SUM, Op.OR]),
    seed=st.integers(0, 3),
    flip=rarely(st.tuples(st.integers(0, wire.FRAME_OVERHEAD_BYTES - 1), st.integers(1, 255))),
    cut=rarely(st.integers(14, 700)),
    port=rarely(st.sampled_from(PORTS)),
)


def frame_of(job: Job, step: Step, start: int) -> bytes:
    blocks = random.Random(step.seed).randbytes(step.blocks * wire.BLOCK_BYTES)
    frame = bytearray(job.packet(step.rank % job.ranks, start + step.k, blocks, op=step.op))
    if step.flip is not None:
        frame[step.flip[0]] ^= step.flip[1]
    if step.cut is not None:
        frame = frame[: step.cut].ljust(step.cut, b"\xaa")
    return bytes(frame)


@pytest.fixture(scope="module")
def shared_switch(target: Target) -> Iterator[Twin]:
    """One twin for all examples: each example is a new generation, to which all slots look empty."""
    twin = Twin(target)
    twin.write(*A.entries(), *B.entries())
    yield twin
    twin.check_counters()


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    start=st.sampled_from([0, 2**24 - 4, 2**31 - 4, 2**32 - 4]),
    lane_bits=st.sampled_from([16, 32, 64]),
    sequence=st.lists(steps, min_size=25, max_size=60),
)
def test_random_sequences(shared_switch: Twin, start: int, lane_bits: int, sequence: list[Step]) -> None:
    generation = next(generations)
    jobs = [replace(job, generation=generation) for job in (replace(A, lane_bits=lane_bits), B)]
    shared_switch.modify(*(job.connection(rank) for job in jobs for rank in range(job.ranks)))
    for step in sequence:
        job = jobs[step.job]
        port = step.port or job.port(step.rank % job.ranks)
        shared_switch.send(port, frame_of(job, step, start))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(start=st.integers(0, 2**32 - 1), rounds=st.integers(1, 2**32 // (2 * A.window) - 1))
def test_any_two_indices_of_a_slot_are_told_apart(shared_switch: Twin, start: int, rounds: int) -> None:
    """The one that is less than 2^31 ahead, modulo 2^32, is the newer one (RFC 1982)."""
    job = replace(A, generation=next(generations))
    shared_switch.modify(*(job.connection(rank) for rank in range(job.ranks)))
    ahead = rounds * 2 * job.window
    first, second = (job.packet(0, k % 2**32, lanes([1], 32, 1)) for k in (start, start + ahead))
    assert shared_switch.send_counted(job.port(0), first) == (job.stream, Cause.FIRST)
    expected = Cause.FIRST if ahead < 2**31 else Cause.STALE
    assert shared_switch.send_counted(job.port(0), second) == (job.stream, expected)


def test_a_long_run_with_loss_duplication_and_reordering(shared_switch: Twin) -> None:
    """Ranks that keep to the credit, on a network that does not keep to anything: every sum is right."""
    chance = random.Random(2023)
    job = replace(A, generation=next(generations))
    shared_switch.modify(*(job.connection(rank) for rank in range(job.ranks)))
    start, packets = 2**32 - 20, 60
    data = {(rank, k): chance.randbytes(256) for rank in range(job.ranks) for k in range(packets)}
    results: list[dict[int, bytes]] = [{} for _ in range(job.ranks)]
    in_flight: list[tuple[int, int]] = []
    for _ in range(20_000):
        if all(len(received) == packets for received in results):
            break
        rank = chance.randrange(job.ranks)
        done = next((k for k in range(packets) if k not in results[rank]), packets)
        in_flight += [(rank, k) for k in range(done, min(done + job.window, packets))]
        chance.shuffle(in_flight)
        sender, k = in_flight.pop()
        fate = chance.random()
        if fate < 0.15:
            continue  # lost before the switch
        if fate > 0.85:
            in_flight.append((sender, k))  # and once more
        outputs = shared_switch.send(job.port(sender), job.packet(sender, start + k, data[sender, k]))
        for receiver in range(job.ranks):
            for frame in outputs.get(job.port(receiver), []):
                if chance.random() > 0.15:
                    index = (int.from_bytes(frame[50:54], "big") - start) % 2**32
                    results[receiver][index] = frame
        if len(in_flight) > 200:
            del in_flight[:100]
    else:
        pytest.fail(f"no end: {[len(received) for received in results]} of {packets} results")
    for k in range(packets):
        columns = zip(*(struct.unpack(">64I", data[rank, k]) for rank in range(job.ranks)), strict=True)
        sums = lanes([sum(column) for column in columns], 32, 1)
        for rank in range(job.ranks):
            assert results[rank][k] == job.result(rank, start + k, sums)


def test_forwarding_goes_on_between_contributions(shared_switch: Twin) -> None:
    job = replace(A, generation=next(generations))
    shared_switch.modify(*(job.connection(rank) for rank in range(job.ranks)))
    frame = other_traffic(job.mac(2), job.mac(0))
    for rank in range(job.ranks):
        assert shared_switch.send(job.port(2), frame) == {job.port(0): [frame]}
        outputs = shared_switch.send(job.port(rank), job.packet(rank, 0, bytes(256)))
    assert outputs[job.port(0)] == [job.result(0, 0, bytes(256))]
