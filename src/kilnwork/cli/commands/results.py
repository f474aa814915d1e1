"""`kiln results`: what a file job has made, or its bad records."""

from typing import Any

import click

from kilnwork.cli import (
    downloads,
    errors,
    file_job_progress,
    file_jobs,
    options,
    session,
    shell_completion,
)
from kilnwork.kube import errors as kube_errors


@click.command()
@click.argument("job", metavar="ID|NAME", shell_complete=shell_completion.file_jobs)
@options.target
@click.option("-o", "--output", default=downloads.STDOUT, metavar="FILE",
              help="Write it there; default standard output.")  # fmt: skip
@click.option("--errors", "bad", is_flag=True, help="The bad records instead.")
@click.option("--part", type=click.IntRange(min=1), help="Of this part only.")
@click.option("--partial", is_flag=True, help="Of the parts that are done by now.")
@click.option("--wait", is_flag=True, help="Wait until the job is over.")
def command(job: str, **given: Any) -> None:
    """Bring the result of a file job: a line for each record, in their order.

    \b
    kiln results invoices -o result.jsonl
    kiln results invoices --errors | head
    kiln results invoices --part 3

    A part can be read as soon as it is done, and with --partial all of those; a job that failed or
    was cancelled keeps them. --errors gives a JSON object a line: `line` (from 1),
    `reason` and `raw`, the record unchanged.
    """
    downloads.check_target(given["output"])
    session.run(lambda s: _results(s, job, given))


async def _results(s: session.Session, word: str, given: dict[str, Any]) -> None:
    job = await file_jobs.resolved(s, word)
    if given["wait"]:
        await file_job_progress.until_over(s, job)
    try:
        await downloads.fetch(
            s,
            job,
            given["output"],
            what="errors" if given["bad"] else "results",
            part=given["part"],
            partial=given["partial"],
        )
    except kube_errors.Conflict as error:
        raise errors.CommandError(await _not_yet(s, job)) from error


async def _not_yet(s: session.Session, job: str) -> str:
    found = await file_jobs.get(s, job)
    remedy = f"`kiln results {job} --wait` waits for it"
    if file_jobs.phase(found).final:
        remedy = f"`kiln retry {job} --failed` runs the others again"
    return f"{file_jobs.sentence(found)}. --partial reads what is done; {remedy}"
