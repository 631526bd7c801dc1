"""The command ``netreduce run``."""

import json
import sys
from pathlib import Path

import click
from google.protobuf.json_format import MessageToDict
from rich.console import Console


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--workers", type=int, default=2, show_default=True, help="Worker processes, 1 to 64.")
@click.option(
    "--transport",
    type=click.Choice(["shm", "udp"]),
    default="shm",
    show_default=True,
    help="shm: shared-memory ports, no root.  udp: a network namespace and kernel sockets per worker (root).",
)
@click.option(
    "--precision",
    type=click.Choice(["16", "32", "64"]),
    default="32",
    show_default=True,
    help="Bits per float in the network (float32, float16, bfloat16).",
)
@click.option(
    "--window",
    type=click.Choice(["1", "2", "4", "8", "16", "32", "64"]),
    default="64",
    show_default=True,
    help="Packets a rank may have outstanding.",
)
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="SPEC",
    help="Seeded faults at the switch's ports, e.g. drop=0.01,duplicate=0.01,reorder=0.01,seed=7.",
)
@click.option("--summary", metavar="FILE", help="Write the controller's record of the jobs as JSON.")
@click.option("--quiet", is_flag=True, help="No summary on the terminal.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(
    workers: int,
    transport: str,
    precision: str,
    window: str,
    faults: tuple[str, ...],
    summary: str | None,
    quiet: bool,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Run SCRIPT under torchrun, its all-reduces summed by an embedded P4 switch.

    The script is not edited: init_process_group("gloo") is enough.  The exit code is torchrun's.
    """
    from netreduce.topologies import launcher, reports
    from netreduce.topologies.processes import ServiceError

    options = launcher.RunOptions(
        script=script,
        arguments=arguments,
        workers=workers,
        transport=transport,
        precision=int(precision),
        window=int(window),
        faults=faults,
    )
    try:
        result = launcher.run(options)
    except launcher.UsageError as error:
        raise click.UsageError(str(error)) from None
    except (ServiceError, ConnectionError, OSError) as error:
        raise click.ClickException(str(error)) from None
    if summary:
        record = [MessageToDict(job, preserving_proto_field_name=True) for job in result.jobs]
        Path(summary).write_text(json.dumps(record, indent=2))
    if result.trouble:
        click.echo(f"netreduce: {result.trouble}", err=True)
    if not quiet:
        reports.print_summary(result.jobs, Console(stderr=True))
    sys.exit(result.exit_code or (1 if result.trouble else 0))
