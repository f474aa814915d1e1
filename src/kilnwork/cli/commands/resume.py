"""`kiln resume`: of tasks, file jobs, Jobs and SyncSets."""

import click

from kilnwork.cli import options, session, shell_completion, suspension


@click.command()
@click.argument(
    "names",
    nargs=-1,
    required=True,
    metavar="NAME|ID|job/NAME…",
    shell_complete=shell_completion.subjects,
)
@options.target
def command(names: tuple[str, ...]) -> None:
    """Go on with what was suspended.

    \b
    kiln resume hello
    kiln resume invoices
    kiln resume job/report-x7k2p syncset/eod-risk

    What has failed runs again by `kiln retry --failed`.
    """
    session.run(lambda s: suspension.suspend(s, names, suspended=False))
