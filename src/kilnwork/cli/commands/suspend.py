"""`kiln suspend`: suspend tasks, file jobs, Jobs and SyncSets."""

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
    """Suspend tasks, Jobs, SyncSets and file jobs; running work continues.

    \b
    kiln suspend hello
    kiln suspend invoices
    kiln suspend job/report-x7k2p syncset/eod-risk

    No further attempt of the task, part of the file job, index of job/NAME or task of syncset/NAME
    starts until `kiln resume`.
    """
    session.run(lambda s: suspension.suspend(s, names, suspended=True))
