"""Helpers of the port tests: a switch core that runs ``pipelines/hub.c``."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from netreduce.softswitch.build import CSRC
from netreduce.softswitch.core import SwitchCore
from netreduce.softswitch.fault import Fault
from netreduce.softswitch.instance import Instance

_names = itertools.count()
_folder = TemporaryDirectory(prefix="hub-")


@cache
def hub_library() -> Path:
    source = Path(__file__).parent / "pipelines" / "hub.c"
    out = Path(_folder.name) / "hub.so"
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    subprocess.run(["gcc", *flags, "-I", CSRC, source, "-o", out], check=True)
    return out


def socket_name() -> str:
    """A socket name of this test alone."""
    return f"@netreduce-test-{os.getpid()}-{next(_names)}"


class Hub(SwitchCore):
    """A running switch with the hub program on shared-memory ports 1..64."""

    socket: str
    instance: Instance


@contextmanager
def running_hub(
    *faults: Fault, flood: tuple[int, ...] = (1, 2, 3), cpu_port: int | None = None
) -> Iterator[Hub]:
    core = Hub(cpu_port=cpu_port)
    with core:
        for fault in faults:
            core.set_fault(fault)
        core.socket = socket_name()
        core.allow_shm_ports(1, 64)
        core.listen(core.socket)
        core.instance = core.load(hub_library())
        core.instance.multicast_set(1, [(port, 0) for port in flood])
        core.attach(core.instance)
        core.start()
        yield core


def frame(destination: int, payload: bytes = b"", source: int = 0) -> bytes:
    """An Ethernet frame to the host at port ``destination``."""
    return bytes((2, 0, 0, 0, 0, destination, 2, 0, 0, 0, 0, source, 0x88, 0xB5)) + payload


def flood_frame(payload: bytes = b"") -> bytes:
    return b"\xff" * 6 + frame(0, payload)[6:]


def echo_frame(copies: int, payload: bytes = b"") -> bytes:
    """Comes back ``copies`` times to the port it was sent from."""
    return bytes((2, 0, 0, 0, 1, copies)) + frame(0, payload)[6:]
