"""Answers to requests to join."""

from datetime import timedelta

from netreduce.controller.api import job_service_pb2 as pb
from netreduce.controller.jobs.job import Job, Member
from netreduce.controller.jobs.plan import RankPlan


def refused(reason: str) -> pb.JoinReply:
    """Not admitted, and why."""
    return pb.JoinReply(admitted=False, reason=reason)


def endpoint(rank: RankPlan) -> pb.Endpoint:
    """Addresses of a rank."""
    return pb.Endpoint(mac=rank.port.mac, ip=rank.port.ip, udp_port=rank.udp_port)


def admitted(job: Job, member: Member, lease: timedelta) -> pb.JoinReply:
    """All that the member needs to take part."""
    plan, rank = job.plan, member.rank
    own = plan.ranks[rank]
    return pb.JoinReply(
        admitted=True,
        job_id=job.job_id,
        generation=plan.generation,
        window=plan.window,
        max_blocks=plan.max_blocks,
        streams=[pb.Stream(wire_job=s.wire_job, lane_bits=s.lane_bits) for s in plan.streams],
        self=endpoint(own),
        successor=endpoint(plan.successor(rank)),
        predecessor=endpoint(plan.predecessor(rank)),
        shm_socket=own.port.socket,
        shm_port=own.port.number if own.port.socket else 0,
        lease_ms=int(lease.total_seconds() * 1000),
        member=member.ticket,
        switch=plan.switch,
    )
