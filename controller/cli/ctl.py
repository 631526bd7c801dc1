"""``netreduce ctl``: shows what the controller knows."""

import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any

import click

from netreduce.controller.options import ControllerOptions

TIMEOUT_SECONDS = 10


class _Asker:
    """Asks one controller."""

    def __init__(self, address: str):
        self.address = address

    def ask(self, method: str, request: Any) -> Any:
        """The reply.  Raises ClickException with one sentence when there is none."""
        import grpc

        from netreduce.controller.api.job_service_pb2_grpc import OperatorServiceStub

        try:
            # The record of many jobs of many ranks is larger than gRPC's usual limit.
            options = [("grpc.max_receive_message_length", -1)]
            with grpc.insecure_channel(self.address, options) as channel:
                return getattr(OperatorServiceStub(channel), method)(request, timeout=TIMEOUT_SECONDS)
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION):
                raise click.ClickException(error.details()) from error
            if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise click.ClickException(
                    f"the controller at {self.address} failed to answer ({error.code().name}):"
                    f" {error.details()}; its log may say more"
                ) from error
            raise click.ClickException(
                f"no answer from a controller at {self.address} ({error.code().name}); is `netreduce"
                " controller` running there? Set --controller or NETREDUCE_CONTROLLER"
            ) from error


def _check_address(_context: click.Context, _option: click.Parameter, address: str) -> str:
    if not re.fullmatch(r"\S+:[0-9]{1,5}", address) or not 0 < int(address.rpartition(":")[2]) < 65536:
        raise click.BadParameter(f"{address!r} is not host:port, for example {ControllerOptions.listen}")
    return address


def _common(command: Callable) -> Callable:
    """Options that every subcommand takes."""
    command = click.option("--json", "as_json", is_flag=True, help="For machines.")(command)
    return click.option(
        "--controller",
        metavar="HOST:PORT",
        callback=_check_address,
        default=lambda: os.environ.get("NETREDUCE_CONTROLLER") or ControllerOptions.listen,
        help=f"Default: NETREDUCE_CONTROLLER, then {ControllerOptions.listen}.",
    )(command)


def _show(reply: Any, as_json: bool, show: Callable[[Any], list]) -> None:
    from netreduce.controller.cli.tables import plain

    if as_json:
        click.echo(json.dumps(plain(reply), indent=2))
        return
    from rich.console import Console

    from netreduce.controller.cli.records import Records

    # Without a terminal there is no width to fit; rich would assume 80 columns.
    console = Console(width=None if sys.stdout.isatty() else 240)
    for part in show(reply):
        for piece in part.fitted(console) if isinstance(part, Records) else [part]:
            console.print(piece)


@click.group()
def ctl() -> None:
    """Show switches, jobs and counters."""


@ctl.command()
@_common
def switches(controller: str, as_json: bool) -> None:
    """Switches and their ports."""
    from netreduce.controller.api import job_service_pb2 as pb
    from netreduce.controller.cli import tables

    reply = _Asker(controller).ask("ListSwitches", pb.ListSwitchesRequest())
    _show(reply, as_json, tables.switches)


@ctl.command()
@_common
@click.option("--all", "include_finished", is_flag=True, help="Also jobs that are over.")
def jobs(controller: str, as_json: bool, include_finished: bool) -> None:
    """Jobs, their ranks, and what fell back to the inner backend."""
    from netreduce.controller.api import job_service_pb2 as pb
    from netreduce.controller.cli import tables

    reply = _Asker(controller).ask("ListJobs", pb.ListJobsRequest(include_finished=include_finished))
    _show(reply, as_json, tables.jobs)


@ctl.command()
@_common
@click.option("--switch", default="", metavar="NAME", help="Only this switch.")
def counters(controller: str, as_json: bool, switch: str) -> None:
    """Packets by what became of them, for each stream."""
    from netreduce.controller.api import job_service_pb2 as pb
    from netreduce.controller.cli import tables

    reply = _Asker(controller).ask("ReadCounters", pb.ReadCountersRequest(switch=switch))
    _show(reply, as_json, tables.counters)
