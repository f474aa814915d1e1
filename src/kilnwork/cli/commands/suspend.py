"""`kiln suspend`: of tasks, file jobs, Jobs and SyncSets."""

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
    """Start nothing more of these; what runs goes on to its end.

    \b
    kiln suspend hello
    kiln suspend invoices
    kiln suspend job/report-x7k2p syncset/eod-risk

    Of a task no attempt is started any more, of a file job no part, of job/NAME no index, of
    syncset/NAME no task. `kiln resume` lets them go on.
    """
    session.run(lambda s: suspension.suspend(s, names, suspended=True))
