"""What a run did: read from the controller, checked against the switch's counters, shown to people."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import grpc
from rich.console import Console
from rich.table import Table

from netreduce.controller.api import job_service_pb2 as api
from netreduce.controller.api import job_service_pb2_grpc as api_grpc

RPC_TIMEOUT = timedelta(seconds=10)


def finished_jobs(controller: str, patience: timedelta = timedelta(seconds=5)) -> list[api.JobInfo]:
    """Every job the controller knows, once none is active any more or `patience` is over.

    Raises:
        ConnectionError: the controller does not answer.
    """
    deadline = time.monotonic() + patience.total_seconds()
    # The record of many jobs of many ranks is larger than gRPC's usual limit.
    with grpc.insecure_channel(controller, [("grpc.max_receive_message_length", -1)]) as channel:
        operator = api_grpc.OperatorServiceStub(channel)
        while True:
            try:
                reply = operator.ListJobs(
                    api.ListJobsRequest(include_finished=True), timeout=RPC_TIMEOUT.total_seconds()
                )
            except grpc.RpcError as error:
                raise ConnectionError(f"controller at {controller} does not answer: {error}") from error
            jobs = list(reply.jobs)
            if all(job.state not in ("joining", "active") for job in jobs) or time.monotonic() > deadline:
                return jobs
            time.sleep(0.05)  # the controller offers no event for this; bounded by the deadline


@dataclass
class Totals:
    """Sums over the ranks of some jobs."""

    calls: int = 0
    """All-reduce calls through the switch, counted once for all ranks."""
    tensor_bytes: int = 0
    """Bytes of their tensors, all ranks together."""
    packets_sent: int = 0
    packets_resent: int = 0
    results_received: int = 0
    switch_contributions: int = 0
    """Packets of these jobs that the switch counted, whatever it did with them."""
    switch_completed: int = 0
    """Stream indices whose sum became complete."""
    switch_answered: int = 0
    """Duplicates answered from a slot."""
    switch_bytes: int = 0
    results_delivered: int = 0
    fallbacks: dict[tuple[str, str], int] = field(default_factory=dict)
    """(collective, reason) to calls, all ranks together."""

    @property
    def contributions_per_result(self) -> float:
        """Packets that entered the switch for each result it made."""
        return self.switch_contributions / self.switch_completed if self.switch_completed else 0.0


def contributions(counters: api.CauseCounters) -> int:
    """Packets of a job that the switch took as contributions, new or not."""
    return (
        counters.first
        + counters.added
        + counters.completed
        + counters.duplicate_absorbed
        + counters.duplicate_answered
        + counters.stale
    )


def totals(jobs: Iterable[api.JobInfo]) -> Totals:
    """Adds up what the ranks and the switch counted."""
    total = Totals()
    for job in jobs:
        total.calls += max((member.statistics.calls for member in job.members), default=0)
        for member in job.members:
            statistics = member.statistics
            total.tensor_bytes += statistics.tensor_bytes
            total.packets_sent += statistics.packets_sent
            total.packets_resent += statistics.packets_resent
            total.results_received += statistics.results_received
            total.results_delivered += member.results_delivered
            for fallback in statistics.fallbacks:
                key = (fallback.collective, fallback.reason)
                total.fallbacks[key] = total.fallbacks.get(key, 0) + fallback.calls
        total.switch_contributions += contributions(job.switch_counters)
        total.switch_completed += job.switch_counters.completed
        total.switch_answered += job.switch_counters.duplicate_answered
        total.switch_bytes += job.switch_counters.bytes
    return total


def disagreements(jobs: Sequence[api.JobInfo], lossless: bool = True) -> list[str]:
    """Where the switch's counters and the workers' do not fit together; empty when all is well.

    Every packet that a rank sent has entered a sum exactly once, however often it was lost or resent.
    On lossless ports, besides, the switch saw nothing that was not sent. (It may see fewer packets than
    were sent: a resend that nobody needs may still be under way when its rank leaves.)
    """
    found = []
    for job in jobs:
        name = f"job {job.job_id} ({job.name})"
        counters = job.switch_counters
        first_sends = [m.statistics.packets_sent for m in job.members]
        all_sends = sum(first_sends) + sum(m.statistics.packets_resent for m in job.members)
        summed = counters.first + counters.added + counters.completed
        if summed != sum(first_sends):
            found.append(f"{name}: workers sent {sum(first_sends)} packets, the switch summed {summed}")
        if lossless and contributions(counters) > all_sends:
            found.append(
                f"{name}: workers sent {all_sends} packets with resends, "
                f"the switch counted {contributions(counters)}"
            )
        completed = counters.completed
        if any(n != completed for n in first_sends):
            found.append(
                f"{name}: the switch completed {completed} sums, the ranks contributed to {first_sends}"
            )
        delivered = sum(m.results_delivered for m in job.members)
        due = completed * job.world_size + counters.duplicate_answered
        if delivered != due:
            found.append(f"{name}: the switch sent {delivered} results, {due} were due")
        for trouble in ("spoofed", "malformed", "unknown"):
            number = getattr(counters, trouble)
            if number:
                found.append(f"{name}: {number} {trouble} packets")
    return found


def byte_count(number: int) -> str:
    """`number` bytes for people."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.2f} {unit}"
    return f"{number} B"


def summary_table(jobs: Sequence[api.JobInfo]) -> Table:
    """The few lines at the end of a run."""
    total = totals(jobs)
    table = Table(title="through the switch", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_row("jobs", str(sum(1 for job in jobs if job.members)))
    table.add_row("all-reduce calls", f"{total.calls}")
    table.add_row("tensor bytes, all ranks", byte_count(total.tensor_bytes))
    table.add_row("contribution packets (switch)", f"{total.switch_contributions}")
    table.add_row("contribution bytes (switch)", byte_count(total.switch_bytes))
    table.add_row("sums completed (switch)", f"{total.switch_completed}")
    table.add_row("contributions per result", f"{total.contributions_per_result:.2f}")
    table.add_row("results sent (switch)", f"{total.results_delivered}")
    table.add_row("resends (workers)", f"{total.packets_resent}")
    return table


def fallback_table(jobs: Sequence[api.JobInfo]) -> Table | None:
    """What Gloo did and why; None when it did nothing."""
    total = totals(jobs)
    if not total.fallbacks:
        return None
    table = Table(title="by Gloo", title_justify="left")
    table.add_column("collective")
    table.add_column("calls, all ranks", justify="right")
    table.add_column("why")
    for (collective, reason), calls in sorted(total.fallbacks.items()):
        table.add_row(collective, str(calls), reason)
    return table


def print_summary(jobs: Sequence[api.JobInfo], console: Console) -> None:
    """Prints what went through the switch, what did not, and jobs that ended badly."""
    console.print(summary_table(jobs))
    fallbacks = fallback_table(jobs)
    if fallbacks is not None:
        console.print(fallbacks)
    for job in jobs:
        if job.state.startswith(("aborted", "refused")):
            console.print(f"job {job.job_id} ({job.name}) was {job.state}", style="bold red", markup=False)
