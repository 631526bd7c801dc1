"""The Communicator through the P4 program on the embedded switch, without controller or torch."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from finsy.proto import p4r
from program_switch import RunningSwitch, expected, inputs, running_switch

from netreduce.host_agent._datapath import AbortedError, Communicator, Outcome, TimeoutError
from netreduce.p4.wire import Cause

PATIENCE = timedelta(seconds=60)


@pytest.fixture(scope="module")
def switch() -> Iterator[RunningSwitch]:
    with running_switch() as running:
        yield running


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_world_sizes(switch: RunningSwitch, ranks: int) -> None:
    arrays = inputs(ranks, 100_000)
    streams = switch.admit(ranks, window=16)

    def body(rank: int, communicator: Communicator) -> tuple[np.ndarray, np.ndarray, Any]:
        communicator.probe(PATIENCE)
        single, double = arrays[rank].copy(), arrays[rank].astype(np.float64)
        assert communicator.all_reduce(single, timeout=PATIENCE) == Outcome.REDUCED
        assert communicator.all_reduce(double, timeout=PATIENCE) == Outcome.REDUCED
        return single, double, communicator.statistics

    results = switch.run(streams, body)
    single, double = expected(arrays), expected([a.astype(np.float64) for a in arrays], 64)
    for got_single, got_double, _ in results:
        assert got_single.tobytes() == single.tobytes()
        assert got_double.tobytes() == double.tobytes()

    # The switch saw what the ranks say that they sent; a resend may still be on its way.
    counted = [switch.causes(stream.stream) for stream in streams]
    sent = sum(s.packets_sent for *_, s in results)
    resent = sum(s.packets_resent for *_, s in results)
    assert sum(c[Cause.FIRST] + c[Cause.ADDED] + c[Cause.COMPLETED] for c in counted) == sent
    assert sent <= sum(sum(causes.values()) for causes in counted) <= sent + resent
    assert sum(causes[Cause.COMPLETED] for causes in counted) * ranks == sent
    assert sum(s.results_received for *_, s in results) == sent
    for causes in counted:
        assert not any(causes[c] for c in (Cause.STALE, Cause.SPOOFED, Cause.MALFORMED, Cause.UNKNOWN))


@pytest.mark.parametrize("rate", [0.01, 0.1])
def test_faults_in_the_switch_do_not_change_a_bit(rate: float) -> None:
    arrays = inputs(4, 100_000)
    with running_switch("--fault", f"drop={rate},duplicate={rate},reorder={rate},seed=3") as switch:
        streams = switch.admit(4, window=16)
        results = switch.run(streams, lambda rank, communicator: reduced(communicator, arrays[rank]))
        causes = switch.causes(streams[0].stream)
    assert causes[Cause.DUPLICATE_ABSORBED] + causes[Cause.DUPLICATE_ANSWERED] > 0, "no fault was injected"
    reference = expected(arrays)
    for result in results:
        assert result.tobytes() == reference.tobytes()


def reduced(communicator: Communicator, array: np.ndarray) -> np.ndarray:
    array = array.copy()
    assert communicator.all_reduce(array, timeout=PATIENCE) == Outcome.REDUCED
    return array


def test_killed_switch_aborts_the_call() -> None:
    with running_switch() as switch:
        streams = switch.admit(2, window=16)
        alone = switch.over_shm(streams, 0)
        with ThreadPoolExecutor(1) as pool:
            call = pool.submit(reduced, alone, np.ones(10, np.float32))
            while alone.statistics.packets_sent == 0:
                assert not call.done()
            os.kill(switch.service.pid, signal.SIGKILL)
            with pytest.raises(AbortedError, match="switch embedded closed port 1"):
                call.result(30)


@pytest.mark.parametrize("first_k", [2**32 - 7, 2**31 - 7])
@pytest.mark.parametrize("window", [1, 4])
def test_stream_index_wraps_in_the_program(switch: RunningSwitch, first_k: int, window: int) -> None:
    arrays = inputs(3, 50_000)
    streams = switch.admit(3, window=window)
    results = switch.run(
        streams,
        lambda rank, communicator: [reduced(communicator, arrays[rank]) for _ in range(2)],
        connect=lambda streams, rank: switch.over_shm(streams, rank, first_k),
    )
    reference = expected(arrays)
    for rank in results:
        assert [result.tobytes() for result in rank] == [reference.tobytes()] * 2


def test_tables_lost_between_packets_never_make_a_sum(switch: RunningSwitch) -> None:
    """The job's entries vanish while its ranks reduce: a result is right, or an error that says why."""
    arrays = [np.full(200_000, rank + 1.0, np.float32) for rank in range(2)]
    streams = switch.admit(2, window=4)
    begun = threading.Event()
    sums = []

    def body(rank: int, communicator: Communicator) -> str:
        for _ in range(10_000):
            array = arrays[rank].copy()
            try:
                communicator.all_reduce(array, timeout=timedelta(seconds=2))
            except TimeoutError as error:
                return str(error)
            sums.append((array == 3.0).all())
            begun.set()
        raise AssertionError("the entries were not removed")

    def lose() -> None:
        assert begun.wait(30)
        entries = [stream.connection(rank) for stream in streams for rank in range(2)]
        switch.client.write(*entries, update=p4r.Update.DELETE)

    with ThreadPoolExecutor(1) as pool:
        losing = pool.submit(lose)
        errors = switch.run(streams, body)
        losing.result()
    assert sums and all(sums)
    for error in errors:
        assert "came unaggregated: the switch in between does not know this job" in error
