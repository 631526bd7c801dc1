"""The committed gRPC code is what the .proto file generates, and imports under its public name."""

import pytest

from netreduce.controller.api import generate, job_service_pb2, job_service_pb2_grpc


def test_generated_code_is_fresh():
    pytest.importorskip("grpc_tools", reason="grpcio-tools is needed to regenerate")
    for name, text in generate.generate().items():
        assert (generate.API / name).read_text() == text, f"{name} is stale: run `make proto`"


def test_services_are_importable():
    assert job_service_pb2.DESCRIPTOR.package == "netreduce.v1"
    assert {"JobService", "OperatorService"} == set(job_service_pb2.DESCRIPTOR.services_by_name)
    assert job_service_pb2_grpc.JobServiceStub and job_service_pb2_grpc.OperatorServiceServicer
