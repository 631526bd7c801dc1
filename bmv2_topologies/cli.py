"""The command ``netreduce run``."""

import json
import sys
from pathlib import Path

import click
from rich.console import Console

from netreduce.p4.wire import MAX_RANKS, MAX_WINDOW


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--workers", type=int, default=2, show_default=True, help=f"Worker processes, 1 to {MAX_RANKS}."
)
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
    type=click.Choice([str(1 << bit) for bit in range(MAX_WINDOW.bit_length())]),
    default=str(MAX_WINDOW),
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
@click.option(
    "--summary",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write the controller's record of the jobs, as `ctl jobs --all --json` shows it.",
)
@click.option("--quiet", is_flag=True, help="No summary on the terminal.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(
    workers: int,
    transport: str,
    precision: str,
    window: str,
    faults: tuple[str, ...],
    summary: Path | None,
    quiet: bool,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Run SCRIPT under torchrun, its all-reduces summed by an embedded P4 switch.

    The script is not edited: init_process_group("gloo") is enough.  The exit code is torchrun's.
    """
    from netreduce.controller.cli.tables import plain
    from netreduce.topologies import launcher, reports
    from netreduce.topologies.processes import ServiceError

    if summary and not summary.parent.is_dir():
        raise click.UsageError(f"--summary {summary}: there is no folder {summary.parent}")
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
    except (ServiceError, OSError) as error:
        raise click.ClickException(str(error)) from None
    if summary:
        try:
            summary.write_text(json.dumps([plain(job) for job in result.jobs], indent=2))
        except OSError as error:
            raise click.ClickException(f"--summary {summary}: {error.strerror}") from None
    if result.trouble:
        click.echo(f"netreduce: {result.trouble}", err=True)
    if not quiet and not result.trouble:
        reports.print_summary(result.jobs, Console(stderr=True))
    sys.exit(result.exit_code or (1 if result.trouble else 0))
