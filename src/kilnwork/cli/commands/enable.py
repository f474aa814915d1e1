"""`kiln enable`: enable the schedules of JobConfigs."""

import click

from kilnwork.api import kinds
from kilnwork.cli import options, session, shell_completion, suspension


@click.command()
@click.argument(
    "configs",
    nargs=-1,
    required=True,
    metavar="CONFIG…",
    shell_complete=shell_completion.of_kind(kinds.JOB_CONFIGS),
)
@options.target
def command(configs: tuple[str, ...]) -> None:
    """Enable the schedules of JobConfigs, so that they create Jobs again.

    \b
    kiln enable report

    Ticks that passed while the schedule was disabled create no Jobs: use `kiln backfill` for them.
    """
    session.run(lambda s: suspension.set_disabled(s, configs, disabled=False))
