"""`kiln resume`: resume suspended tasks, file jobs, Jobs and SyncSets."""

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
    """Resume suspended tasks, Jobs, SyncSets and file jobs.

    \b
    kiln resume hello
    kiln resume invoices
    kiln resume job/report-x7k2p syncset/eod-risk

    Failed work is not started again: use `kiln retry --failed`.
    """
    session.run(lambda s: suspension.suspend(s, names, suspended=False))
