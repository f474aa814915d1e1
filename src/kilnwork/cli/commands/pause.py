"""`kiln pause`: of file jobs and Jobs."""

import click

from kilnwork.cli import completing, job_switch, options, session


@click.command()
@click.argument(
    "jobs", nargs=-1, required=True, metavar="ID|NAME|job/NAME…", shell_complete=completing.pausable
)
@options.target
def command(jobs: tuple[str, ...]) -> None:
    """Start no more parts of file jobs, or indexes of Jobs; what runs ends in peace.

    \b
    kiln pause invoices
    kiln pause job/report-x7k2p
    kiln pause syncset/eod-risk

    Of job/NAME no index is started any more (spec.suspend), of syncset/NAME no task; what runs goes
    on.
    """
    session.run(lambda s: job_switch.suspend(s, jobs, suspended=True))
