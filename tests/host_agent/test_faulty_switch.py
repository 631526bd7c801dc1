"""A switch that aggregates wrongly, packet by packet: every rank must get an error, never a result."""

from __future__ import annotations

import struct
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from emulated_switch import NR, Contribution, EmulatedSwitch, Slot

from netreduce.host_agent._datapath import AbortedError, Communicator, IntegrityError, TimeoutError

PATIENCE = timedelta(seconds=30)
SOON = timedelta(seconds=1)
SIZE = 30_000
VICTIM = 5
"""Stream index, in the data of the first call."""


class ForgetsARank(EmulatedSwitch):
    """Calls a slot complete when one contribution is missing from its sum."""

    def _combine(self, parsed: Contribution, stored: np.ndarray) -> np.ndarray:
        slot = self.slots[parsed.job][VICTIM % (2 * self.window)]
        last = (slot.seen | 1 << parsed.rank) == (1 << self.world_size) - 1
        if (parsed.k, parsed.op) == (VICTIM, 0) and last:
            return stored
        return super()._combine(parsed, stored)


class AddsTwice(EmulatedSwitch):
    """Adds a contribution as often as it comes: here, once too often."""

    def _combine(self, parsed: Contribution, stored: np.ndarray) -> np.ndarray:
        total = super()._combine(parsed, stored)
        return super()._combine(parsed, total) if (parsed.k, parsed.op) == (VICTIM, 0) else total


class _AltersResults(EmulatedSwitch):
    def alter(self, parsed: Contribution, slot: Slot) -> np.ndarray:
        raise NotImplementedError

    def _result(self, rank: int, parsed: Contribution, slot: Slot) -> None:
        if parsed.op == 0 and parsed.k == VICTIM:
            slot = Slot(slot.k, slot.seen, slot.done, self.alter(parsed, slot))
        super()._result(rank, parsed, slot)


class MixesSlotsUp(_AltersResults):
    """Answers with the blocks of the slot before."""

    def alter(self, parsed: Contribution, slot: Slot) -> np.ndarray:
        return self.slots[parsed.job][(VICTIM - 1) % (2 * self.window)].blocks


class FlipsABit(_AltersResults):
    def alter(self, parsed: Contribution, slot: Slot) -> np.ndarray:
        blocks = slot.blocks.copy()
        blocks[777] ^= 0x10
        return blocks


class ReturnsOneRanksShare(_AltersResults):
    """Nothing was added: the completing rank's own contribution comes back as the result."""

    def alter(self, parsed: Contribution, slot: Slot) -> np.ndarray:
        return parsed.blocks


class Clears(_AltersResults):
    def alter(self, parsed: Contribution, slot: Slot) -> np.ndarray:
        return np.zeros_like(slot.blocks)


class NeverForgets(EmulatedSwitch):
    """Takes a slot's done flag for that of every later packet: answers from an earlier call."""

    def _process(self, number: int, frame: bytes) -> None:
        parsed = self._parse(number, frame)
        assert parsed is not None
        slot = self.slots[parsed.job][parsed.k % (2 * self.window)]
        if parsed.op == 0 and slot.done and slot.k is not None and slot.k < parsed.k:
            self._result(parsed.rank, parsed, slot)
        else:
            super()._process(number, frame)


FAULTS = [ForgetsARank, AddsTwice, MixesSlotsUp, FlipsABit, ReturnsOneRanksShare, Clears, NeverForgets]


def reduced(arrays: list[np.ndarray], calls: int) -> Any:
    def body(rank: int, communicator: Communicator) -> list[np.ndarray]:
        done = []
        for _ in range(calls):
            done.append(arrays[rank].copy())
            communicator.all_reduce(done[-1], timeout=PATIENCE)
        return done

    return body


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("lane_bits", [16, 32, 64])
@pytest.mark.parametrize("kind", ["random", "ones"])
def test_a_faulty_switch_is_found_out(fault: type[EmulatedSwitch], lane_bits: int, kind: str) -> None:
    rng = np.random.default_rng(1)
    arrays = [
        rng.standard_normal(SIZE).astype(np.float32) if kind == "random" else np.ones(SIZE, np.float32)
        for _ in range(3)
    ]
    with fault(3, window=4, lane_bits=(lane_bits,)) as switch:
        errors = switch.run(reduced(arrays, calls=2))
    for rank, error in enumerate(errors):
        # Whoever sees the wrong result first leaves; the others may miss it before they see it themselves.
        assert isinstance(error, IntegrityError | AbortedError | TimeoutError), f"rank {rank}: {error!r}"
    assert any(type(error) is IntegrityError for error in errors)


@pytest.mark.parametrize("offset", [1, 8, -8, 2**31])
def test_answers_under_another_index_never_count(offset: int) -> None:
    """Results whose k is not the asked one's: as if they had not come."""

    class Renumbers(EmulatedSwitch):
        def _wrap(self, rank: int, payload: bytes) -> bytes:
            _, _, op, _, _, _, k, *_ = NR.unpack_from(payload)
            if op == 0:
                payload = payload[:8] + struct.pack("!I", (k + offset) % 2**32) + payload[12:]
            return super()._wrap(rank, payload)

    def body(rank: int, communicator: Communicator) -> None:
        communicator.all_reduce(np.arange(SIZE, dtype=np.int32), timeout=SOON)

    with Renumbers(2, window=8) as switch:
        errors = switch.run(body)
    for error in errors:
        assert isinstance(error, IntegrityError | TimeoutError), repr(error)


@pytest.mark.parametrize("keep", [256, 4096 - 256])
def test_truncated_results_never_count(keep: int) -> None:
    class Truncates(EmulatedSwitch):
        def _wrap(self, rank: int, payload: bytes) -> bytes:
            return super()._wrap(rank, payload[: NR.size + keep])

    def body(rank: int, communicator: Communicator) -> None:
        communicator.all_reduce(np.arange(SIZE, dtype=np.int32), timeout=SOON)

    with Truncates(2) as switch:
        errors = switch.run(body)
    assert [type(error) for error in errors] == [TimeoutError] * 2
