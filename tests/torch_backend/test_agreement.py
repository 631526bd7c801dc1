"""All ranks come to one decision, whoever is late, silent or of another mind."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch.distributed as dist

from netreduce.host_agent.agreement import Agreement, Disagreement
from netreduce.host_agent.options import Options

OPTIONS = Options(controller="127.0.0.1:50100")
PATIENCE = timedelta(seconds=10)
SHORT = timedelta(seconds=0.2)


def on_ranks(size: int, body: Callable[[Agreement, int], object], patience: timedelta = PATIENCE) -> list:
    """What ``body`` returns, or raises, on each rank; the ranks are threads."""
    store = dist.HashStore()

    def one(rank: int) -> object:
        try:
            return body(Agreement(store, rank, size, patience), rank)
        except Exception as error:
            return error

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(one, range(size)))


def test_all_ranks_get_rank_zeros_identifier() -> None:
    first = on_ranks(4, lambda agreement, _: agreement.open(OPTIONS))
    second = on_ranks(4, lambda agreement, _: agreement.open(OPTIONS))
    assert len(set(first)) == 1 and len(set(second)) == 1
    assert first != second, "an identifier is never used twice"


@pytest.mark.parametrize(
    "other", [Options(controller="127.0.0.1:50100", precision=16), Options("10.0.0.1:1")]
)
def test_other_settings_are_named(other: Options) -> None:
    results = on_ranks(2, lambda agreement, rank: agreement.open(other if rank else OPTIONS))
    assert isinstance(results[0], str)
    assert isinstance(results[1], Disagreement) and "rank 1 has NETREDUCE_" in str(results[1])


def test_a_silent_rank_zero() -> None:
    def body(agreement: Agreement, rank: int) -> object:
        if rank == 0:
            return None
        with pytest.raises(Disagreement, match="rank 0 said nothing") as caught:
            agreement.open(OPTIONS)
        return agreement.decide("join", str(caught.value))

    results = on_ranks(3, body, SHORT)
    assert results[1] == results[2] and "rank 0 said nothing" in results[1]


def test_no_obstacle_on_any_rank() -> None:
    def body(agreement: Agreement, rank: int) -> object:
        agreement.open(OPTIONS)
        return agreement.decide("join", None), agreement.decide("use", None)

    assert on_ranks(4, body) == [(None, None)] * 4


@pytest.mark.parametrize("who", [0, 1, 3])
def test_one_ranks_obstacle_is_everyones(who: int) -> None:
    def body(agreement: Agreement, rank: int) -> object:
        agreement.open(OPTIONS)
        return agreement.decide("use", "no cable" if rank == who else None)

    assert on_ranks(4, body) == ["no cable"] * 4


def test_the_cause_counts_not_what_others_were_told_of_it() -> None:
    def body(agreement: Agreement, rank: int) -> object:
        agreement.open(OPTIONS)
        told = "rank 2 did not join in time"
        return agreement.decide("use", "no cable" if rank == 2 else told, hearsay=rank != 2)

    assert on_ranks(4, body) == ["no cable"] * 4


def test_what_all_were_told_is_the_reason() -> None:
    def body(agreement: Agreement, rank: int) -> object:
        agreement.open(OPTIONS)
        return agreement.decide("use", "no slots", hearsay=True)

    assert on_ranks(3, body) == ["no slots"] * 3


def test_a_rank_that_died_does_not_hold_up_what_others_were_told() -> None:
    def body(agreement: Agreement, rank: int) -> object:
        agreement.open(OPTIONS)
        return None if rank == 1 else agreement.decide("use", "rank 1 went away", hearsay=True)

    results = on_ranks(3, body)
    assert results[0] == results[2] == "rank 1 went away"


def test_a_rank_that_stays_away() -> None:
    def body(agreement: Agreement, rank: int) -> object:
        if rank == 2:
            return None
        agreement.open(OPTIONS)
        return agreement.decide("join", None)

    results = on_ranks(3, body, SHORT)
    assert results[0] == results[1] and "rank 2 did not take part" in results[0]


def test_rank_zero_dies_before_deciding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netreduce.host_agent.agreement.DECISION_MARGIN", SHORT)

    def body(agreement: Agreement, rank: int) -> object:
        agreement.open(OPTIONS)
        return agreement.decide("join", None) if rank else None

    results = on_ranks(2, body, SHORT)
    assert isinstance(results[1], RuntimeError) and "has it died" in str(results[1])
