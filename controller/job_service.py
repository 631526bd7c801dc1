"""The gRPC service for host agents: turns calls and their ends into the manager's events."""

import asyncio
from collections.abc import AsyncIterator

import grpc

from netreduce.controller.api import job_service_pb2 as pb
from netreduce.controller.api import job_service_pb2_grpc as pb_grpc
from netreduce.controller.errors import Refusal, UnknownMember
from netreduce.controller.jobs.job import Job, JobState, Member
from netreduce.controller.jobs.manager import JobManager


class JobService(pb_grpc.JobServiceServicer):
    """See job_service.proto."""

    def __init__(self, manager: JobManager):
        self._manager = manager

    async def Join(self, request: pb.JoinRequest, context: grpc.aio.ServicerContext) -> pb.JoinReply:
        """Waits for the other ranks; the end of the call before is the rank going away."""
        return await self._manager.join(request)

    async def Attend(
        self, request_iterator: AsyncIterator[pb.MemberReport], context: grpc.aio.ServicerContext
    ) -> None:
        """Presence of one member, until either side ends the stream."""
        try:
            first = await anext(aiter(request_iterator), None)
            job, member = self._manager.attend(first.member if first else "")
        except UnknownMember as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        except Refusal as error:
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, str(error))
        self._manager.report(member, first)
        try:
            # Tells the member that from here on its death is noticed.
            await context.send_initial_metadata(())
            if job.state is JobState.ACTIVE:
                await self._until_over(job, member, request_iterator)
            if job.abort_event is not None:
                await context.write(pb.JobEvent(abort=job.abort_event))
        finally:
            self._manager.attendance_ended(job, member)

    async def _until_over(self, job: Job, member: Member, reports: AsyncIterator[pb.MemberReport]) -> None:
        """Return when the member's side of the stream has ended or the job was aborted."""
        name = f"{job.describe()}|attend {member.rank}"
        reader = asyncio.create_task(self._read(member, reports), name=name)
        aborted = asyncio.create_task(job.aborted.wait(), name=name)
        try:
            await asyncio.wait({reader, aborted}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            reader.cancel()
            aborted.cancel()
            await asyncio.gather(reader, aborted, return_exceptions=True)

    async def _read(self, member: Member, reports: AsyncIterator[pb.MemberReport]) -> None:
        async for report in reports:
            self._manager.report(member, report)

    async def Leave(self, request: pb.LeaveRequest, context: grpc.aio.ServicerContext) -> pb.LeaveReply:
        """Orderly departure."""
        try:
            await self._manager.leave(request)
        except UnknownMember as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        return pb.LeaveReply()
