"""The ctypes view of ``csrc/core/core.h``: structures, limits and functions of the switch core."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from functools import cache

from .build import build_core
from .pipeline_abi import PipelineOps

CORE_ABI = 1
PORT_COUNT = 511
"""Port numbers are 0..510; 511 is v1model's drop port."""
DROP_PORT = 511
MAX_FRAME_BYTES = 10240
NO_PORT = 0xFFFFFFFF
LOG_LEVELS = ("error", "warning", "info", "debug")
"""``enum ssw_log_level``, in order."""
ERROR_BYTES = 512
"""Room for the sentence that a failing function leaves."""


class SwitchError(RuntimeError):
    """The switch could not do what was asked; the message is a sentence for its user."""


_P = c_void_p
_BYTES = c_char_p


class NativeFault(ctypes.Structure):
    _fields_ = (
        ("seed", c_uint64),
        ("drop", c_double),
        ("duplicate", c_double),
        ("reorder", c_double),
        ("depth", c_uint32),
        ("hold_us", c_uint32),
    )


class NativeFaultStats(ctypes.Structure):
    _fields_ = (("dropped", c_uint64), ("duplicated", c_uint64), ("reordered", c_uint64))


class NativePortStats(ctypes.Structure):
    _fields_ = (
        ("kind", c_uint32),
        ("up", c_uint32),
        ("rx_frames", c_uint64),
        ("rx_bytes", c_uint64),
        ("rx_invalid", c_uint64),
        ("tx_frames", c_uint64),
        ("tx_bytes", c_uint64),
        ("tx_dropped", c_uint64),
        ("fault_in", NativeFaultStats),
        ("fault_out", NativeFaultStats),
    )


class NativeCoreStats(ctypes.Structure):
    _fields_ = (
        ("no_program", c_uint64),
        ("no_port", c_uint64),
        ("packet_in_dropped", c_uint64),
        ("digests_dropped", c_uint64),
        ("sleeps", c_uint64),
    )


@cache
def library() -> ctypes.CDLL:
    """The core, compiled at first use."""
    core = ctypes.CDLL(str(build_core()))
    signatures = {
        "ssw_core_abi": (c_uint32,),
        "ssw_core_create": (_P, c_uint32, c_uint32, c_int),
        "ssw_core_destroy": (None, _P),
        "ssw_core_set_fault": (c_int, _P, c_uint32, c_uint32, POINTER(NativeFault)),
        "ssw_core_allow_shm": (c_int, _P, c_uint32, c_uint32),
        "ssw_core_listen": (c_int, _P, _BYTES, _BYTES, c_size_t),
        "ssw_core_start": (c_int, _P),
        "ssw_core_stop": (None, _P),
        "ssw_core_add_interface": (c_int, _P, c_uint32, _BYTES, _BYTES, c_size_t),
        "ssw_core_remove_interface": (c_int, _P, c_uint32),
        "ssw_program_load": (_P, _P, _BYTES, _BYTES, c_size_t),
        "ssw_program_attach": (None, _P, _P),
        "ssw_program_unload": (None, _P),
        "ssw_program_ops": (POINTER(PipelineOps),),
        "ssw_core_packet_out": (c_int, _P, _BYTES, c_uint32),
        "ssw_core_packet_in": (c_int, _P, _BYTES, c_uint32, c_int),
        "ssw_core_port_stats": (c_int, _P, c_uint32, POINTER(NativePortStats)),
        "ssw_core_stats_read": (None, _P, POINTER(NativeCoreStats)),
    }
    for name, (result, *arguments) in signatures.items():
        function = getattr(core, name)
        function.restype = result
        function.argtypes = arguments
    if core.ssw_core_abi() != CORE_ABI:
        raise SwitchError("the compiled switch core does not belong to this version of the package")
    return core
