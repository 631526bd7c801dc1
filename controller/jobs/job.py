"""A job and its members: state and history, no decisions."""

import asyncio
from dataclasses import dataclass, field
from enum import Enum

from netreduce.controller.api import job_service_pb2 as pb
from netreduce.controller.jobs.plan import JobPlan
from netreduce.controller.jobs.resources import Holding
from netreduce.controller.tables.causes import Counts


class JobState(Enum):
    """Life of a job: joining → active → finished or aborted; or joining → refused."""

    JOINING = "joining"
    ADMITTING = "admitting"
    ACTIVE = "active"
    FINISHED = "finished"
    ABORTED = "aborted"
    REFUSED = "refused"


class MemberState(Enum):
    """Life of a member."""

    JOINING = "joining"
    ADMITTED = "admitted"
    ATTENDING = "attending"
    LEFT = "left"
    LOST = "lost"


@dataclass
class Member:
    """One rank."""

    request: pb.JoinRequest
    ticket: str
    state: MemberState = MemberState.JOINING
    admitted_at: float = 0.0
    "Clock reading."
    statistics: pb.HostStatistics = field(default_factory=pb.HostStatistics)
    results_delivered: int = 0

    @property
    def rank(self) -> int:
        """The rank asked for."""
        return self.request.rank

    def describe(self) -> str:
        """For messages: ``rank 2 (pid 4711 on node7)``."""
        return f"rank {self.rank} (pid {self.request.pid} on {self.request.hostname or 'an unnamed host'})"


@dataclass
class Job:
    """One process group.  All ranks' requests agree with ``first``."""

    job_id: int
    first: pb.JoinRequest
    started_at: float
    deadline: float
    "Clock reading at which the ranks stop waiting for each other."
    state: JobState = JobState.JOINING
    reason: str = ""
    "Why it was aborted or refused."
    members: dict[int, Member] = field(default_factory=dict)
    departed: dict[int, Member] = field(default_factory=dict)
    "Ranks that joined and gave up before the job was decided."
    plan: JobPlan | None = None
    holding: Holding | None = None
    baseline: dict[int, Counts] = field(default_factory=dict)
    "The streams' counters before the job began."
    counters: pb.CauseCounters = field(default_factory=pb.CauseCounters)
    "As last read."
    ended_at: float = 0.0
    abort_event: pb.Abort | None = None
    decided: asyncio.Event = field(default_factory=asyncio.Event)
    "Admitted or refused."
    aborted: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def group(self) -> str:
        """Key under which the ranks found each other."""
        return self.first.group

    @property
    def world_size(self) -> int:
        """Ranks."""
        return self.first.world_size

    def describe(self) -> str:
        """For messages: ``job 3 (resnet)``."""
        return f"job {self.job_id} ({self.first.name})" if self.first.name else f"job {self.job_id}"

    def missing(self) -> list[int]:
        """Ranks that have not joined."""
        return [rank for rank in range(self.world_size) if rank not in self.members]

    def state_text(self) -> str:
        """For people, as the API documents it."""
        match self.state:
            case JobState.ABORTED | JobState.REFUSED:
                return f"{self.state.value}: {self.reason}"
            case JobState.ADMITTING:
                return JobState.JOINING.value
        return self.state.value
