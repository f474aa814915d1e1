"""`kiln logs`: print the output of a task from the journal's log files, which outlive Pods and
objects.
"""

import click

from kilnwork.cli import (
    errors,
    file_jobs,
    job_logs,
    job_lookup,
    kinds,
    options,
    session,
    set_logs,
    shell_completion,
    sync_set_requests,
    task_logs,
)


@click.command()
@click.argument("task", metavar="NAME|ID|job/NAME", shell_complete=shell_completion.subjects)
@options.target
@options.data
@click.option("-f", "--follow", is_flag=True, help="Print new output until the task finishes.")
@click.option(
    "--run",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of the run (for SyncSets the generation); default: the newest.",
)
@click.option(
    "--attempt",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of the attempt; default: the newest.",
)
@click.option("--index", metavar="N|KEY", help="Job: only this index, by number, key or label.")
@click.option(
    "--step", metavar="STEP", help="SyncSet: only this step, or one instance of it: price[17]."
)
@click.option(
    "--tail", type=click.IntRange(min=0), metavar="N", help="Print only the last N lines."
)
def command(
    task: str,
    follow: bool,  # noqa: FBT001
    index: str | None,
    step: str | None,
    **asked: int | None,
) -> None:
    """Print the output of a task, standard output and standard error combined.

    \b
    kiln logs hello
    kiln logs -f --tail 20 hello
    kiln logs job/report-x7k2p --index oslo --attempt 1
    kiln logs syncset/eod-risk --step price

    Prints the newest attempt of the newest run. With -f, and without --attempt, the output of later
    attempts follows until the task finishes. If a task has not started, the reason is printed to
    standard error.

    For a file job, by id or name, prints the output of its first failed part, or of the first part
    if none failed; NAME-3 selects part 3. For job/NAME prints up to 20 indexes, failed ones first,
    and puts the index before each line; --index selects one. For syncset/NAME puts the step before
    each line; --step selects one, --run another generation.
    """
    query = {key: str(value) for key, value in asked.items() if value is not None}
    if follow:
        query["follow"] = "true"
    session.run(lambda s: _logs(s, task, query, index=index, step=step))


async def _logs(
    s: session.Session,
    word: str,
    query: dict[str, str],
    *,
    index: str | None,
    step: str | None,
) -> None:
    if (name := sync_set_requests.explicit_name(word)) is not None:
        if index is not None:
            raise errors.InvalidInput(f"--index is only for Jobs: write --step 'STEP[{index}]'")
        await set_logs.show(s, name, query, step=step)
        return
    if step is not None:
        raise errors.InvalidInput(f"--step is only for SyncSets: write syncset/{word}")

    async def of_task(name: str) -> None:
        if index is not None:
            raise errors.InvalidInput(f"--index is only for Jobs: write job/{name}")
        await task_logs.of_task(s, kinds.task_name(name), query)

    await job_lookup.call_for_named(
        s,
        word,
        task=of_task,
        file_job=lambda job: _of_job(s, job, query),
        job=lambda found: job_logs.show(s, found, query, index=index),
    )


async def _of_job(s: session.Session, job: file_jobs.Job, query: dict[str, str]) -> None:
    """Print the output of one part of a file job, and report the number of that part."""
    of, total, number = job["id"], file_jobs.parts(job).get("total", 0), 1
    if file_jobs.parts(job).get("failed"):
        where = file_jobs.path(of, "parts")
        failed = file_jobs.list_documents(s, where=where, wanted={"state": "Failed"}, limit=1)
        number = next(iter([int(part["part"]) async for part in failed]), 1)
    if total > 1:
        another = f"`kiln logs {of}-{number % total + 1}` shows the next"
        click.echo(f"this is part {number} of {total:,}; {another}", err=True)
    await task_logs.of_task(s, f"{of}-{number}", query)
