"""Where the ranks of a process group wait for each other."""

import secrets
from collections import OrderedDict
from collections.abc import Iterator
from datetime import timedelta

from netreduce.controller.api import job_service_pb2 as pb
from netreduce.controller.clock import Clock
from netreduce.controller.errors import Refusal
from netreduce.controller.jobs.job import Job, JobState, Member
from netreduce.controller.jobs.validation import check_agreement, check_request, check_words

REMEMBERED_GROUPS = 4096
"""Groups that are over; a name is never used twice."""


class GroupRefusal(Refusal):
    """The request shows that its whole group cannot work: all its ranks are to be refused."""

    def __init__(self, job: Job, reason: str):
        super().__init__(reason)
        self.job = job


class Gathering:
    """Jobs in state joining, by group; and what became of the groups before them."""

    def __init__(self, clock: Clock, default_timeout: timedelta):
        self._clock = clock
        self._default_timeout = default_timeout
        self._waiting: dict[str, Job] = {}
        self._over: OrderedDict[str, Job] = OrderedDict()
        self._next_job_id = 1

    def __iter__(self) -> Iterator[Job]:
        return iter(list(self._waiting.values()))

    def _new_job(self, request: pb.JoinRequest) -> Job:
        job = Job(self._next_job_id, request, self._clock.time(), deadline=float("inf"))
        self._next_job_id += 1
        return job

    def add(self, request: pb.JoinRequest) -> tuple[Job, Member]:
        """Put a rank with its group.  Raises Refusal for this rank, or GroupRefusal for all."""
        if not request.group:
            raise Refusal("the request names no group; all ranks of a process group must send the same one")
        check_words(request)
        over = self._over.get(request.group)
        if over is not None:
            if over.state is JobState.REFUSED:
                raise Refusal(over.reason)
            raise Refusal(
                f"group {request.group!r} was used by {over.describe()} already; every process group needs"
                " a name of its own"
            )
        member = Member(request, ticket=secrets.token_hex(16))
        job = self._waiting.get(request.group)
        if job is None:
            job = self._waiting[request.group] = self._new_job(request)
        self._check_joinable(job, member)
        timeout = request.timeout_ms / 1000 or self._default_timeout.total_seconds()
        job.deadline = min(job.deadline, self._clock.monotonic() + timeout)
        job.members[member.rank] = member
        job.departed.pop(member.rank, None)
        return job, member

    def _check_joinable(self, job: Job, member: Member) -> None:
        others = [*job.members.values(), *job.departed.values()]
        try:
            check_request(member.request)
            if others:
                check_agreement(others[0], member)
            twin = job.members.get(member.rank)
            if twin is not None and not _same_process(twin, member):
                raise Refusal(
                    f"two processes joined group {job.group!r} as rank {member.rank}: {twin.describe()} and"
                    f" {member.describe()}"
                )
        except Refusal as refusal:
            raise GroupRefusal(job, str(refusal)) from refusal

    def depart(self, job: Job, member: Member) -> None:
        """The rank's call ended while it waited."""
        if job.members.get(member.rank) is member:
            job.departed[member.rank] = job.members.pop(member.rank)
            if not job.members:
                # Nobody waits any more, however long they had meant to.
                patience = self._default_timeout.total_seconds()
                job.deadline = min(job.deadline, self._clock.monotonic() + patience)

    def close(self, job: Job) -> None:
        """The job is decided: its group is over."""
        if self._waiting.get(job.group) is job:
            del self._waiting[job.group]
            self._over[job.group] = job
            if len(self._over) > REMEMBERED_GROUPS:
                self._over.popitem(last=False)


def _same_process(one: Member, other: Member) -> bool:
    """A rank that asks again, its first call having been cut off unnoticed."""
    return (one.request.hostname, one.request.pid) == (other.request.hostname, other.request.pid)


def timeout_reason(job: Job) -> str:
    """Who did not come."""
    missing = ", ".join(str(rank) for rank in job.missing())
    plural = "s" if len(job.missing()) > 1 else ""
    reason = (
        f"rank{plural} {missing} of {job.world_size} did not join in time; check that every rank reaches this"
        " controller"
    )
    if job.departed:
        gone = ", ".join(member.describe() for member in job.departed.values())
        reason += f" ({gone} joined and went away)"
    return reason
