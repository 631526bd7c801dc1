"""The command ``netreduce``: collects its subcommands from the entry points ``netreduce.commands``."""

from importlib.metadata import EntryPoint, entry_points

import click

GROUP = "netreduce.commands"


class PartsGroup(click.Group):
    """A group whose commands are parts of the project, each imported when it is first needed.

    A part that cannot be imported (a missing optional dependency, say) is listed with the reason and
    says it when invoked; the others work.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all parts' commands."""
        return sorted({*super().list_commands(ctx), *_parts()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, or one that explains why it is not available."""
        found = super().get_command(ctx, cmd_name)
        if found is not None or cmd_name not in _parts():
            return found
        try:
            return _parts()[cmd_name].load()
        except Exception as error:
            return _unavailable(cmd_name, error)


def _parts() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _unavailable(name: str, error: Exception) -> click.Command:
    reason = " ".join(f"{type(error).__name__}: {error}".split())

    @click.command(
        name,
        help=f"Not available ({reason})",
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
    def command() -> None:
        raise click.ClickException(f"the command {name!r} is not available: {reason}")

    return command


@click.command(cls=PartsGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="netreduce")
def main() -> None:
    """In-network aggregation beneath torch.distributed."""


if __name__ == "__main__":
    main(prog_name="netreduce")
