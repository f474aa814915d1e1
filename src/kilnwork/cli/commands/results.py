"""`kiln results`: print or save the result of a file job, or its bad records."""

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
              help="File to write; default: standard output.")  # fmt: skip
@click.option("--errors", "bad", is_flag=True, help="Print the bad records instead of the result.")
@click.option("--part", type=click.IntRange(min=1), metavar="N", help="Only the result of part N.")
@click.option(
    "--partial", is_flag=True, help="Only the results of the parts that are finished so far."
)
@click.option("--wait", is_flag=True, help="Wait until the job finishes.")
def command(job: str, **given: Any) -> None:
    """Print or save the result of a file job: one line per record, in the order of the records.

    \b
    kiln results invoices -o result.jsonl
    kiln results invoices --errors | head
    kiln results invoices --part 3

    The result of a part can be read as soon as the part is finished, and --partial prints all
    finished parts, also those of a failed or cancelled job. --errors prints a JSON object per bad
    record: `line` (from 1), `reason` and `raw`, the unchanged record.
    """
    downloads.check_target(given["output"])
    session.run(lambda s: _results(s, job, given))


async def _results(s: session.Session, word: str, given: dict[str, Any]) -> None:
    job = await file_jobs.resolve_id(s, word)
    if given["wait"]:
        await file_job_progress.wait_until_finished(s, job)
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
