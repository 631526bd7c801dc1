"""``netreduce controller``: runs a controller until it is told to stop."""

import asyncio
import ctypes
import os
import signal
from datetime import timedelta
from pathlib import Path

import click

from netreduce.controller.options import ControllerOptions
from netreduce.p4.wire import MAX_WINDOW

PR_SET_PDEATHSIG = 1


@click.command()
@click.option(
    "--topology", required=True, type=click.Path(path_type=Path), help="Switches and what is attached (YAML)."
)
@click.option(
    "--listen",
    default=ControllerOptions.listen,
    show_default=True,
    metavar="HOST:PORT",
    help="Where agents and operators connect; port 0 picks a free one.",
)
@click.option(
    "--window",
    default=ControllerOptions.window,
    show_default=True,
    help=f"Packets a rank may have outstanding: a power of two up to {MAX_WINDOW}.",
)
@click.option(
    "--lease",
    default=ControllerOptions.lease.total_seconds(),
    show_default=True,
    metavar="S",
    help="A member whose process does not answer for so long is taken for dead.",
)
@click.option(
    "--join-timeout",
    default=ControllerOptions.join_timeout.total_seconds(),
    show_default=True,
    metavar="S",
    help="How long ranks wait for each other when they do not say.",
)
@click.option(
    "--startup-wait",
    default=ControllerOptions.startup_wait.total_seconds(),
    show_default=True,
    metavar="S",
    help="How long the ready line waits for switches that cannot be reached.",
)
@click.option(
    "--orphan-idle",
    default=ControllerOptions.orphan_idle.total_seconds(),
    show_default=True,
    metavar="S",
    help="Entries left by an earlier controller go when unused for so long.",
)
@click.option("--p4info", type=click.Path(path_type=Path), help="P4Info of another build of the program.")
@click.option("--p4-json", type=click.Path(path_type=Path), help="BMv2 JSON of another build of the program.")
@click.option("--ready-fd", type=int, metavar="N", help="Write the ready line there, not to standard output.")
@click.option("--exit-with-parent", is_flag=True, help="End when the process that started this one ends.")
@click.option(
    "--log-level",
    default="info",
    show_default=True,
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    help="Least severity of what is logged to standard error.",
)
def controller(
    topology: Path,
    listen: str,
    window: int,
    lease: float,
    join_timeout: float,
    startup_wait: float,
    orphan_idle: float,
    p4info: Path | None,
    p4_json: Path | None,
    ready_fd: int | None,
    exit_with_parent: bool,
    log_level: str,
) -> None:
    """Run the controller of the switches in a topology file.

    Prints one line, which ends in its address, when it is ready.  SIGTERM and SIGINT stop it; jobs on
    the switches go on without it.
    """
    if exit_with_parent:
        _exit_with_parent()
    from netreduce.controller import log
    from netreduce.controller.pipeline import ProgramError
    from netreduce.controller.server import ListenError
    from netreduce.controller.topology import TopologyError

    log.set_up(log_level)
    try:
        options = ControllerOptions(
            topology=topology,
            listen=_address(listen),
            window=window,
            lease=_positive("lease", lease),
            join_timeout=_positive("join-timeout", join_timeout),
            startup_wait=_positive("startup-wait", startup_wait),
            orphan_idle=_positive("orphan-idle", orphan_idle),
            p4info=p4info,
            p4blob=p4_json,
        )
        asyncio.run(_run(options, ready_fd))
    except (TopologyError, ProgramError, ListenError, ValueError) as error:
        raise click.ClickException(str(error)) from error


async def _run(options: ControllerOptions, ready_fd: int | None) -> None:
    from netreduce.controller.server import Controller

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Controller(options) as running:
        stopping = asyncio.create_task(stop.wait(), name="stop")
        switches = asyncio.create_task(running.wait_switches(), name="start")
        await asyncio.wait({stopping, switches}, return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            _announce(f"netreduce controller is ready on {running.address}", ready_fd)
            await stopping
        switches.cancel()
        await asyncio.gather(switches, return_exceptions=True)


def _announce(line: str, ready_fd: int | None) -> None:
    if ready_fd is None:
        click.echo(line)
        return
    try:
        with os.fdopen(ready_fd, "w") as ready:
            print(line, file=ready)
    except OSError as error:
        raise ValueError(f"--ready-fd {ready_fd}: {error.strerror}") from error


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"--listen {text!r} is not an address; write it as {ControllerOptions.listen}")
    return text


def _positive(name: str, seconds: float) -> timedelta:
    if not seconds > 0:
        raise ValueError(f"--{name} must be more than 0 seconds, found {seconds:g}")
    return timedelta(seconds=seconds)


def _exit_with_parent() -> None:
    """Have the kernel send SIGTERM when the parent dies."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:
        raise click.ClickException("the process that started this one has ended already")
