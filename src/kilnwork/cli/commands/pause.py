"""`kiln pause`: of file jobs."""

import click

from kilnwork.cli import completing, file_names, options, session


@click.command()
@click.argument(
    "jobs", nargs=-1, required=True, metavar="ID|NAME…", shell_complete=completing.file_jobs
)
@options.target
def command(jobs: tuple[str, ...]) -> None:
    """Start no more parts of file jobs; what runs ends in peace.

    \b
    kiln pause invoices
    """
    session.run(lambda s: file_names.tell(s, jobs, "pause"))
