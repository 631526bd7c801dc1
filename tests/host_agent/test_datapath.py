"""The Communicator against an emulated switch: right sums whatever happens, errors that say why."""

from __future__ import annotations

import gc
import os
import re
import socket
import struct
import threading
from datetime import timedelta

import numpy as np
import pytest
from emulated_switch import Contribution, EmulatedSwitch, EmulatedUdpSwitch, Faults, total

from netreduce.host_agent._datapath import (
    AbortedError,
    Communicator,
    DType,
    IntegrityError,
    MismatchError,
    Outcome,
    ReduceOp,
    TimeoutError,
    WireError,
)

PATIENCE = timedelta(seconds=60)
SOON = timedelta(milliseconds=300)
SWITCHES = {"shm": EmulatedSwitch, "udp": EmulatedUdpSwitch}


def tensors(world_size: int, size: int, dtype: type = np.float32, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        return [rng.integers(info.min, info.max, size, dtype, endpoint=True) for _ in range(world_size)]
    return [rng.standard_normal(size).astype(dtype) for _ in range(world_size)]


def reduce_all(switch: EmulatedSwitch, arrays: list[np.ndarray], **options: object) -> list[np.ndarray]:
    """Every rank's result of one call; raises what the first failing rank raised."""

    def body(rank: int, communicator: Communicator) -> np.ndarray:
        array = arrays[rank].copy()
        assert communicator.all_reduce(array, timeout=PATIENCE, **options) == Outcome.REDUCED
        return array

    return unwrap(switch.run(body))


def unwrap(results: list) -> list:
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def same_everywhere(results: list[np.ndarray]) -> np.ndarray:
    for other in results[1:]:
        assert other.tobytes() == results[0].tobytes()
    return results[0]


# --- sums ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", SWITCHES)
@pytest.mark.parametrize("world_size", [2, 3, 4, 8])
def test_world_sizes(world_size: int, wire: str) -> None:
    arrays = tensors(world_size, 10_000)
    with SWITCHES[wire](world_size) as switch:
        result = same_everywhere(reduce_all(switch, arrays))
    exact = np.sum(np.array(arrays, np.float64), axis=0)
    np.testing.assert_allclose(result, exact, rtol=2e-7, atol=world_size * 2.0**-24)


SIZES = [1, 2, 61, 62, 63, 64, 65, 1022, 1023, 1024, 1025, 4093, 4094, 4095, 4096, 8188, 8189]


def test_sizes_around_packets_and_messages() -> None:
    """One communicator, many calls, of every length at which the layout changes."""

    def body(rank: int, communicator: Communicator) -> None:
        for call, size in enumerate(SIZES):
            arrays = tensors(3, size, np.int32, seed=size)
            array = arrays[rank].copy()
            assert communicator.next_call == call + 1
            communicator.all_reduce(array, timeout=PATIENCE)
            assert array.tolist() == sum(arrays).tolist()

    with EmulatedSwitch(3) as switch:
        unwrap(switch.run(body))
        assert switch.causes["malformed"] == 0


@pytest.mark.parametrize("max_blocks", [1, 2, 4, 8])
def test_smaller_packets(max_blocks: int) -> None:
    arrays = tensors(2, 3_000, np.float64)
    with EmulatedSwitch(2, max_blocks=max_blocks) as switch:
        result = same_everywhere(reduce_all(switch, arrays))
    np.testing.assert_allclose(result, sum(arrays), rtol=1e-15, atol=2.0**-55)


def test_a_million_elements() -> None:
    arrays = tensors(2, 1_000_000)
    with EmulatedSwitch(2, window=64) as switch:
        result = same_everywhere(reduce_all(switch, arrays))
    np.testing.assert_allclose(result, arrays[0].astype(np.float64) + arrays[1], rtol=2e-7, atol=2.0**-24)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
def test_integers_wrap(dtype: type) -> None:
    arrays = tensors(3, 5_000, dtype)
    with EmulatedSwitch(3) as switch:
        result = same_everywhere(reduce_all(switch, arrays))
    assert (result == np.add.reduce(arrays, dtype=dtype)).all()


@pytest.mark.parametrize("float_lane_bits", [16, 32, 64])
def test_precisions_and_average(float_lane_bits: int) -> None:
    arrays = tensors(4, 9_000)
    with EmulatedSwitch(
        4, lane_bits=(float_lane_bits, 96 - float_lane_bits)[: 2 - (float_lane_bits == 16)]
    ) as s:
        result = same_everywhere(reduce_all(s, arrays, op=ReduceOp.AVG))
    exact = np.mean(np.array(arrays, np.float64), axis=0)
    largest = max(np.abs(a).max() for a in arrays)
    unit = {16: 2.0**-13, 32: 2.0**-29, 64: 2.0**-61}[float_lane_bits] * 2 * largest
    np.testing.assert_allclose(result, exact, rtol=2.0**-23, atol=unit)


def test_bfloat16() -> None:
    arrays = [np.array([0x3F80, 0x4000, 0xBF00], np.uint16) for _ in range(2)]
    with EmulatedSwitch(2) as switch:
        result = same_everywhere(reduce_all(switch, arrays, dtype=DType.bfloat16))
    assert result.tolist() == [0x4000, 0x4080, 0xBF80]  # 2, 4, -1


# --- loss, duplication, reordering --------------------------------------------------------------------


@pytest.mark.parametrize("wire", SWITCHES)
@pytest.mark.parametrize("rate", [0.01, 0.1])
@pytest.mark.parametrize("world_size", [2, 4])
def test_faults_do_not_change_a_bit(world_size: int, rate: float, wire: str) -> None:
    arrays = tensors(world_size, 60_000)
    with EmulatedSwitch(world_size) as switch:
        undisturbed = same_everywhere(reduce_all(switch, arrays))
    faults = Faults(loss=rate, duplication=rate, reordering=rate, seed=world_size)
    with SWITCHES[wire](world_size, faults=faults) as switch:
        disturbed = same_everywhere(reduce_all(switch, arrays))
        # The credit rule: no rank ever ran ahead of another so far that its packet met a newer slot.
        assert switch.causes["malformed"] == 0
        assert switch.causes["absorbed"] + switch.causes["answered"] > 0, "no fault was injected"
    assert disturbed.tobytes() == undisturbed.tobytes()


@pytest.mark.parametrize("window", [1, 2, 3, 64])
def test_windows_under_faults(window: int) -> None:
    arrays = tensors(3, 40_000, np.int32)
    faults = Faults(loss=0.05, duplication=0.05, reordering=0.2, seed=window)
    with EmulatedSwitch(3, window=window, faults=faults, max_blocks=4) as switch:
        result = same_everywhere(reduce_all(switch, arrays))
    assert (result == sum(arrays)).all()


def test_no_packet_is_sent_before_its_credit() -> None:
    """When k arrives, its sender holds the results of everything up to k - W: they are done."""
    window, outstanding = 4, []

    def watch(contribution: Contribution) -> None:
        if contribution.job == 100 and contribution.k >= window:
            credit = contribution.k - window
            slot = switch.slots[100][credit % (2 * window)]
            age = slot.k - credit  # > 0: long done, and overwritten
            outstanding.append(age == 0 and not slot.done)

    faults = Faults(loss=0.1, reordering=0.2, seed=5)
    with EmulatedSwitch(2, window=window, faults=faults, tamper=watch) as switch:
        reduce_all(switch, tensors(2, 50_000, np.int32))
    assert outstanding and not any(outstanding)


@pytest.mark.parametrize("first_k", [2**32 - 1, 2**32 - 5, 2**31 - 3])
def test_stream_index_wraps(first_k: int) -> None:
    arrays = tensors(2, 20_000, np.int32)
    faults = Faults(loss=0.05, duplication=0.05, reordering=0.05)
    with EmulatedSwitch(2, first_k=first_k, window=4, faults=faults) as switch:
        result = same_everywhere(reduce_all(switch, arrays))
    assert (result == sum(arrays)).all()


def test_statistics_count_what_happened() -> None:
    arrays = tensors(2, 5_000)

    def body(rank: int, communicator: Communicator) -> object:
        communicator.probe(PATIENCE)
        array = arrays[rank].copy()
        communicator.all_reduce(array, timeout=PATIENCE)
        return communicator.statistics

    with EmulatedSwitch(2) as switch:
        per_rank = unwrap(switch.run(body))
    for s in per_rank:
        # Two probes (one for each lane width), one prelude packet, five data packets (4094 + 906 elements).
        assert (s.calls, s.tensor_bytes, s.packets_sent, s.results_received) == (1, 20_000, 8, 8)
        assert s.unaggregated_received == 0
        assert s.wire_bytes_sent >= 8 * 58 + 3 * 256 + 4 * 4096 + 4096
    both = total(per_rank)
    contributions = sum(switch.causes[c] for c in ("first", "added", "absorbed", "answered"))
    assert contributions == both.packets_sent + both.packets_resent
    assert switch.causes["first"] + switch.causes["added"] == both.packets_sent


# --- agreement ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        (np.zeros(1001, np.float32), ReduceOp.SUM),
        (np.zeros(100_000, np.float32), ReduceOp.SUM),
        (np.zeros(1000, np.int32), ReduceOp.SUM),
        (np.zeros(1000, np.float64), ReduceOp.SUM),
        (np.zeros(1000, np.float32), ReduceOp.AVG),
    ],
    ids=["count", "much longer", "dtype", "lane width", "op"],
)
def test_mismatch_is_an_error_on_every_rank(other: tuple[np.ndarray, ReduceOp]) -> None:
    def body(rank: int, communicator: Communicator) -> None:
        array, op = other if rank == 1 else (np.zeros(1000, np.float32), ReduceOp.SUM)
        communicator.all_reduce(array, op, timeout=PATIENCE)

    with EmulatedSwitch(3) as switch:
        errors = switch.run(body)
    assert [type(e) for e in errors] == [MismatchError] * 3
    assert "job emulated, rank 0, call 1: all_reduce(SUM, float32, 1000 elements)" in str(errors[0])
    assert f"{len(other[0])} elements" in str(errors[1])


def test_non_finite_input_changes_nothing_and_breaks_nothing() -> None:
    def body(rank: int, communicator: Communicator) -> np.ndarray:
        array = np.full(10_000, 1 + rank, np.float32)
        if rank == 1:
            array[9_999] = np.nan
        before = array.tobytes()
        assert communicator.all_reduce(array, timeout=PATIENCE) == Outcome.NON_FINITE
        assert array.tobytes() == before
        array[9_999] = 0
        assert communicator.all_reduce(array, timeout=PATIENCE) == Outcome.REDUCED
        return array

    with EmulatedSwitch(3) as switch:
        result = same_everywhere(unwrap(switch.run(body)))
    assert result[0] == 6


def test_unsupported_lane_width_is_refused_with_the_reason() -> None:
    with EmulatedSwitch(1, lane_bits=(32,)) as switch:
        communicator = switch.communicator(0)
        assert communicator.supports(DType.float32) is None
        assert communicator.supports(DType.int64) == "int64 needs 64-bit lanes, which this job does not have"
        with pytest.raises(ValueError, match="64-bit lanes"):
            communicator.all_reduce(np.zeros(3), timeout=PATIENCE)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rank": 2}, "rank < config.world_size"),
        ({"world_size": 65}, "no more ranks"),
        ({"max_blocks": 3}, "max_blocks is 3"),
        ({"window": 0}, "window"),
        ({"streams": []}, "at least one stream"),
    ],
)
def test_invalid_configuration(changes: dict, message: str) -> None:
    with EmulatedSwitch(2) as switch, pytest.raises(ValueError, match=message):
        switch.communicator(0, **changes)


# --- wrong results ------------------------------------------------------------------------------------


def drop_contribution(c: Contribution) -> None:
    if (c.rank, c.k, c.op) == (1, 3, 0):
        c.blocks[:] = 0


def flip_a_bit(c: Contribution) -> None:
    if (c.rank, c.k, c.op) == (0, 2, 0):
        c.blocks[1000] ^= 4


@pytest.mark.parametrize("tamper", [drop_contribution, flip_a_bit])
@pytest.mark.parametrize("array", [np.ones(10_000, np.float32), np.arange(10_000, dtype=np.int32)])
def test_a_switch_that_adds_wrongly_is_found_out(tamper: object, array: np.ndarray) -> None:
    def body(rank: int, communicator: Communicator) -> None:
        communicator.all_reduce(array.copy(), timeout=PATIENCE)

    with EmulatedSwitch(2, tamper=tamper) as switch:
        errors = switch.run(body)
    for rank, error in enumerate(errors):
        assert type(error) is IntegrityError
        assert f"job emulated, rank {rank}, call 1: all_reduce(SUM, " in str(error)
        assert re.search(r"message 0 of 3 \(k 1-4\) has checksum 0 0x[0-9a-f]+ where", str(error))


def test_a_wrong_contributor_count_is_an_error() -> None:
    def forget_the_count(c: Contribution) -> None:
        if c.rank == 1 and c.op == 0:
            c.blocks[-8:-4] = 0

    def body(rank: int, communicator: Communicator) -> None:
        communicator.all_reduce(np.ones(10, np.float32), timeout=PATIENCE)

    with EmulatedSwitch(2, tamper=forget_the_count) as switch:
        errors = switch.run(body)
    for error in errors:
        assert type(error) is IntegrityError
        assert "contributor count 1 instead of 2" in str(error)


# --- timeouts, abort, death ---------------------------------------------------------------------------


def test_timeout_says_what_is_missing() -> None:
    with EmulatedSwitch(2) as switch:
        alone = switch.communicator(0)
        with pytest.raises(TimeoutError) as caught:
            alone.all_reduce(np.ones(3, np.float32), timeout=SOON)
    text = str(caught.value)
    for part in (
        "job emulated, rank 0, call 1: all_reduce(SUM, float32, 3 elements): ",
        "within 300 ms from switch emulated-1 over shm:@netreduce-emulated-",
        "1 of 1 packets have no result (k 0)",
        "no result came at all",
        "some rank has not made this call",
        "netreduce ctl jobs",
    ):
        assert part in text
    assert int(re.search(r"(\d+) packets? (?:was|were) resent", text)[1]) > 0


def test_timeout_during_the_data_says_which_packets() -> None:
    def swallow(c: Contribution) -> None:
        if c.k == 3:
            c.rank = 0  # rank 1's contribution never counts

    def body(rank: int, communicator: Communicator) -> None:
        communicator.all_reduce(np.ones(20_000, np.int32), timeout=timedelta(seconds=1))

    with EmulatedSwitch(2, tamper=swallow) as switch:
        errors = switch.run(body)
    for error in errors:
        assert type(error) is TimeoutError
        assert re.search(r"\d+ of \d+ packets have no result \(k 3[,)]", str(error))
        assert re.search(r"the last of \d+ results came [0-9.e-]+ s ago", str(error))
        assert "All ranks had begun this call" in str(error)


def test_a_switch_that_only_forwards_is_named_as_the_cause() -> None:
    def body(rank: int, communicator: Communicator) -> object:
        with pytest.raises(TimeoutError) as caught:
            communicator.probe(SOON)
        return str(caught.value), communicator.statistics.unaggregated_received

    with EmulatedSwitch(2, forward_only=True) as switch:
        for text, unaggregated in unwrap(switch.run(body)):
            assert "rank" in text and "probe: " in text
            assert "came unaggregated: the switch in between does not know this job" in text
            assert unaggregated > 0


def test_a_straggler_is_waited_for() -> None:
    late = threading.Event()

    def body(rank: int, communicator: Communicator) -> int:
        if rank == 1:
            assert late.wait(30)
        else:
            # Released by the other rank's resends, which prove that it is waiting.
            threading.Thread(target=release, args=(communicator,)).start()
        array = np.ones(5_000, np.int32)
        communicator.all_reduce(array, timeout=PATIENCE)
        return int(array.sum())

    def release(communicator: Communicator) -> None:
        while communicator.statistics.packets_resent < 3:
            late.wait(0.01)
        late.set()

    with EmulatedSwitch(2) as switch:
        assert unwrap(switch.run(body)) == [10_000] * 2


@pytest.mark.parametrize("wire", SWITCHES)
def test_abort_wakes_a_blocked_call_and_stays(wire: str) -> None:
    with SWITCHES[wire](2) as switch:
        alone = switch.communicator(0)
        caught: list[BaseException] = []

        def blocked() -> None:
            try:
                alone.all_reduce(np.ones(3, np.float32), timeout=PATIENCE)
            except AbortedError as error:
                caught.append(error)

        thread = threading.Thread(target=blocked)
        thread.start()
        while alone.statistics.packets_sent == 0:
            thread.join(0.001)
        alone.abort("rank 1 died")
        thread.join(30)
        assert not thread.is_alive()
        assert str(caught[0]).endswith("call 1: all_reduce(SUM, float32, 3 elements): rank 1 died")
        with pytest.raises(AbortedError, match=r"call 2: .* was not started: .*rank 1 died"):
            alone.all_reduce(np.ones(3, np.float32), timeout=PATIENCE)


def test_death_of_the_switch_is_noticed_at_once() -> None:
    switch = EmulatedSwitch(2)
    with switch:
        alone = switch.communicator(0)
        stopper = threading.Thread(target=lambda: (wait_for_packets(alone), switch.stop()))
        stopper.start()
        with pytest.raises(AbortedError, match=r"switch emulated-1 closed port 0 \(shm:@netreduce-emulated-"):
            alone.all_reduce(np.ones(3, np.float32), timeout=PATIENCE)
        stopper.join()
        with pytest.raises(AbortedError, match="closed port"):
            alone.probe(PATIENCE)


def wait_for_packets(communicator: Communicator) -> None:
    waiter = threading.Event()
    while communicator.statistics.packets_sent == 0:
        waiter.wait(0.001)


def test_after_an_error_every_call_repeats_the_first_cause() -> None:
    with EmulatedSwitch(2) as switch:
        alone = switch.communicator(0)
        with pytest.raises(TimeoutError):
            alone.probe(SOON)
        for _ in range(2):
            with pytest.raises(
                AbortedError, match=r"failed before \(.*probe: no complete result within 300 ms"
            ):
                alone.all_reduce(np.ones(3, np.float32), timeout=PATIENCE)


def test_a_full_ring_loses_packets_and_is_named() -> None:
    """A switch that does not read: what finds no room is lost, and nothing blocks or overflows."""

    class Hung(EmulatedSwitch):
        def _serve(self) -> bool:
            for port in self._ports.values():
                port.from_host.take = lambda: None
            return super()._serve()

    with Hung(2, window=64) as switch:
        alone = switch.communicator(0)
        with pytest.raises(TimeoutError, match="packets found the ring to the switch full"):
            # 74 prelude packets, of which 64 have credit: 256 slots are full after the third resend.
            alone.all_reduce(np.zeros(2_400_000), timeout=timedelta(milliseconds=800))


def test_something_else_listens_at_that_path() -> None:
    with EmulatedSwitch(2) as switch:
        config = switch.config(0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"\0netreduce-other-{os.getpid()}")
        listener.listen()

        def answer() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(64)
                client.send(b"hello?")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(WireError, match="is not a NetReduce switch"):
            Communicator.over_shm(config, f"@netreduce-other-{os.getpid()}", 0)
        thread.join()


def test_no_switch_at_that_path() -> None:
    with EmulatedSwitch(2) as switch:
        config = switch.config(0)
    with pytest.raises(
        WireError, match=r"connect to the switch at @nobody: Connection refused; is the switch"
    ):
        Communicator.over_shm(config, "@nobody", 0)


def test_a_refused_port_says_why() -> None:
    with EmulatedSwitch(2) as switch:
        first = switch.communicator(0)
        with pytest.raises(WireError, match=r"port 0 of the switch at @\S+ refused: .*port in use"):
            switch.communicator(0)
        del first


def test_frames_for_others_and_garbage_are_ignored() -> None:
    """Results under a wrong address, job, rank or length must not count."""

    class Noisy(EmulatedSwitch):
        def _emit(self, number: int, frame: bytes) -> None:
            result = bytearray(frame)
            for at, value in ((0, 0x04), (29, 1), (37, 0xFF), (42, 0), (44, 9), (47, 9), (48, 77)):
                changed = bytearray(result)
                changed[at] ^= value
                super()._emit(number, bytes(changed))
            super()._emit(number, bytes(result[:-256]))
            super()._emit(number, bytes(result[:50]))
            super()._emit(number, b"")
            super()._emit(number, frame)

    arrays = tensors(2, 9_000, np.int32)
    with Noisy(2) as switch:
        result = same_everywhere(reduce_all(switch, arrays))
    assert (result == sum(arrays)).all()


def test_a_result_of_too_few_ranks_is_refused() -> None:
    class Hasty(EmulatedSwitch):
        def _wrap(self, rank: int, payload: bytes) -> bytes:
            changed = bytearray(payload)
            struct.pack_into("!H", changed, 12, self.world_size - 1)
            return super()._wrap(rank, bytes(changed))

    def body(rank: int, communicator: Communicator) -> None:
        communicator.probe(PATIENCE)

    with Hasty(3) as switch:
        errors = switch.run(body)
    assert [type(e) for e in errors] == [IntegrityError] * 3
    assert "2 of 3 ranks contributed" in str(errors[0])


def test_a_forked_child_cannot_disturb_its_parent() -> None:
    """The child may drop its copy, and is told so when it uses it; the parent goes on."""
    with EmulatedSwitch(1) as switch:
        communicators = [switch.communicator(0)]
        communicators[0].probe(PATIENCE)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with pytest.raises(AbortedError, match="belongs to the process"):
                    communicators[0].probe(SOON)
                communicators.clear()
                gc.collect()
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        array = np.arange(5, dtype=np.int32)
        communicators[0].all_reduce(array, timeout=PATIENCE)
        assert array.tolist() == [0, 1, 2, 3, 4]
