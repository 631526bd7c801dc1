"""Dealings with a controller, against one whose behaviour the test decides."""

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import grpc
import pytest

from netreduce.controller.api import job_service_pb2 as pb
from netreduce.controller.api import job_service_pb2_grpc as pb_grpc
from netreduce.host_agent.job_client import Attendance, JobClient, JoinError

PATIENCE = 20.0
LEASE = timedelta(seconds=0.3)


class Controller(pb_grpc.JobServiceServicer):
    """Remembers what it is told; ``script`` says how successive Attend streams behave."""

    def __init__(self) -> None:
        self.reply = pb.JoinReply(admitted=True, member="ticket")
        self.script: list[str] = []
        self.told: queue.Queue = queue.Queue()
        self.broken_joins = 0

    def Join(self, request: pb.JoinRequest, context: grpc.ServicerContext) -> pb.JoinReply:
        if self.broken_joins:
            self.broken_joins -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "the connection broke")
        return self.reply

    def Attend(
        self, reports: Iterator[pb.MemberReport], context: grpc.ServicerContext
    ) -> Iterator[pb.JobEvent]:
        act = self.script.pop(0) if self.script else "listen"
        first = next(reports)
        self.told.put(("attend", first.member))
        if act == "break":
            context.abort(grpc.StatusCode.UNAVAILABLE, "restarting")
        context.send_initial_metadata(())
        if act == "abort":
            yield pb.JobEvent(abort=pb.Abort(reason="rank 3 died", rank=3))
            return
        for report in reports:
            self.told.put(("report", report.statistics.calls))

    def Leave(self, request: pb.LeaveRequest, context: grpc.ServicerContext) -> pb.LeaveReply:
        self.told.put(("leave", request.member, request.error, request.statistics.calls))
        return pb.LeaveReply()

    def hears(self, kind: str) -> tuple:
        """The next thing of ``kind`` that it is told."""
        while (told := self.told.get(timeout=PATIENCE))[0] != kind:
            pass
        return told


class Session:
    """Stands for the native session."""

    job = "test"
    submitted = 4
    collective_count = 0

    def __init__(self) -> None:
        self.failure = ""
        self.calls = 0
        self.over = threading.Event()
        self.has_departed = threading.Event()

    def wait_closed(self, timeout: timedelta) -> bool:
        self.over.wait(min(timeout.total_seconds(), 0.05))
        return self.over.is_set() and not self.failure

    def running(self) -> None:
        return None

    def collectives(self) -> tuple[int, list[str]]:
        return 1, []

    def statistics(self) -> dict[str, int]:
        self.calls += 1
        return {"calls": self.calls}

    def fallbacks(self) -> list:
        return [("broadcast", "not an all-reduce", 2, 64)]

    def abort(self, reason: str) -> None:
        self.failure = reason
        self.over.set()

    def departed(self) -> None:
        self.has_departed.set()


class Watch:
    """Stands for the stall watch."""

    def __init__(self) -> None:
        self.left: list[int] = []

    def observe(self, count: int, collectives: object, now: float) -> None:
        pass

    def leave(self, submitted: int) -> None:
        self.left.append(submitted)


@pytest.fixture
def controller() -> Iterator[Controller]:
    servicer = Controller()
    server = grpc.server(ThreadPoolExecutor(4))
    pb_grpc.add_JobServiceServicer_to_server(servicer, server)
    servicer.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield servicer
    server.stop(None).wait()


@pytest.fixture
def client(controller: Controller) -> JobClient:
    client = JobClient(controller.address)
    client.join(pb.JoinRequest(), timedelta(seconds=5))
    return client


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def attendance(client: JobClient, session: Session, watch: Watch) -> Attendance:
    return Attendance(client, session, watch, LEASE)


def test_a_refusal_carries_the_controllers_reason(controller: Controller) -> None:
    controller.reply = pb.JoinReply(reason="no slots are left")
    with pytest.raises(JoinError, match=r"^no slots are left$"):
        JobClient(controller.address).join(pb.JoinRequest(), timedelta(seconds=5))


def test_a_connection_that_breaks_is_tried_again(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netreduce.host_agent.job_client.RECONNECT_INTERVAL", timedelta(milliseconds=20))
    controller.broken_joins = 2
    assert JobClient(controller.address).join(pb.JoinRequest(), timedelta(seconds=5)).member == "ticket"
    assert controller.broken_joins == 0


def test_a_connection_that_stays_broken_is_given_up(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netreduce.host_agent.job_client.RECONNECT_INTERVAL", timedelta(milliseconds=20))
    monkeypatch.setattr("netreduce.host_agent.job_client.JOIN_MARGIN", timedelta(0))
    controller.broken_joins = 1000
    with pytest.raises(JoinError, match="did not answer"):
        JobClient(controller.address).join(pb.JoinRequest(), timedelta(milliseconds=200))
    assert controller.broken_joins < 1000


def test_nobody_there_names_the_address() -> None:
    with pytest.raises(JoinError, match=r"127\.0\.0\.1:1 did not answer"):
        JobClient("127.0.0.1:1").join(pb.JoinRequest(), timedelta(seconds=5))


def test_reports_until_the_session_closes_then_leaves(
    controller: Controller, attendance: Attendance, session: Session, watch: Watch
) -> None:
    attendance.start()
    assert controller.hears("attend") == ("attend", "ticket")
    controller.hears("report")
    session.over.set()
    _, member, error, calls = controller.hears("leave")
    assert (member, error) == ("ticket", "") and calls > 0
    assert session.has_departed.wait(PATIENCE)
    assert watch.left == [4]
    attendance.join(timedelta(seconds=PATIENCE))
    assert controller.told.empty()


def test_an_abort_reaches_the_session(
    controller: Controller, attendance: Attendance, session: Session
) -> None:
    controller.script = ["abort"]
    attendance.start()
    assert session.over.wait(PATIENCE)
    assert session.failure == "rank 3 died"
    assert controller.hears("leave")[2] == "rank 3 died"


def test_a_failure_here_is_told_at_once(
    controller: Controller, attendance: Attendance, session: Session
) -> None:
    attendance.start()
    controller.hears("attend")
    session.abort("the ranks disagree")
    assert controller.hears("leave")[2] == "the ranks disagree"


def test_starting_waits_until_the_controller_knows(attendance: Attendance, controller: Controller) -> None:
    """Else a process that is killed right afterwards would be missed only when its lease is over."""
    attendance.start()
    assert controller.told.get_nowait() == ("attend", "ticket")


def test_attends_again_when_the_controller_comes_back(
    controller: Controller, attendance: Attendance, session: Session
) -> None:
    controller.script = ["break", "break"]
    attendance.start()
    for _ in range(3):
        controller.hears("attend")
    controller.hears("report")
    assert session.failure == ""
    session.over.set()
    controller.hears("leave")


def test_leaving_a_controller_that_is_gone_is_quiet(session: Session) -> None:
    client = JobClient("127.0.0.1:1")
    client._member = "ticket"
    client.leave()
    assert client.member == ""
