"""Records of switches and jobs as the operators' API shows them."""

from netreduce.controller.api import job_service_pb2 as pb
from netreduce.controller.jobs.job import Job
from netreduce.controller.jobs.manager import JobManager
from netreduce.controller.jobs.replies import endpoint
from netreduce.controller.orphans import Orphan
from netreduce.controller.topology import SwitchPort


def switch_info(manager: JobManager, name: str) -> pb.SwitchInfo:
    """One switch."""
    session, resources = manager.sessions[name], manager.resources[name]
    return pb.SwitchInfo(
        name=name,
        address=session.spec.address,
        device_id=session.spec.device_id,
        state=session.state,
        program=session.program,
        slots_total=resources.slots.total,
        slots_used=resources.slots.used,
        jobs=len(manager.jobs_on(name)),
        ports=[_port_info(port) for port in manager.inventory.ports_of(name)],
    )


def _port_info(port: SwitchPort) -> pb.PortInfo:
    return pb.PortInfo(
        port=port.number, host=port.host, mac=port.mac, ip=port.ip, attachment=port.describe_attachment()
    )


def job_info(job: Job) -> pb.JobInfo:
    """One job of this controller, with the counters that were read last."""
    info = pb.JobInfo(
        job_id=job.job_id,
        name=job.first.name,
        group=job.group,
        state=job.state_text(),
        world_size=job.world_size,
        transport=job.first.transport,
        members=[_member_info(job, rank) for rank in sorted(job.members)],
        switch_counters=job.counters,
        started_at=job.started_at,
        ended_at=job.ended_at,
    )
    if job.plan is not None:
        info.switch = job.plan.switch
        info.generation = job.plan.generation
        info.window = job.plan.window
        info.max_blocks = job.plan.max_blocks
        info.first_slot, info.slot_count = job.holding.slots.first, job.holding.slots.count
        for stream in job.plan.streams:
            info.streams.add(wire_job=stream.wire_job, lane_bits=stream.lane_bits)
    return info


def _member_info(job: Job, rank: int) -> pb.MemberInfo:
    member = job.members[rank]
    info = pb.MemberInfo(
        rank=rank,
        hostname=member.request.hostname,
        pid=member.request.pid,
        state=member.state.value,
        statistics=member.statistics,
        results_delivered=member.results_delivered,
    )
    if job.plan is not None:
        info.port = job.plan.ranks[rank].port.number
        info.endpoint.CopyFrom(endpoint(job.plan.ranks[rank]))
    return info


def orphan_info(switch: str, orphan: Orphan) -> pb.JobInfo:
    """A stream that an earlier controller left; job_id 0."""
    return pb.JobInfo(
        state="orphaned: admitted by an earlier run of the controller",
        switch=switch,
        world_size=orphan.world_size,
        generation=orphan.generation,
        window=orphan.slots.count // 2,
        first_slot=orphan.slots.first,
        slot_count=orphan.slots.count,
        streams=[pb.Stream(wire_job=orphan.wire_job)],
    )
