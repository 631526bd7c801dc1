"""The life of jobs, from the first request to join to the record of what they did."""

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any

from netreduce.controller import streams
from netreduce.controller.api import job_service_pb2 as pb
from netreduce.controller.clock import Clock
from netreduce.controller.errors import Refusal, SwitchError, UnknownMember
from netreduce.controller.identifiers import Generations
from netreduce.controller.jobs.admission import Admission
from netreduce.controller.jobs.gathering import Gathering, GroupRefusal, timeout_reason
from netreduce.controller.jobs.job import Job, JobState, Member, MemberState
from netreduce.controller.jobs.orphanage import Orphanage
from netreduce.controller.jobs.replies import admitted, refused
from netreduce.controller.jobs.resources import Holding, SwitchResources
from netreduce.controller.log import logger
from netreduce.controller.options import ControllerOptions
from netreduce.controller.session import SwitchSession
from netreduce.controller.synchronise import synchronise
from netreduce.controller.tables import causes
from netreduce.controller.topology import Inventory

LOG = logger(__name__)
FINAL_READINGS = 10
"""At most; two that agree are enough."""
INTERNAL_REASON = "setting up the job failed for an internal reason; see the controller's log"


class JobManager:
    """All jobs of one controller.  Everything runs on one event loop; ``sessions`` is filled in after
    construction, because sessions call back into ``switch_connected``."""

    def __init__(self, inventory: Inventory, options: ControllerOptions, clock: Clock):
        self.inventory = inventory
        self.sessions: dict[str, SwitchSession] = {}
        self.resources = {
            name: SwitchResources(name, inventory.shm_ports_of(name)) for name in inventory.switches
        }
        self.orphanage = Orphanage(self.resources, options.orphan_idle, clock)
        self._options = options
        self._clock = clock
        self._generations = Generations(clock.time)
        self._gathering = Gathering(clock, options.join_timeout)
        self._admission = Admission(
            inventory, self.sessions, self.resources, self._generations, options.window
        )
        self._open: dict[int, Job] = {}
        self._ended: deque[Job] = deque()
        self._tickets: dict[str, tuple[Job, Member]] = {}
        self._stranded: dict[str, list[Holding]] = {name: [] for name in inventory.switches}
        self._seen: set[str] = set()
        self._tasks: set[asyncio.Task] = set()
        self._stopping = False

    # --- What members ask --------------------------------------------------------------------------

    async def join(self, request: pb.JoinRequest) -> pb.JoinReply:
        """Wait for the group to be complete and the job to be set up on its switch, or refused."""
        if self._stopping:
            return refused("the controller is shutting down")
        try:
            job, member = self._gathering.add(request)
        except GroupRefusal as refusal:
            self._refuse(refusal.job, str(refusal))
            return refused(str(refusal))
        except Refusal as refusal:
            LOG.warning("rank %d of group %r is refused: %s", request.rank, request.group, refusal)
            return refused(str(refusal))
        self._open[job.job_id] = job
        if not job.missing():
            job.state = JobState.ADMITTING
            self._gathering.close(job)
            self._spawn(self._admit(job), f"{job.describe()}|admit")
        try:
            await job.decided.wait()
        except asyncio.CancelledError:
            self._join_abandoned(job, member)
            raise
        if job.state is JobState.REFUSED:
            return refused(job.reason)
        return admitted(job, member, self._options.lease)

    def attend(self, ticket: str) -> tuple[Job, Member]:
        """A member is present.  Raises UnknownMember, or Refusal when it attends already."""
        job, member = self._find(ticket)
        if member.state is MemberState.ATTENDING and job.state is JobState.ACTIVE:
            raise Refusal(f"{member.describe()} attends {job.describe()} already")
        if member.state is MemberState.ADMITTED:
            member.state = MemberState.ATTENDING
        return job, member

    def report(self, member: Member, report: pb.MemberReport) -> None:
        """Statistics of a member; those that come with Leave are final, whatever arrives later."""
        if report.HasField("statistics") and member.state is not MemberState.LEFT:
            member.statistics.CopyFrom(report.statistics)

    def attendance_ended(self, job: Job, member: Member) -> None:
        """The member's stream ended; without Leave that is its death."""
        present = job.state is JobState.ACTIVE and member.state is MemberState.ATTENDING
        if present and not self._stopping:
            self._lose(job, member, "died: its connection ended without leaving")

    async def leave(self, request: pb.LeaveRequest) -> None:
        """A member departs.  The last one's call returns when the job's record is complete.

        Raises UnknownMember.
        """
        job, member = self._find(request.member)
        if request.HasField("statistics"):
            member.statistics.CopyFrom(request.statistics)
        if member.state in (MemberState.ADMITTED, MemberState.ATTENDING):
            member.state = MemberState.LEFT
        if job.state is not JobState.ACTIVE:
            return
        if request.error:
            self.abort(job, f"{member.describe()} gave up: {request.error}", member.rank)
        elif all(m.state is MemberState.LEFT for m in job.members.values()):
            job.state = JobState.FINISHED
            # The caller may go away; the job must be closed all the same.
            await asyncio.shield(self._spawn(self._close(job), f"{job.describe()}|close"))

    # --- What time brings --------------------------------------------------------------------------

    def maintain(self) -> None:
        """To be called a few times a second: joins that time out, leases that expire, switches gone."""
        now = self._clock.monotonic()
        for job in self._gathering:
            if now >= job.deadline:
                self._refuse(job, timeout_reason(job))
        for job in self._active():
            for member in job.members.values():
                # Whoever attends is there as long as its stream is (see server._presence), reports or not.
                absent = member.state is MemberState.ADMITTED
                if absent and now - member.admitted_at >= self._options.lease.total_seconds():
                    seconds = f"{self._options.lease.total_seconds():g}"
                    self._lose(job, member, f"is taken for dead: it did not attend within {seconds} s")
                    break
        for name, session in self.sessions.items():
            limit = self._options.unreachable_limit.total_seconds()
            if session.down_since is not None and now - session.down_since >= limit:
                for job in self._active(name):
                    self.abort(job, f"switch {name} could not be reached for {limit:g} s ({session.state})")

    async def collect_orphans(self) -> None:
        """To be called now and then: removes entries of earlier controllers that nobody uses any more."""
        for session in list(self.sessions.values()):
            await self.orphanage.collect(session)

    # --- What switches do --------------------------------------------------------------------------

    async def switch_connected(self, session: SwitchSession, kept: bool) -> None:
        """A switch runs our program: bring its entries into shape.  The session's lock is held.

        ``kept``: the program was running already.  Raises SwitchError.
        """
        name = session.name
        plans = {job.plan.generation: job for job in self._active(name)}
        if not kept:
            self.orphanage.forget(name)
        outcome = await synchronise(
            session,
            self.inventory.ports_of(name),
            [job.plan for job in plans.values()],
            self.orphanage.of(name),
            kept=kept,
            adopt=name not in self._seen,
        )
        for plan in outcome.lost:
            self.abort(plans[plan.generation], f"switch {name} restarted and lost the job's entries")
        for holding in self._stranded[name]:
            holding.release()
        self._stranded[name].clear()
        for orphan in outcome.orphans:
            self._generations.observe(orphan.generation)
            await self.orphanage.adopt(session, orphan)
        self._seen.add(name)

    # --- What operators see ------------------------------------------------------------------------

    def jobs(self, include_ended: bool) -> list[Job]:
        """Jobs by number."""
        found = [*self._ended, *self._open.values()] if include_ended else list(self._open.values())
        return sorted(found, key=lambda job: job.job_id)

    def jobs_on(self, switch: str) -> list[Job]:
        """Active jobs of one switch."""
        return self._active(switch)

    async def refresh(self, job: Job) -> None:
        """Read an active job's counters from its switch; when that fails, the last ones stay."""
        if job.state is not JobState.ACTIVE or not self.sessions[job.plan.switch].ready:
            return
        try:
            # The lock keeps these from replacing the final ones, which are read when the job ends.
            async with self.sessions[job.plan.switch].lock:
                if job.state is JobState.ACTIVE:
                    await self._read_counters(job)
        except SwitchError as error:
            LOG.warning("counters of %s: %s", job.describe(), error)

    def abort(self, job: Job, reason: str, rank: int = -1) -> None:
        """End an active job, and tell the members that are still there."""
        if job.state is not JobState.ACTIVE:
            return
        LOG.warning("%s is aborted: %s", job.describe(), reason)
        job.state, job.reason = JobState.ABORTED, reason
        job.abort_event = pb.Abort(reason=reason, rank=rank)
        job.aborted.set()
        self._spawn(self._close(job), f"{job.describe()}|close")

    async def stop(self) -> None:
        """Accept nothing more and finish what is being written.  Active jobs keep their entries: the
        data plane needs no controller."""
        self._stopping = True
        for job in self._gathering:
            self._refuse(job, "the controller is shutting down")
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)

    # --- Inside ------------------------------------------------------------------------------------

    def _active(self, switch: str | None = None) -> list[Job]:
        jobs = [job for job in self._open.values() if job.state is JobState.ACTIVE]
        return [job for job in jobs if switch in (None, job.plan.switch)]

    def _find(self, ticket: str) -> tuple[Job, Member]:
        try:
            return self._tickets[ticket]
        except KeyError:
            raise UnknownMember(
                "this ticket belongs to no job of this controller (was it restarted?); the job goes on"
                " without it, and cannot be told of lost ranks"
            ) from None

    async def _admit(self, job: Job) -> None:
        try:
            self._admission.plan(job)
        except Refusal as refusal:
            self._refuse(job, str(refusal))
            return
        except Exception:
            self._refuse(job, INTERNAL_REASON)
            raise
        session = self.sessions[job.plan.switch]
        try:
            async with session.lock:
                if not session.ready:
                    raise Refusal(f"switch {session.name} is not ready ({session.state})")
                try:
                    numbers = [stream.number for stream in job.plan.streams]
                    job.baseline = await streams.read_causes(session, numbers)
                    await streams.install(session, job.plan)
                except BaseException:
                    await self._remove_entries(job, session)
                    raise
                self._activate(job)
        except Refusal as refusal:
            job.holding.release()
            self._refuse(job, str(refusal))
        except SwitchError as error:
            self._refuse(job, f"setting up the job failed: {error}")
        except Exception:
            self._refuse(job, INTERNAL_REASON)
            raise

    def _activate(self, job: Job) -> None:
        now = self._clock.monotonic()
        for member in job.members.values():
            member.admitted_at = now
            if member.state is MemberState.JOINING:
                member.state = MemberState.ADMITTED
            self._tickets[member.ticket] = (job, member)
        job.state = JobState.ACTIVE
        slots, ranks = job.holding.slots, job.world_size
        LOG.info(
            "%s is admitted: %d ranks, slots %d to %d of switch %s, generation %d",
            job.describe(), ranks, slots.first, slots.end - 1, job.plan.switch, job.plan.generation,
        )  # fmt: skip
        job.decided.set()
        for member in job.members.values():
            if member.state is MemberState.LOST:
                self.abort(job, f"{member.describe()} went away while the job was set up", member.rank)

    def _join_abandoned(self, job: Job, member: Member) -> None:
        if job.members.get(member.rank) is not member:
            return  # the process has asked again, in a newer call
        match job.state:
            case JobState.JOINING:
                self._gathering.depart(job, member)
            case JobState.ADMITTING:
                member.state = MemberState.LOST
            case JobState.ACTIVE:
                self._lose(job, member, "went away before it heard that it was admitted")

    def _lose(self, job: Job, member: Member, how: str) -> None:
        member.state = MemberState.LOST
        self.abort(job, f"{member.describe()} {how}", member.rank)

    def _refuse(self, job: Job, reason: str) -> None:
        LOG.warning("%s is refused: %s", job.describe(), reason)
        job.state, job.reason = JobState.REFUSED, reason
        self._gathering.close(job)
        self._end(job)
        job.decided.set()

    async def _close(self, job: Job) -> None:
        """Read what the job did, take its entries off the switch, and its resources back."""
        session = self.sessions[job.plan.switch]
        try:
            async with session.lock:
                if session.ready:
                    try:
                        await self._read_final_counters(job)
                    except SwitchError as error:
                        LOG.warning("counters of %s are lost: %s", job.describe(), error)
                await self._remove_entries(job, session)
        finally:
            self._end(job)
        LOG.info("%s is %s", job.describe(), job.state_text())

    async def _remove_entries(self, job: Job, session: SwitchSession) -> None:
        """Take the entries off and the resources back.  When that fails, both wait for the next time that
        the switch is synchronised, which removes the entries of jobs that are over."""
        try:
            await streams.remove(session, job.plan)
            job.holding.release()
        except SwitchError as error:
            LOG.warning("entries of %s stay until the next connection: %s", job.describe(), error)
            self._stranded[session.name].append(job.holding)

    async def _read_counters(self, job: Job) -> None:
        session = self.sessions[job.plan.switch]
        now = await streams.read_causes(session, [stream.number for stream in job.plan.streams])
        job.counters = causes.message(causes.since(now[s], job.baseline[s]) for s in now)
        for rank, delivered in enumerate(await streams.read_delivered(session, job.plan)):
            job.members[rank].results_delivered = delivered

    async def _read_final_counters(self, job: Job) -> None:
        """Read until two readings agree: the last resends may still be in the switch's queues."""
        reading = None
        for _ in range(FINAL_READINGS):
            await self._read_counters(job)
            delivered = [member.results_delivered for member in job.members.values()]
            previous, reading = reading, (job.counters.SerializeToString(deterministic=True), delivered)
            if reading == previous:
                return

    def _end(self, job: Job) -> None:
        job.ended_at = self._clock.time()
        self._open.pop(job.job_id, None)
        self._ended.append(job)
        while len(self._ended) > self._options.finished_jobs:
            for member in self._ended.popleft().members.values():
                self._tickets.pop(member.ticket, None)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            LOG.error("%s failed", task.get_name(), exc_info=task.exception())
