"""The gRPC service behind ``netreduce ctl``."""

import grpc

from netreduce.controller import streams
from netreduce.controller.api import job_service_pb2 as pb
from netreduce.controller.api import job_service_pb2_grpc as pb_grpc
from netreduce.controller.errors import SwitchError
from netreduce.controller.jobs.manager import JobManager
from netreduce.controller.log import logger
from netreduce.controller.tables import causes
from netreduce.controller.views import job_info, orphan_info, switch_info

LOG = logger(__name__)
NO_STREAM = 0


class OperatorService(pb_grpc.OperatorServiceServicer):
    """See job_service.proto."""

    def __init__(self, manager: JobManager):
        self._manager = manager

    async def ListSwitches(
        self, request: pb.ListSwitchesRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListSwitchesReply:
        """All switches of the topology file."""
        names = self._manager.inventory.switches
        return pb.ListSwitchesReply(switches=[switch_info(self._manager, name) for name in names])

    async def ListJobs(
        self, request: pb.ListJobsRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListJobsReply:
        """Jobs with counters read now, if active."""
        jobs = self._manager.jobs(request.include_finished)
        for job in jobs:
            await self._manager.refresh(job)
        reply = pb.ListJobsReply(jobs=[job_info(job) for job in jobs])
        for name in self._manager.inventory.switches:
            reply.jobs.extend(orphan_info(name, orphan) for orphan in self._manager.orphanage.of(name))
        return reply

    async def ReadCounters(
        self, request: pb.ReadCountersRequest, context: grpc.aio.ServicerContext
    ) -> pb.ReadCountersReply:
        """Counters by stream; of a switch that cannot be read: an error if it was asked for by name."""
        names = list(self._manager.inventory.switches)
        if request.switch:
            if request.switch not in names:
                known = ", ".join(names)
                await context.abort(
                    grpc.StatusCode.NOT_FOUND, f"no switch is named {request.switch!r}; there are: {known}"
                )
            names = [request.switch]
        reply = pb.ReadCountersReply()
        for name in names:
            try:
                reply.switches.append(await self._counters(name))
            except SwitchError as error:
                if request.switch:
                    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
                LOG.warning("%s", error)
                reply.switches.add(switch=name)
        return reply

    async def _counters(self, switch: str) -> pb.SwitchCounters:
        jobs = self._manager.jobs_on(switch)
        numbers = [stream.number for job in jobs for stream in job.plan.streams]
        now = await streams.read_causes(self._manager.sessions[switch], [NO_STREAM, *numbers])
        reply = pb.SwitchCounters(switch=switch)
        reply.streams.add(counters=causes.message([now[NO_STREAM]]))
        for job in jobs:
            for stream in job.plan.streams:
                counts = causes.since(now[stream.number], job.baseline[stream.number])
                reply.streams.add(
                    job_id=job.job_id,
                    wire_job=stream.wire_job,
                    lane_bits=stream.lane_bits,
                    counters=causes.message([counts]),
                )
        return reply
