"""A rank's dealings with the controller: join a job, attend it, leave it."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

# gRPC's fork handlers do nothing while a call is open, and one always is; but they say so, on stderr, in
# every worker that a DataLoader forks.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc

from netreduce.controller.api import job_service_pb2 as pb
from netreduce.controller.api import job_service_pb2_grpc as pb_grpc
from netreduce.host_agent.stall import Running, StallWatch

LOG = logging.getLogger(__name__)

REPORT_INTERVAL = timedelta(seconds=2)
"""How often statistics go to the controller, unless the lease asks for more."""
WATCH_INTERVAL = timedelta(seconds=1)
"""How often the running call is looked at."""
RECONNECT_INTERVAL = timedelta(seconds=1)
"""Pause before attending again after the controller went away; the data plane goes on meanwhile."""
LEAVE_TIMEOUT = timedelta(seconds=4)
"""Patience for the controller at the end; Session.close waits a little longer."""
PRESENCE_TIMEOUT = timedelta(seconds=5)
"""How long a new member waits until the controller knows of its presence."""
JOIN_MARGIN = timedelta(seconds=2)
"""What the controller gets beyond the join timeout to say who is missing."""


class JoinError(Exception):
    """The job was not joined; the message says why in one sentence for the user."""


class JoinRefused(JoinError):
    """The controller said no: to the whole group, and perhaps because of another rank."""


class JobClient:
    """Membership of one rank in one job.

    Args:
        controller: ``host:port``.
    """

    def __init__(self, controller: str) -> None:
        self._controller = controller
        self._channel = grpc.insecure_channel(controller)
        self._stub = pb_grpc.JobServiceStub(self._channel)
        self._member = ""

    def join(self, request: pb.JoinRequest, timeout: timedelta) -> pb.JoinReply:
        """Wait for all ranks to join.

        Raises:
            JoinRefused: the controller refused.
            JoinError: it cannot be reached, or did not answer in time.
        """
        request.timeout_ms = int(timeout.total_seconds() * 1000)
        try:
            reply = self._call_join(request, timeout + JOIN_MARGIN)
        except grpc.RpcError as error:
            raise JoinError(
                f"the controller at {self._controller} did not answer: "
                f"{error.details() or error.code().name}; is `netreduce controller` running there?"
            ) from error
        if not reply.admitted:
            raise JoinRefused(reply.reason or "the controller refused without a reason")
        self._member = reply.member
        return reply

    def _call_join(self, request: pb.JoinRequest, timeout: timedelta) -> pb.JoinReply:
        """Asks, and asks again if the connection breaks, which the controller takes for the same request.

        Where nobody listens there is nothing to wait for.
        """
        deadline = time.monotonic() + timeout.total_seconds()
        again = False
        while True:
            left = max(deadline - time.monotonic(), 0.0)
            try:
                return self._stub.Join(request, timeout=left, wait_for_ready=again)
            except grpc.RpcError as error:
                broken = error.code() is grpc.StatusCode.UNAVAILABLE
                absent = "refused" in (error.details() or "")
                if not broken or absent or left < RECONNECT_INTERVAL.total_seconds():
                    raise
                LOG.info("joining at %s: %s; trying again", self._controller, error)
                again = True
                time.sleep(RECONNECT_INTERVAL.total_seconds())

    def leave(self, statistics: pb.HostStatistics | None = None, error: str = "") -> None:
        """Depart, if joined; ``error`` makes the controller abort the job for the others.  Never raises."""
        if self._member:
            request = pb.LeaveRequest(member=self._member, statistics=statistics, error=error)
            try:
                self._stub.Leave(request, timeout=LEAVE_TIMEOUT.total_seconds())
            except grpc.RpcError as rpc_error:
                LOG.info("leaving %s: %s", self._controller, rpc_error)
            self._member = ""

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def attend(self, reports: Iterator[pb.MemberReport]) -> Any:
        """One Attend stream: send ``reports``, yield the controller's events until either side ends it.

        ``initial_metadata()`` of what this returns waits until the controller has taken note of the presence.

        Raises:
            grpc.RpcError: the stream broke.
        """
        return self._stub.Attend(reports)

    @property
    def member(self) -> str:
        """This rank's ticket; empty: not joined, or left."""
        return self._member


def host_statistics(session: Any) -> pb.HostStatistics:
    """What ``session`` (``_c10d.Session``) has counted so far."""
    statistics = pb.HostStatistics(**session.statistics())
    for collective, reason, calls, tensor_bytes in session.fallbacks():
        statistics.fallbacks.add(collective=collective, reason=reason, calls=calls, tensor_bytes=tensor_bytes)
    return statistics


class Attendance:
    """The threads that keep one rank present in its job until the session closes.

    One reports statistics and watches over stalls; the other listens for the controller's Abort.

    Args:
        client: has joined.
        session: ``_c10d.Session``, attached.
        watch: for calls that do not finish.
        lease: report at least this often.
    """

    def __init__(self, client: JobClient, session: Any, watch: StallWatch, lease: timedelta) -> None:
        self._client = client
        self.session = session
        self._watch = watch
        self._report_interval = min(REPORT_INTERVAL, lease / 3)
        self._reports: queue.SimpleQueue[pb.MemberReport | None] = queue.SimpleQueue()
        """Of the current Attend stream; None ends it."""
        self._left = threading.Event()
        self._present = threading.Event()
        self._watching = True
        self._threads = [
            threading.Thread(target=self._report, name=f"netreduce report {session.job}", daemon=True),
            threading.Thread(target=self._listen, name=f"netreduce listen {session.job}", daemon=True),
        ]

    def start(self) -> None:
        """Begin to attend; returns when the controller knows it, and so would notice this process's death.

        A controller that does not say so soon is no reason to fail: the data plane works without it.
        """
        for thread in self._threads:
            thread.start()
        self._present.wait(PRESENCE_TIMEOUT.total_seconds())

    def join(self, timeout: timedelta) -> None:
        """Wait for the threads to end, which they do soon after the session closed."""
        for thread in self._threads:
            thread.join(timeout.total_seconds())

    def _report(self) -> None:
        try:
            elapsed = timedelta(0)
            while not self.session.wait_closed(WATCH_INTERVAL) and not self.session.failure:
                elapsed += WATCH_INTERVAL
                if elapsed >= self._report_interval:
                    elapsed = timedelta(0)
                    self._reports.put(self._current())
                self._watch_over_call()
        finally:
            self._depart()

    def _depart(self) -> None:
        try:
            self._watch.leave(self.session.submitted)
        except Exception as error:
            LOG.debug("the store is gone: %s", error)
        try:
            self._client.leave(host_statistics(self.session), error=self.session.failure)
        finally:
            self._left.set()
            self._reports.put(None)
            self.session.departed()
            self._client.close()

    def _watch_over_call(self) -> None:
        if not self._watching:
            return
        running = self.session.running()
        reason = None
        try:
            self._watch.observe(self.session.collective_count, self.session.collectives, time.monotonic())
            if running is not None and running[2]:
                number, description, signature, seconds, collective = running
                counts = self.session.statistics()
                results, unaggregated = counts["results_received"], counts["unaggregated_received"]
                call = Running(number, description, signature, seconds, results, unaggregated, collective)
                reason = self._watch.check(call)
        except Exception as error:
            # Its host is usually rank 0's process. Without it Gloo would be lost as well.
            self._watching = False
            if running is not None:
                call = f"call {running[0]}, {running[1]}"
                reason = f"{call}, does not finish, and the c10d store is gone ({error})"
        if reason is not None:
            self.session.abort(reason)

    def _current(self) -> pb.MemberReport:
        return pb.MemberReport(member=self._client.member, statistics=host_statistics(self.session))

    def _outgoing(self, reports: queue.SimpleQueue[pb.MemberReport | None]) -> Iterator[pb.MemberReport]:
        yield self._current()
        while (report := reports.get()) is not None:
            yield report

    def _listen(self) -> None:
        while not self._left.is_set():
            try:
                events = self._client.attend(self._outgoing(self._reports))
                events.initial_metadata()
                self._present.set()
                for event in events:
                    if event.HasField("abort"):
                        if self.session.running() is None:
                            # Gloo cannot be told, and what it says in the end does not say why.
                            LOG.warning("netreduce: job %s is over: %s", self.session.job, event.abort.reason)
                        self.session.abort(event.abort.reason)
                        return
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.NOT_FOUND:
                    LOG.warning("netreduce: the controller no longer knows job %s", self.session.job)
                    return
                LOG.info("attending job %s: %s", self.session.job, error)
            except ValueError:  # the channel was closed
                return
            # gRPC's thread still waits on the broken stream's queue.
            broken, self._reports = self._reports, queue.SimpleQueue()
            broken.put(None)
            self._left.wait(RECONNECT_INTERVAL.total_seconds())
