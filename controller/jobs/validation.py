"""Whether requests to join make sense: each one alone, against its group's first, and all together."""

from collections.abc import Iterable

from netreduce.controller.api import job_service_pb2 as pb
from netreduce.controller.errors import Refusal
from netreduce.controller.jobs.job import Member
from netreduce.controller.topology.addresses import canonical_ip
from netreduce.p4.wire import (
    BLOCK_BYTES,
    BLOCK_COUNTS,
    IPV4_HEADER_BYTES,
    MAX_BLOCKS,
    MAX_RANKS,
    NR_HEADER_BYTES,
    UDP_HEADER_BYTES,
    UDP_PORT_COUNT,
    UDP_PORT_FIRST,
)

LANE_BITS = (16, 32, 64)
MAX_NAME = 255
"""Characters of a group's or host's name: as long as a file's."""
OVERHEAD_BYTES = IPV4_HEADER_BYTES + UDP_HEADER_BYTES + NR_HEADER_BYTES
UDP_DEFAULT_MTU = 1500
"""Assumed for a UDP path of unknown MTU: what every Ethernet carries."""
SHM_MTU = OVERHEAD_BYTES + MAX_BLOCKS * BLOCK_BYTES


def transport_name(transport: int) -> str:
    """``shm`` or ``udp``; of any other the number, which a request may carry."""
    known = pb.Transport.DESCRIPTOR.values_by_number.get(transport)
    return known.name.removeprefix("TRANSPORT_").lower() if known else str(transport)


def check_words(request: pb.JoinRequest) -> None:
    """Names are kept for thousands of groups and shown to people.  Raises Refusal."""
    for field in ("group", "name", "hostname"):
        length = len(getattr(request, field))
        if length > MAX_NAME:
            raise Refusal(f"the {field} has {length} characters; at most {MAX_NAME} are allowed")


def check_request(request: pb.JoinRequest) -> None:
    """What can be said about one request alone.  Raises Refusal."""
    if request.world_size < 2:
        raise Refusal(f"a world size of {request.world_size} leaves nothing to aggregate")
    if request.world_size > MAX_RANKS:
        raise Refusal(
            f"world size {request.world_size} is more than the {MAX_RANKS} ranks one switch can aggregate"
        )
    if request.rank >= request.world_size:
        raise Refusal(f"rank {request.rank} does not exist in a world of {request.world_size}")
    if request.transport not in (pb.TRANSPORT_SHM, pb.TRANSPORT_UDP):
        raise Refusal("the transport must be shm or udp")
    lanes = list(request.lane_bits)
    if not lanes or len(set(lanes)) != len(lanes) or not set(lanes) <= set(LANE_BITS):
        raise Refusal(f"lane widths must be different ones of 16, 32 and 64 bits, found {lanes}")
    if request.transport == pb.TRANSPORT_UDP:
        _check_udp(request)


def _check_udp(request: pb.JoinRequest) -> None:
    try:
        canonical_ip(request.ip)
    except ValueError as error:
        raise Refusal(f"rank {request.rank} must say where it receives: {error}") from error
    last = UDP_PORT_FIRST + UDP_PORT_COUNT - 1
    if not UDP_PORT_FIRST <= request.udp_port <= last:
        raise Refusal(
            f"rank {request.rank} receives on UDP port {request.udp_port}; the switch looks at ports"
            f" {UDP_PORT_FIRST} to {last}"
        )


def check_agreement(first: Member, other: Member) -> None:
    """All ranks of a group must ask for the same.  Raises Refusal naming both."""
    fields = {
        "world size": lambda r: r.world_size,
        "lane widths": lambda r: list(r.lane_bits),
        "transport": lambda r: transport_name(r.transport),
    }
    for name, value in fields.items():
        ours, theirs = value(first.request), value(other.request)
        if ours != theirs:
            raise Refusal(
                f"the ranks disagree on the {name}: {first.describe()} says {ours},"
                f" {other.describe()} says {theirs}"
            )


def check_endpoints(members: Iterable[Member]) -> None:
    """No two ranks may be in the same place, and shm joins one machine.  Raises Refusal."""
    seen: dict[tuple[str, int], Member] = {}
    first = None
    for member in members:
        first = first or member
        request = member.request
        if request.transport == pb.TRANSPORT_UDP:
            other = seen.setdefault((canonical_ip(request.ip), request.udp_port), member)
            if other is not member:
                raise Refusal(
                    f"{other.describe()} and {member.describe()} both receive on {request.ip}, UDP port"
                    f" {request.udp_port}; each rank needs a port of its own"
                )
        elif request.hostname != first.request.hostname:
            raise Refusal(
                f"transport shm joins processes of one machine, but {first.describe()} and"
                f" {member.describe()} run on two; use transport udp"
            )


def max_blocks(members: Iterable[Member]) -> int:
    """Blocks in the largest packet that every rank's path carries.  Raises Refusal if not even one."""
    limit = MAX_BLOCKS
    for member in members:
        request = member.request
        shm = request.transport == pb.TRANSPORT_SHM
        mtu = request.mtu or (SHM_MTU if shm else UDP_DEFAULT_MTU)
        room = (mtu - OVERHEAD_BYTES) // BLOCK_BYTES
        if room < 1:
            raise Refusal(
                f"the path of {member.describe()} carries IP packets of {mtu} bytes; at least"
                f" {OVERHEAD_BYTES + BLOCK_BYTES} are needed, so raise its MTU"
            )
        limit = min(limit, room)
    return max(count for count in BLOCK_COUNTS if count <= limit)
