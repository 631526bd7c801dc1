"""The ctypes view of ``csrc/pipeline.h``: what a compiled P4 program offers."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_int, c_int32, c_uint8, c_uint32, c_uint64, c_void_p
from enum import IntEnum
from pathlib import Path

PIPELINE_ABI = 1


class ProgramStatus(IntEnum):
    """``enum ssw_status``."""

    OK = 0
    NOT_FOUND = -1
    EXISTS = -2
    FULL = -3
    INVALID = -4
    OUT_OF_MEMORY = -5
    CONST = -6


_MEANINGS = {
    ProgramStatus.NOT_FOUND: "there is no such table, entry, action, group or cell",
    ProgramStatus.EXISTS: "the entry is there already",
    ProgramStatus.FULL: "the table or group has no room",
    ProgramStatus.INVALID: "malformed key, data or argument",
    ProgramStatus.OUT_OF_MEMORY: "out of memory",
    ProgramStatus.CONST: "the table or default action is const",
}


class ProgramError(RuntimeError):
    """An operation on a program failed; ``status`` says how."""

    def __init__(self, operation: str, status: int):
        self.status = ProgramStatus(status)
        super().__init__(f"{operation}: {_MEANINGS[self.status]}")


TransmitFunction = ctypes.CFUNCTYPE(None, c_void_p, c_uint32, POINTER(c_uint8), c_uint32)
DigestFunction = ctypes.CFUNCTYPE(None, c_void_p, c_uint32, POINTER(c_uint8), c_uint32)
LogFunction = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)
NowFunction = ctypes.CFUNCTYPE(c_uint64, c_void_p)


class Host(Structure):
    _fields_ = [
        ("context", c_void_p),
        ("transmit", TransmitFunction),
        ("digest", DigestFunction),
        ("log", LogFunction),
        ("now_us", NowFunction),
    ]


class NativeEntry(Structure):
    _fields_ = [
        ("value", c_char_p),
        ("mask", c_char_p),
        ("priority", c_int32),
        ("action", c_uint32),
        ("data", c_char_p),
        ("data_length", c_uint32),
    ]


class NativeCounter(Structure):
    _fields_ = [("packets", c_uint64), ("bytes", c_uint64)]


class Replica(Structure):
    _fields_ = [("port", c_uint32), ("instance", c_uint32)]


def _function(*arguments: type) -> type:
    return ctypes.CFUNCTYPE(c_int, c_void_p, *arguments)


class PipelineOps(Structure):
    """The C structure ``ssw_pipeline_ops``, field by field."""

    _fields_ = [
        ("abi", c_uint32),
        ("create", ctypes.CFUNCTYPE(c_void_p, POINTER(Host))),
        ("destroy", ctypes.CFUNCTYPE(None, c_void_p)),
        ("process", ctypes.CFUNCTYPE(None, c_void_p, c_uint32, c_char_p, c_uint32)),
        ("table_insert", _function(c_uint32, POINTER(NativeEntry), POINTER(c_uint64))),
        ("table_modify", _function(c_uint32, c_uint64, c_uint32, c_char_p, c_uint32)),
        ("table_delete", _function(c_uint32, c_uint64)),
        ("table_set_default", _function(c_uint32, c_uint32, c_char_p, c_uint32)),
        ("table_reset_default", _function(c_uint32)),
        ("table_counter_read", _function(c_uint32, c_uint64, POINTER(NativeCounter))),
        ("table_counter_write", _function(c_uint32, c_uint64, POINTER(NativeCounter))),
        ("counter_read", _function(c_uint32, c_uint64, c_uint64, POINTER(NativeCounter))),
        ("counter_write", _function(c_uint32, c_uint64, POINTER(NativeCounter))),
        ("register_read", _function(c_uint32, c_uint64, c_char_p, c_uint32)),
        ("register_write", _function(c_uint32, c_uint64, c_char_p, c_uint32)),
        ("multicast_set", _function(c_uint32, POINTER(Replica), c_uint32)),
        ("clone_session_set", _function(c_uint32, POINTER(Replica), c_uint32, c_uint32)),
    ]


def load_ops(library: Path) -> PipelineOps:
    """The operations of a compiled program; they stay valid for the life of the process.

    Raises:
        OSError: the file is not a shared object of a compiled program.
    """
    try:
        ops = PipelineOps.in_dll(ctypes.CDLL(str(library)), "ssw_pipeline_ops_v1")
    except ValueError as error:
        raise OSError(f"{library} is not a compiled P4 program: {error}") from error
    if ops.abi != PIPELINE_ABI:
        raise OSError(f"{library} has pipeline interface {ops.abi}, this switch has {PIPELINE_ABI}")
    return ops
