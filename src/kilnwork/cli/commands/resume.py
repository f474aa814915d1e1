"""`kiln resume`: of file jobs and Jobs."""

import click

from kilnwork.cli import completing, job_switch, options, session


@click.command()
@click.argument(
    "jobs", nargs=-1, required=True, metavar="ID|NAME|job/NAME…", shell_complete=completing.pausable
)
@options.target
def command(jobs: tuple[str, ...]) -> None:
    """Go on with file jobs and Jobs that were paused.

    \b
    kiln resume invoices
    kiln resume job/report-x7k2p

    job/NAME goes on with a Job.
    """
    session.run(lambda s: job_switch.suspend(s, jobs, suspended=False))
