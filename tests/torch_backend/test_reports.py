"""What the controller knows of a job afterwards: members, statistics, and what Gloo did."""

import grpc
import pytest
from launch import run

from netreduce.controller.api import job_service_pb2 as pb
from netreduce.controller.api import job_service_pb2_grpc as pb_grpc


@pytest.fixture
def jobs(stack):
    """Jobs by name, finished ones too."""

    def named(name: str) -> list[pb.JobInfo]:
        with grpc.insecure_channel(stack.controller) as channel:
            reply = pb_grpc.OperatorServiceStub(channel).ListJobs(pb.ListJobsRequest(include_finished=True))
        return [job for job in reply.jobs if job.name == name]

    return named


def test_statistics_of_a_finished_job(jobs, through_switch: dict[str, str]) -> None:
    environment = {**through_switch, "NETREDUCE_JOB_NAME": "counted"}
    results = run(["counted.py"], 2, environment)
    assert [r.code for r in results] == [0, 0], results
    (job,) = jobs("counted")
    assert job.state == "finished"
    for member in job.members:
        assert member.state == "left"
        statistics = member.statistics
        assert statistics.calls == 2
        assert statistics.tensor_bytes == 2 * 5000 * 4
        assert statistics.results_received == statistics.packets_sent == member.results_delivered
        assert {(f.collective, f.reason): (f.calls, f.tensor_bytes) for f in statistics.fallbacks} == {
            ("allreduce", "op MAX"): (2, 2 * 5000 * 4),
            ("allreduce", "NaN or Inf in the input"): (1, 5000 * 4),
            ("broadcast", "not an all-reduce"): (1, 5000 * 4),
        }
    counters = job.switch_counters
    sent = sum(m.statistics.packets_sent for m in job.members)
    assert counters.first + counters.added + counters.completed == sent


def test_a_failed_job_says_why(jobs, through_switch: dict[str, str]) -> None:
    environment = {**through_switch, "NETREDUCE_JOB_NAME": "failed"}
    run(["faults.py", "shapes_differ"], 2, environment)
    (job,) = jobs("failed")
    assert job.state.startswith("aborted: ") and "the ranks disagree" in job.state, job.state
