"""`kiln jobs`: list Jobs, or show one or its indexes."""

from typing import Any

import click

from kilnwork.api import kinds as api_kinds
from kilnwork.cli import (
    job_lists,
    job_lookup,
    job_progress,
    options,
    session,
    shell_completion,
)

_LISTS = ("config", "active", "queued", "finished", "scheduled", "adhoc")


@click.command()
@click.argument(
    "job", required=False, metavar="[NAME]", shell_complete=shell_completion.of_kind(api_kinds.JOBS)
)
@options.list_target
@click.option(
    "--indexes",
    is_flag=True,
    help="List the indexes of the Job: number, label, state, run, attempt, worker, time taken"
    " and message.",
)
@click.option("--watch", is_flag=True, help="Show progress until the Job finishes.")
@click.option(
    "--state",
    "--phase",
    "state",
    metavar="STATE",
    help="Only Jobs in this phase, for example Failed; with --indexes only indexes in this"
    " state: Waiting, Queued, Running, Succeeded, Failed or Cancelled.",
)
@click.option(
    "--config",
    metavar="CONFIG",
    help="Only Jobs of this JobConfig.",
    shell_complete=shell_completion.of_kind(api_kinds.JOB_CONFIGS),
)
@click.option(
    "--active",
    is_flag=True,
    help="Only Jobs that have started and are unfinished; can be combined with --queued and"
    " --finished.",
)
@click.option("--queued", is_flag=True, help="Only Jobs that wait to start.")
@click.option("--finished", is_flag=True, help="Only finished Jobs.")
@click.option("--scheduled", is_flag=True, help="Only Jobs that a schedule created.")
@click.option("--adhoc", is_flag=True, help="Only Jobs that no schedule created.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Show at most N; default: 50 Jobs, all indexes.",
)
@click.option("--no-headers", is_flag=True, help="Omit the header line.")
@options.output("wide", "json", "yaml", "name")
def command(job: str | None, form: str | None, **asked: Any) -> None:
    """List Jobs, newest first; with NAME show one Job, with --indexes its indexes.

    \b
    kiln jobs
    kiln jobs --config report --finished
    kiln jobs --active --queued -A
    kiln jobs report-x7k2p
    kiln jobs report-x7k2p --indexes --state Failed
    kiln jobs report-x7k2p --watch

    The column INDEXES shows succeeded and total indexes. `kiln run-job` creates Jobs; `kiln logs`,
    `why`, `wait`, `cancel`, `suspend`, `resume`, `retry` and `result` accept job/NAME. Each index
    is a task: `kiln logs NAME-3` prints the output of index 3. `kiln files` lists the jobs of `kiln
    upload`.
    """
    if job is None:
        if asked["indexes"] or asked["watch"]:
            raise click.UsageError("--indexes and --watch are of one Job: name it")
        session.run(lambda s: job_lists.print_jobs(s, None, form, asked))
        return
    name = job_lookup.plain_name(job)
    if unused := [option for option in _LISTS if asked[option]]:
        raise click.UsageError(f"--{unused[0]} chooses among Jobs: leave out the NAME")
    if asked["state"] and not asked["indexes"]:
        raise click.UsageError("--state of one Job is about its indexes: add --indexes")
    if asked["indexes"]:
        session.run(lambda s: job_lists.print_jobs(s, name, form, asked))
    elif asked["watch"]:
        session.run(lambda s: _watch(s, name))
    else:
        session.run(lambda s: job_lists.print_job(s, name, form))


async def _watch(s: session.Session, name: str) -> None:
    await job_lookup.get(s, name)
    await job_progress.follow(s, name)
