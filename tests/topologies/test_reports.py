"""Totals and cross-checks of the controller's job records."""

import pytest
from rich.console import Console

from netreduce.controller.api import job_service_pb2 as api
from netreduce.topologies import reports


def job(**changes: int) -> api.JobInfo:
    """Two ranks, three stream indices, one resend that the switch answered: everything fits."""
    counters = {"first": 3, "added": 0, "completed": 3, "duplicate_answered": 1, "bytes": 7 * 314}
    sent = [3, 3]
    delivered = [4, 3]
    counters |= {k: v for k, v in changes.items() if k in api.CauseCounters.DESCRIPTOR.fields_by_name}
    if "sent_by_rank_1" in changes:
        sent[1] = changes["sent_by_rank_1"]
    if "delivered_to_rank_1" in changes:
        delivered[1] = changes["delivered_to_rank_1"]
    fallback = api.Fallback(collective="broadcast", reason="not an all-reduce", calls=2, tensor_bytes=64)
    members = [
        api.MemberInfo(
            rank=rank,
            results_delivered=delivered[rank],
            statistics=api.HostStatistics(
                calls=2,
                tensor_bytes=1000,
                packets_sent=sent[rank],
                packets_resent=1 - rank,
                results_received=3,
                fallbacks=[fallback],
            ),
        )
        for rank in range(2)
    ]
    return api.JobInfo(
        job_id=7, name="default", state="finished", world_size=2, members=members,
        switch_counters=api.CauseCounters(**counters),
    )  # fmt: skip


def test_consistent_counters_agree() -> None:
    assert reports.disagreements([job()]) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"first": 2}, "workers sent 6 packets, the switch summed 5"),
        ({"added": 1}, "workers sent 6 packets, the switch summed 7"),
        ({"duplicate_absorbed": 1}, "workers sent 7 packets with resends, the switch counted 8"),
        ({"completed": 2, "added": 1}, "completed 2 sums, the ranks contributed to [3, 3]"),
        ({"sent_by_rank_1": 2}, "the ranks contributed to [3, 2]"),
        ({"delivered_to_rank_1": 2}, "sent 6 results, 7 were due"),
        ({"spoofed": 5}, "5 spoofed packets"),
        ({"malformed": 1}, "1 malformed packets"),
    ],
)
def test_inconsistent_counters_are_named(changes: dict[str, int], words: str) -> None:
    assert any(words in line for line in reports.disagreements([job(**changes)]))


def test_duplicates_of_the_network_are_excused_on_lossy_ports() -> None:
    assert reports.disagreements([job(duplicate_absorbed=9)], lossless=False) == []


def test_lost_packets_are_not_excused() -> None:
    assert reports.disagreements([job(first=2)], lossless=False) != []
    assert reports.disagreements([job(delivered_to_rank_1=2)], lossless=False) != []


def test_an_unneeded_resend_may_be_left_under_way() -> None:
    assert reports.disagreements([job(duplicate_answered=0, delivered_to_rank_1=2)]) == []


def test_totals_count_calls_once_and_bytes_of_all_ranks() -> None:
    total = reports.totals([job(), job()])
    assert total.calls == 4
    assert total.tensor_bytes == 4000
    assert total.switch_contributions == 14
    assert total.contributions_per_result == pytest.approx(14 / 6)
    assert total.fallbacks == {("broadcast", "not an all-reduce"): 8}


def test_summary_shows_fallbacks_and_aborts(capsys: pytest.CaptureFixture[str]) -> None:
    aborted = job()
    aborted.state = "aborted: rank 1 (host a, pid 9) died"
    reports.print_summary([aborted], Console(width=120))
    output = capsys.readouterr().out
    assert "not an all-reduce" in output
    assert "rank 1 (host a, pid 9) died" in output
    assert "2.33" in output


def test_nothing_is_shown_as_nothing() -> None:
    total = reports.totals([])
    assert total.contributions_per_result == 0.0
    assert reports.disagreements([]) == []
