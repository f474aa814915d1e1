"""`kiln enable`: of the schedules of JobConfigs."""

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
    """Let the schedules of JobConfigs make Jobs again.

    \b
    kiln enable report

    Ticks that have passed meanwhile are not made up for: `kiln backfill` makes Jobs for them.
    """
    session.run(lambda s: suspension.switch(s, configs, disabled=False))
