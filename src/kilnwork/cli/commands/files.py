"""`kiln files`: file jobs, one of them, or its parts."""

from typing import Any

import click

from kilnwork.api import filejobs
from kilnwork.cli import file_lists, options, session, shell_completion


@click.command()
@click.argument(
    "job", required=False, metavar="[ID|NAME]", shell_complete=shell_completion.file_jobs
)
@options.list_target
@click.option("--parts", is_flag=True, help="The parts of the job.")
@click.option("--uploads", is_flag=True, help="Uploads that broke off, instead of jobs.")
@click.option(
    "--phase",
    type=click.Choice([each.value for each in filejobs.FileJobPhase], case_sensitive=False),
    help="Only in this phase.",
)
@click.option("--state", metavar="STATE", help="Only parts in this state, such as Failed.")
@click.option("--name", help="Only jobs of this name.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many; default 50 jobs.")
@click.option("--no-headers", is_flag=True, help="Leave out the line of column names.")
@options.output("wide", "json", "yaml", "name")
def command(job: str | None, form: str | None, **asked: Any) -> None:
    """List file jobs, newest first; with an ID show that one, with --parts its parts.

    \b
    kiln files
    kiln files invoices
    kiln files invoices --parts --state Failed
    kiln files --uploads

    `kiln upload` makes them, `kiln results` brings what they made. `kiln wait`, `why`, `logs`,
    `cancel`, `suspend`, `resume`, `adjust` and `retry` take their ids and names, and file/NAME,
    which is what `kiln delete` takes. Parts are tasks: `kiln logs NAME-3` is of part 3.
    """
    if asked["uploads"]:
        if job is not None or asked["parts"] or asked["phase"] or asked["name"]:
            raise click.UsageError("--uploads lists what belongs to no job: leave out the rest")
        session.run(lambda s: file_lists.uploads(s, form, headers=not asked["no_headers"]))
        return
    if job is None and (asked["parts"] or asked["state"]):
        raise click.UsageError("--parts and --state are of one job: name its ID")
    if job is not None and asked["parts"]:
        session.run(lambda s: file_lists.parts(s, job, form, asked))
    elif job is not None:
        session.run(lambda s: file_lists.one(s, job, form))
    else:
        session.run(lambda s: file_lists.many(s, form, asked))
