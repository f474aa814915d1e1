"""`kiln adjust`: change the settings of a file job."""

from typing import Any

import click

from kilnwork.cli import file_jobs, options, session, shell_completion
from kilnwork.kit import http_types


@click.command()
@click.argument("job", metavar="ID|NAME", shell_complete=shell_completion.file_jobs)
@options.target
@click.option(
    "--parallelism",
    type=click.IntRange(1, 100_000),
    metavar="N",
    help="Maximum number of parts that run at once.",
)
@click.option("--max-failed", metavar="N|N%", help="Fail the job at more bad records than this.")
@click.option(
    "--priority",
    type=click.IntRange(-1_000_000, 1_000_000),
    metavar="N",
    help="Priority of the job, higher first.",
)
@click.option(
    "--ttl",
    type=options.DURATION,
    help="Delete the job, its input and its result this long after it finishes.",
)
def command(job: str, **given: Any) -> None:
    """Change the settings of a file job; takes effect immediately, but not on running parts.

    \b
    kiln adjust invoices --parallelism 8
    kiln adjust invoices --max-failed 1%

    --ttl can also be changed after the job has finished. On a failed or cancelled job the settings
    apply to the next `kiln retry --failed`.
    """
    change: dict[str, Any] = {
        name: given[name] for name in ("parallelism", "priority") if given[name] is not None
    }
    if given["max_failed"] is not None:
        records, percent = file_jobs.parse_tolerance(given["max_failed"])
        change |= {"maxFailedRecords": records, "maxFailedPercent": percent}
    if given["ttl"] is not None:
        change["ttlSecondsAfterFinished"] = int(given["ttl"])
    if not change:
        options_of = "--parallelism, --max-failed, --priority or --ttl"
        raise click.UsageError(f"name what to change: {options_of}")
    session.run(lambda s: _adjust(s, job, change))


async def _adjust(s: session.Session, job: str, change: dict[str, Any]) -> None:
    found = await s.ask(
        "PATCH",
        file_jobs.path(await file_jobs.resolve_id(s, job)),
        query=file_jobs.namespace_query(s),
        body=change,
        content_type=http_types.MERGE_PATCH,
    )
    click.echo(f"job {found['id']} changed, it is {file_jobs.phase(found)}")
