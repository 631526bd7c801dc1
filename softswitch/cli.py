"""``netreduce switch``: the embedded switch as a process of its own.  Options are named as BMv2's."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import queue
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

import click
import psutil
from google.protobuf import text_format
from google.protobuf.message import DecodeError

from .core import SwitchCore
from .core_library import DROP_PORT, LOG_LEVELS, PORT_COUNT, SwitchError
from .fault import Fault
from .native_cache import CompilationFailed, CompilerNotFound

PR_SET_PDEATHSIG = 1
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class InterfaceType(click.ParamType):
    """PORT@INTERFACE."""

    name = "PORT@INTERFACE"

    def convert(self, value, param, ctx):
        port, at, interface = value.partition("@")
        if not at or not port.isdecimal() or not interface or int(port) >= PORT_COUNT:
            self.fail(f"{value!r}: expected PORT@INTERFACE, as in 1@veth0, port 0 to {PORT_COUNT - 1}")
        return int(port), interface


class PortRangesType(click.ParamType):
    """1-64 or 1,3,8-15."""

    name = "PORTS"

    def convert(self, value, param, ctx):
        ranges = []
        for part in value.split(","):
            match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
            first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
            if not first <= last < PORT_COUNT:
                self.fail(f"{value!r}: expected ports from 0 to {PORT_COUNT - 1}, as in 1-64 or 1,3,8-15")
            ranges.append((first, last))
        return ranges


class FaultType(click.ParamType):
    """drop=0.01,seed=7,port=3,direction=in."""

    name = "FAULT"

    def convert(self, value, param, ctx):
        try:
            return Fault.parse(value)
        except ValueError as error:
            self.fail(str(error))


@click.command()
@click.option(
    "--json",
    "json_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Program to run from the start: BMv2 JSON as p4c writes it.  Needs --p4info.",
)
@click.option(
    "--p4info",
    "p4info_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="P4Info of the program, as text or binary protobuf.",
)
@click.option(
    "--no-p4",
    is_flag=True,
    help="Start without a program and wait for a controller to push one (the default without --json).",
)
@click.option(
    "-i",
    "--interface",
    "interfaces",
    type=InterfaceType(),
    multiple=True,
    help="Plug a network interface (veth, tap, NIC) into a port; needs root.  Repeatable.  Its "
    "tso, gso and gro offloads are turned off.",
)
@click.option(
    "--shm-socket",
    metavar="NAME",
    help="Unix socket on which processes of the same user plug "
    "shared-memory ports in; @name is in the abstract namespace.",
)
@click.option(
    "--shm-ports",
    type=PortRangesType(),
    default="1-64",
    show_default=True,
    help="Ports open to shared-memory clients, for example 1-64 or 1,3,8-15.",
)
@click.option(
    "--device-id",
    type=click.IntRange(0, (1 << 64) - 1),
    default=1,
    show_default=True,
    help="Device id that controllers must name; 0 is legal here, unlike on BMv2.",
)
@click.option(
    "--grpc-server-addr",
    metavar="HOST:PORT",
    default="127.0.0.1:9559",
    show_default=True,
    help="Where to serve P4Runtime; port 0 lets the system pick one (see --ready-fd).",
)
@click.option(
    "--cpu-port",
    type=click.IntRange(1, PORT_COUNT - 1),
    help="Port of packet-in and packet-out; without it there is neither.",
)
@click.option(
    "--drop-port",
    type=click.IntRange(0, DROP_PORT),
    default=DROP_PORT,
    show_default=True,
    help="Port that drops what is sent to it.",
)
@click.option(
    "--fault",
    "faults",
    type=FaultType(),
    multiple=True,
    help="Inject faults: drop=P,duplicate=P,reorder=P,seed=N[,port=N][,direction=in|out][,depth=8]"
    "[,hold_ms=5].  Same seed, same fate of every frame.  Repeatable; a later one replaces an "
    "earlier one of the same port and direction.",
)
@click.option(
    "--ready-fd",
    type=click.IntRange(0),
    metavar="FD",
    help="Write one line with the bound P4Runtime address to this descriptor, and close it, once "
    "everything is ready; it is printed to standard output otherwise.",
)
@click.option(
    "--exit-with-parent",
    is_flag=True,
    help="Stop when the process that started this one ends, whatever way (strictly: its thread that did).",
)
@click.option(
    "-L",
    "--log-level",
    type=click.Choice(LOG_LEVELS),
    default="warning",
    show_default=True,
    help="Least severity of what is logged to standard error.",
)
def switch(
    json_path, p4info_path, no_p4, interfaces, shm_socket, shm_ports, device_id, grpc_server_addr, cpu_port,
    drop_port, faults, ready_fd, exit_with_parent, log_level,
) -> None:  # fmt: skip
    """Run the embedded switch: any P4 program for BMv2's v1model, compiled to native code.

    A controller reaches it over P4Runtime; frames come and go through network interfaces and
    shared-memory ports.  SIGUSR1 makes it write the statistics of its ports to standard error, as one
    line of JSON.
    """
    if exit_with_parent:
        _die_with_parent()
    if json_path and no_p4:
        raise click.UsageError("--no-p4 and --json exclude each other")
    if bool(json_path) != bool(p4info_path):
        raise click.UsageError("--json and --p4info belong together")
    _check_address(grpc_server_addr)
    logging.basicConfig(
        level=log_level.upper(), format="netreduce switch: %(levelname)s: %(message)s", stream=sys.stderr
    )
    # A request that is no protobuf is its sender's fault, who is told; gRPC would print a traceback.
    logging.getLogger("grpc._common").setLevel(logging.CRITICAL)
    try:
        with (
            _signals() as signals,
            SwitchCore(cpu_port=cpu_port, drop_port=drop_port, log_level=log_level) as core,
        ):
            for fault in faults:
                core.set_fault(fault)
            for first, last in shm_ports:
                core.allow_shm_ports(first, last)
            if shm_socket:
                core.listen(shm_socket)
            for port, interface in interfaces:
                core.add_interface(port, interface)
            try:
                _serve(core, device_id, grpc_server_addr, json_path, p4info_path, ready_fd, signals)
            finally:
                _end_compilers()
    except (SwitchError, CompilerNotFound, CompilationFailed, OSError) as error:
        raise click.ClickException(str(error)) from error


class _Signals:
    """The signals that arrive; until ``serving``, those that stop the switch break off what is under way.

    In a queue, because handlers run in the thread that waits: it might hold the lock of an event.
    """

    def __init__(self) -> None:
        self.serving = False
        self.arrived: queue.SimpleQueue[int] = queue.SimpleQueue()


def _serve(core, device_id, address, json_path, p4info_path, ready_fd, signals: _Signals) -> None:
    # Here and not above: --help and usage errors need not wait for gRPC.
    from .build import build_pipeline
    from .p4runtime import P4RuntimeServer

    server = P4RuntimeServer(core, device_id, build_pipeline)
    if json_path:
        _load(server, json_path, p4info_path)
    core.start()
    bound = server.serve(address)
    try:
        signals.serving = True
        _report_ready(bound, ready_fd)
        while signals.arrived.get() not in STOP_SIGNALS:
            click.echo(json.dumps(_statistics(core)), err=True)
    finally:
        server.stop()


def _load(server, json_path: Path, p4info_path: Path) -> None:
    from .p4runtime.errors import P4RuntimeError
    from .p4runtime.protos import p4i, p4r

    config = p4r.ForwardingPipelineConfig(p4_device_config=json_path.read_bytes())
    data = p4info_path.read_bytes()
    try:
        text_format.Parse(data, config.p4info)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        try:
            config.p4info.CopyFrom(p4i.P4Info.FromString(data))
        except DecodeError:
            raise SwitchError(f"{p4info_path} is not a P4Info, neither text nor binary: {error}") from None
    try:
        server.load(config)
    except P4RuntimeError as error:
        raise SwitchError(f"{json_path}: {error}") from error


def _report_ready(address: str, ready_fd: int | None) -> None:
    line = f"{address}\n"
    if ready_fd is None:
        click.echo(line, nl=False)
        return
    try:
        os.write(ready_fd, line.encode())
        os.close(ready_fd)
    except OSError as error:
        raise SwitchError(f"--ready-fd {ready_fd}: {error.strerror}: is the launcher gone?") from error


@contextmanager
def _signals() -> Iterator[_Signals]:
    signals = _Signals()

    def handle(number: int, _frame) -> None:
        signals.arrived.put(number)
        if number in STOP_SIGNALS and not signals.serving:
            _end_compilers()  # before their parent goes and they are nobody's children
            raise SystemExit(0)

    before = {number: signal.signal(number, handle) for number in (*STOP_SIGNALS, signal.SIGUSR1)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _statistics(core: SwitchCore) -> dict:
    """Counts of the switch and of every port that has seen a client or a frame."""
    ports = {number: asdict(core.port_stats(number)) for number in range(PORT_COUNT)}
    for port in ports.values():
        port["kind"] = port["kind"].name.lower()
    used = {number: port for number, port in ports.items() if port["kind"] != "none" or port["rx_frames"]}
    return {"switch": asdict(core.stats()), "ports": used}


def _end_compilers() -> None:
    """A compilation that nobody waits for any more must not outlive the switch."""
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            child.kill()


def _check_address(address: str) -> None:
    if address.startswith("unix"):
        return
    match = re.fullmatch(r".+:([0-9]{1,5})", address)
    # gRPC takes a port modulo 65536.
    if not match or int(match[1]) > 65535:
        raise click.UsageError(f"--grpc-server-addr {address}: expected HOST:PORT, port 0 to 65535")


def _die_with_parent() -> None:
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0):
        raise click.ClickException(f"--exit-with-parent: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        raise click.ClickException("the process that started the switch is gone already")
