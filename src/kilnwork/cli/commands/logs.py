"""`kiln logs`: what a task printed, from the journal's log files; they outlive Pods and objects."""

import click

from kilnwork.cli import (
    errors,
    file_jobs,
    job_logs,
    job_names,
    kinds,
    options,
    session,
    set_logs,
    set_objects,
    shell_completion,
    task_logs,
)


@click.command()
@click.argument("task", metavar="NAME|ID|job/NAME", shell_complete=shell_completion.subjects)
@options.target
@options.data
@click.option("-f", "--follow", is_flag=True, help="Go on until the task is over.")
@click.option("--run", type=click.IntRange(min=1), help="Of this run; default the newest.")
@click.option("--attempt", type=click.IntRange(min=1), help="Of this attempt; default the newest.")
@click.option("--index", metavar="N|KEY", help="Of a Job: this index, by number, key or label.")
@click.option("--step", metavar="STEP", help="Of a SyncSet: this step, or an instance: price[17].")
@click.option("--tail", type=click.IntRange(min=0), help="Only the last N lines.")
def command(
    task: str,
    follow: bool,  # noqa: FBT001
    index: str | None,
    step: str | None,
    **asked: int | None,
) -> None:
    """Print what a task printed, standard output and error in one.

    \b
    kiln logs -f hello
    kiln logs --tail 20 0199a0d2-7c1e-7d35-8a51-0d4c5c1f2a10
    kiln logs -f job/report-x7k2p
    kiln logs job/report-x7k2p --index oslo --attempt 1
    kiln logs syncset/eod-risk --step price

    With -f and no --attempt the next attempts follow, until the task is over. Of a task that waits
    it is said what for. Of a file job, by id
    or name, a part is shown: the first that failed, else the first; NAME-3 is part 3.

    Of a Job with several indexes it prints those of up to 20, what failed first, each line with
    the index before it; --index chooses one. Of a SyncSet each line has the step before it; --step
    chooses one, --run another generation.
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
    if (name := set_objects.said(word)) is not None:
        if index is not None:
            raise errors.Unusable(f"--index is of a Job: write --step 'STEP[{index}]'")
        await set_logs.show(s, name, query, step=step)
        return
    if step is not None:
        raise errors.Unusable(f"--step is of a SyncSet: write syncset/{word}")

    async def of_task(name: str) -> None:
        if index is not None:
            raise errors.Unusable(f"--index is of a Job: write job/{name}")
        await task_logs.of_task(s, kinds.task_name(name), query)

    await job_names.either(
        s,
        word,
        task=of_task,
        file_job=lambda job: _of_job(s, job, query),
        job=lambda found: job_logs.show(s, found, query, index=index),
    )


async def _of_job(s: session.Session, job: file_jobs.Job, query: dict[str, str]) -> None:
    """Of one of its parts, and says of which."""
    of, total, number = job["id"], file_jobs.parts(job).get("total", 0), 1
    if file_jobs.parts(job).get("failed"):
        where = file_jobs.path(of, "parts")
        failed = file_jobs.listed(s, where=where, wanted={"state": "Failed"}, limit=1)
        number = next(iter([int(part["part"]) async for part in failed]), 1)
    if total > 1:
        another = f"`kiln logs {of}-{number % total + 1}` shows the next"
        click.echo(f"this is part {number} of {total:,}: {another}", err=True)
    await task_logs.of_task(s, f"{of}-{number}", query)
