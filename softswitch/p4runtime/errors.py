"""Errors of the service, as canonical codes with a sentence (Error Reporting Messages)."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
from google.protobuf import any_pb2

from ..pipeline_abi import ProgramError, ProgramStatus
from .protos import p4r, rpc_code, rpc_status

STATUS_DETAILS = "grpc-status-details-bin"
ERROR_SPACE = "netreduce-softswitch"

_GRPC_CODES = {code.value[0]: code for code in grpc.StatusCode}


class P4RuntimeError(Exception):
    """A request, or one entity of a batch, is refused with a canonical code of ``google.rpc.Code``."""

    def __init__(self, code: int, message: str):
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def grpc_code(self) -> grpc.StatusCode:
        return _GRPC_CODES[self.code]


class BatchError(Exception):
    """Some entities of a batch failed: one element for each of them, None where it succeeded."""

    def __init__(self, what: str, errors: Sequence[P4RuntimeError | None]):
        failed = [e for e in errors if e is not None]
        super().__init__(f"{what}: {len(failed)} of {len(errors)} failed, the first: {failed[0]}")
        self.errors = errors

    def status(self) -> rpc_status.Status:
        """``google.rpc.Status`` with one ``p4.v1.Error`` for each entity, in their order."""
        status = rpc_status.Status(code=rpc_code.UNKNOWN, message=str(self))
        for error in self.errors:
            detail = p4r.Error(canonical_code=rpc_code.OK)
            if error is not None:
                detail = p4r.Error(canonical_code=error.code, message=error.message, space=ERROR_SPACE)
            packed = any_pb2.Any()
            packed.Pack(detail)
            status.details.append(packed)
        return status


def invalid_argument(message: str) -> P4RuntimeError:
    return P4RuntimeError(rpc_code.INVALID_ARGUMENT, message)


def not_found(message: str) -> P4RuntimeError:
    return P4RuntimeError(rpc_code.NOT_FOUND, message)


def already_exists(message: str) -> P4RuntimeError:
    return P4RuntimeError(rpc_code.ALREADY_EXISTS, message)


def out_of_range(message: str) -> P4RuntimeError:
    return P4RuntimeError(rpc_code.OUT_OF_RANGE, message)


def permission_denied(message: str) -> P4RuntimeError:
    return P4RuntimeError(rpc_code.PERMISSION_DENIED, message)


def failed_precondition(message: str) -> P4RuntimeError:
    return P4RuntimeError(rpc_code.FAILED_PRECONDITION, message)


def resource_exhausted(message: str) -> P4RuntimeError:
    return P4RuntimeError(rpc_code.RESOURCE_EXHAUSTED, message)


def unimplemented(message: str) -> P4RuntimeError:
    return P4RuntimeError(rpc_code.UNIMPLEMENTED, message)


def unavailable(message: str) -> P4RuntimeError:
    return P4RuntimeError(rpc_code.UNAVAILABLE, message)


def internal(message: str) -> P4RuntimeError:
    return P4RuntimeError(rpc_code.INTERNAL, message)


_PROGRAM_CODES = {
    ProgramStatus.NOT_FOUND: rpc_code.NOT_FOUND,
    ProgramStatus.EXISTS: rpc_code.ALREADY_EXISTS,
    ProgramStatus.FULL: rpc_code.RESOURCE_EXHAUSTED,
    ProgramStatus.INVALID: rpc_code.INVALID_ARGUMENT,
    ProgramStatus.OUT_OF_MEMORY: rpc_code.RESOURCE_EXHAUSTED,
    ProgramStatus.CONST: rpc_code.PERMISSION_DENIED,
}


def from_program(error: ProgramError, what: str) -> P4RuntimeError:
    """What the data plane refused, with the entity's name."""
    return P4RuntimeError(_PROGRAM_CODES.get(error.status, rpc_code.INTERNAL), f"{what}: {error}")
