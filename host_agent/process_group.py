"""Makes the torch.distributed backend of one process group, through the switch or not."""

from __future__ import annotations

import atexit
import os
import socket
import sys
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch.distributed import PrefixStore, ProcessGroupGloo

from netreduce.controller.api import job_service_pb2 as pb
from netreduce.host_agent import _c10d
from netreduce.host_agent.agreement import Agreement, Disagreement
from netreduce.host_agent.host_address import path_mtu, udp_address
from netreduce.host_agent.job_client import JOIN_MARGIN, Attendance, JobClient, JoinRefused, host_statistics
from netreduce.host_agent.options import CONTROLLER, Options, Transport, read_options
from netreduce.host_agent.stall import StallWatch
from netreduce.p4.wire import UDP_PORT_COUNT, UDP_PORT_FIRST

SINGLE_RANK = "single rank"
PROBE_TIMEOUT = timedelta(seconds=10)
"""How long the first exchange of packets through the switch may take."""
EXIT_PATIENCE = timedelta(seconds=10)
"""How long the interpreter's exit waits for calls that nobody waited for."""
THREAD_PATIENCE = timedelta(seconds=5)
"""How long the interpreter's exit waits for each thread that talks to the controller."""

_TRANSPORTS = {Transport.SHM: pb.TRANSPORT_SHM, Transport.UDP: pb.TRANSPORT_UDP}

_open: list[tuple[Any, Attendance | None]] = []
"""Sessions that may have threads, with what attends to them.  Strong references: nothing else keeps a
session's Python object, and the interpreter must not go while one of its threads may want it."""
_told: set[str] = set()
_process = os.getpid()


def create_transparent(gloo: type, store: Any, rank: int, size: int, *args: Any, **options: Any) -> Any:
    """What stands in for ``gloo(store, rank, size, …)``: a backend that calls itself "gloo".

    Raises:
        OptionError: an environment variable has no legal value.
        Whatever ``gloo`` raises.
    """
    settings = read_options()
    inner = gloo(store, rank, size, *args, **options)
    return _create(inner, store, inner.options._timeout, settings, name="gloo")


def create_explicit(options: Any) -> Any:
    """The backend of ``init_process_group("netreduce")``.

    Args:
        options: ``torch._C._distributed_c10d._DistributedBackendOptions``.

    Raises:
        OptionError: an environment variable has no legal value.
        RuntimeError: ``NETREDUCE_CONTROLLER`` is not set.
    """
    settings = read_options()
    if not settings.controller:
        raise RuntimeError(
            f'backend "netreduce" needs a controller: set {CONTROLLER}=host:port, or start the script with '
            "`netreduce run`"
        )
    inner = ProcessGroupGloo(options.store, options.group_rank, options.group_size, timeout=options.timeout)
    inner.options.global_ranks_in_group = options.global_ranks_in_group
    inner.options.group_name = options.group_id
    inner._set_sequence_number_for_group()
    return _create(inner, options.store, options.timeout, settings, name="netreduce")


def _create(inner: Any, store: Any, timeout: timedelta, settings: Options, name: str) -> Any:
    rank, size = inner.rank(), inner.size()
    session = _c10d.Session(job=_job_name(settings), rank=rank, size=size, reason=SINGLE_RANK)
    attendance = None
    if size > 1:
        session, attendance = _use_switch(PrefixStore("netreduce", store), rank, size, timeout, settings)
    _open[:] = [entry for entry in _open if not entry[0].wait_closed(timedelta(0))]
    _open.append((session, attendance))
    return _c10d.NetReduceBackend(inner=inner, session=session, name=name, timeout=timeout)


def _use_switch(
    store: Any, rank: int, size: int, timeout: timedelta, settings: Options
) -> tuple[Any, Attendance | None]:
    """A session that all ranks have attached to the switch, and its attendance; or none of them has."""
    agreement = Agreement(store, rank, size, settings.join_timeout)
    client: JobClient | None = None
    reply = None
    notes = None  # a connection of its own: the caller's may block in a wait
    obstacle: str | None = None
    session = _c10d.Session(job=_job_name(settings), rank=rank, size=size, reason="")
    group = ""
    try:
        group = agreement.open(settings)
    except Disagreement as disagreement:
        obstacle = str(disagreement)
    obstacle = agreement.decide("join", obstacle)
    if obstacle is None:
        hearsay = False
        try:
            client = JobClient(settings.controller)
            notes = store.clone()
            reply = _join(session, client, group, rank, size, notes, settings)
            hearsay = True  # a probe without a result may be another rank's that could not plug in
            session.probe(PROBE_TIMEOUT)
            hearsay = False
        except JoinRefused as error:
            obstacle, hearsay = str(error), True
        except Exception as error:
            # AddressError, JoinError, or a defect; of one rank, it must not leave the others waiting.
            obstacle = f"rank {rank}: {error}"
        obstacle = agreement.decide("use", obstacle, patience=JOIN_MARGIN + PROBE_TIMEOUT, hearsay=hearsay)
    if obstacle is None:
        assert client is not None and reply is not None and notes is not None
        session.set_companion(ProcessGroupGloo(PrefixStore("companion", store), rank, size, timeout=timeout))
        watch = StallWatch(notes, rank, size, reply.switch)
        attendance = Attendance(client, session, watch, timedelta(milliseconds=reply.lease_ms))
        attendance.start()
        return session, attendance
    session.detach(obstacle)
    if client is not None:
        client.leave(host_statistics(session), error=obstacle)
        client.close()
    if rank == 0:
        _tell_once(size, obstacle)
    return session, None


def _join(
    session: Any, client: JobClient, group: str, rank: int, size: int, store: Any, settings: Options
) -> pb.JoinReply:
    """Join the job and plug ``session`` into the wire that the controller names."""
    request = pb.JoinRequest(
        group=group,
        name=session.job,
        world_size=size,
        rank=rank,
        transport=_TRANSPORTS[settings.transport],
        lane_bits=settings.lane_bits,
        hostname=socket.gethostname(),
        pid=os.getpid(),
    )
    udp_socket = None
    if settings.transport is Transport.UDP:
        ip = udp_address(settings)
        udp_socket = _c10d.bind_udp(ip, UDP_PORT_FIRST, UDP_PORT_COUNT)
        request.ip = ip
        request.udp_port = udp_socket.port
        request.mtu = path_mtu(ip)
    reply = client.join(request, settings.join_timeout)
    config = _c10d.CommunicatorConfig(
        job_name=session.job,
        rank=rank,
        world_size=size,
        window=reply.window,
        max_blocks=reply.max_blocks,
        float_lane_bits=settings.precision,
        streams=[(stream.wire_job, stream.lane_bits) for stream in reply.streams],
        self_endpoint=_endpoint(reply.self),
        successor=_endpoint(reply.successor),
        predecessor=_endpoint(reply.predecessor),
        switch_name=reply.switch,
    )
    if udp_socket is not None:
        session.attach_udp(config, udp_socket, store)
    else:
        session.attach_shm(config, reply.shm_socket, reply.shm_port, store)
    return reply


def _endpoint(endpoint: pb.Endpoint) -> tuple[str, str, int]:
    return endpoint.mac, endpoint.ip, endpoint.udp_port


def _job_name(settings: Options) -> str:
    return settings.job_name or Path(sys.argv[0] or "python").name or "python"


def _tell_once(size: int, obstacle: str) -> None:
    if obstacle in _told:
        return
    _told.add(obstacle)
    warnings.warn(f"netreduce: {size} ranks use plain Gloo: {obstacle}", stacklevel=2)


@atexit.register
def _leave_jobs() -> None:
    """Leave all jobs, whatever state the script ended in."""
    if os.getpid() != _process:
        return  # forked: the jobs are the parent's
    exception = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    for session, attendance in _open:
        if exception is not None:
            # The others would wait for calls that never come.
            session.abort(f"its script ended with {type(exception).__name__}: {exception}")
        session.close(EXIT_PATIENCE)
        if attendance is not None:
            attendance.join(THREAD_PATIENCE)
