"""`kiln resume`: of file jobs."""

import click

from kilnwork.cli import completing, file_names, options, session


@click.command()
@click.argument(
    "jobs", nargs=-1, required=True, metavar="ID|NAME…", shell_complete=completing.file_jobs
)
@options.target
def command(jobs: tuple[str, ...]) -> None:
    """Go on with file jobs that were paused.

    \b
    kiln resume invoices
    """
    session.run(lambda s: file_names.tell(s, jobs, "resume"))
