"""`kiln disable`: disable the schedules of JobConfigs."""

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
    """Disable the schedules of JobConfigs, so that they create no Jobs.

    \b
    kiln disable report

    Jobs that run or wait are not affected, and `kiln run-job` still creates Jobs. `kiln enable`
    enables the schedules again.
    """
    session.run(lambda s: suspension.set_disabled(s, configs, disabled=True))
