"""`kiln files`: list file jobs, or show one or its parts."""

from typing import Any

import click

from kilnwork.api import filejobs
from kilnwork.cli import file_job_lists, options, session, shell_completion


@click.command()
@click.argument(
    "job", required=False, metavar="[ID|NAME]", shell_complete=shell_completion.file_jobs
)
@options.list_target
@click.option(
    "--parts",
    is_flag=True,
    help="List the parts of the job: state, attempt, lines, counts and worker.",
)
@click.option(
    "--uploads",
    is_flag=True,
    help="List uploads that belong to no job, for example interrupted ones, instead of jobs.",
)
@click.option(
    "--phase",
    type=click.Choice([each.value for each in filejobs.FileJobPhase], case_sensitive=False),
    help="Only jobs in this phase.",
)
@click.option("--state", metavar="STATE", help="Only parts in this state, for example Failed.")
@click.option("--name", metavar="NAME", help="Only jobs with this name.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Show at most N; default: 50 jobs, all parts.",
)
@click.option("--no-headers", is_flag=True, help="Omit the header line.")
@options.output("wide", "json", "yaml", "name")
def command(job: str | None, form: str | None, **asked: Any) -> None:
    """List file jobs, newest first; with an ID or NAME show one, with --parts its parts.

    \b
    kiln files
    kiln files invoices
    kiln files invoices --parts --state Failed
    kiln files --uploads

    `kiln upload` creates file jobs, `kiln results` prints their results. `kiln wait`, `why`,
    `logs`, `cancel`, `suspend`, `resume`, `adjust` and `retry` accept their ids, names and
    file/NAME, `kiln delete` only ids and file/NAME. Each part is a task: `kiln logs NAME-3` prints
    the output of part 3.
    """
    if asked["uploads"]:
        if job is not None or asked["parts"] or asked["phase"] or asked["name"]:
            raise click.UsageError("--uploads lists what belongs to no job: leave out the rest")
        session.run(
            lambda s: file_job_lists.print_uploads(s, form, headers=not asked["no_headers"])
        )
        return
    if job is None and (asked["parts"] or asked["state"]):
        raise click.UsageError("--parts and --state are of one job: name its ID")
    if job is not None and asked["parts"]:
        session.run(lambda s: file_job_lists.print_parts(s, job, form, asked))
    elif job is not None:
        session.run(lambda s: file_job_lists.print_job(s, job, form))
    else:
        session.run(lambda s: file_job_lists.print_list(s, form, asked))
