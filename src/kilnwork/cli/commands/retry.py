"""`kiln retry`: start a new run of finished tasks, Jobs, SyncSets and file jobs."""

from collections.abc import Sequence

import click

from kilnwork.api import job as api_job
from kilnwork.cli import (
    errors,
    file_job_lookup,
    file_jobs,
    job_lookup,
    kinds,
    options,
    retries,
    session,
    shell_completion,
    sync_set_requests,
    task_id_lookup,
)


@click.command()
@click.argument(
    "tasks",
    nargs=-1,
    required=True,
    metavar="NAME|ID|job/NAME|syncset/NAME…",
    shell_complete=shell_completion.subjects,
)
@options.target
@options.data
@click.option(
    "--failed",
    is_flag=True,
    help="Run only failed work again; reuse the results of what succeeded.",
)
@click.option("--force", is_flag=True, help="Run tasks again even if they succeeded.")
@click.option(
    "--wait",
    is_flag=True,
    help="Wait until the new runs finish; exit with 6 if one fails or is killed.",
)
@click.option(
    "--timeout", type=options.DURATION, default=None, help="Stop waiting after this time."
)
def command(tasks: tuple[str, ...], timeout: float | None, **asked: bool) -> None:
    """Run failed or killed tasks, Jobs, SyncSets and file jobs again, with new retry budgets.

    \b
    kiln retry hello
    kiln retry total --failed --wait
    kiln retry job/report-x7k2p --failed
    kiln retry invoices --failed
    kiln retry syncset/eod-risk --failed

    Without --failed, only the task itself runs again, from its beginning and with new children.

    With --failed, children and inputs that succeeded keep their results. Those that failed run
    again, and so does every task that failed because of them, its parent or a task that takes its
    result, in dependency order. Name any one of these tasks.

    For Jobs and file jobs, the indexes and parts that have not succeeded run again in both cases;
    with --failed also Jobs that failed because they depend on a Job. For SyncSets (--failed only),
    the failed shards and steps of the newest generation and the steps after them run again on the
    same data; `kiln replay` runs a whole generation again.

    The output of earlier runs is kept: `kiln logs --run N`.
    """
    if asked["failed"] and asked["force"]:
        raise click.UsageError("--failed reuses what has succeeded: leave out --force")
    session.run(lambda s: _all(s, tasks, timeout_s=timeout, **asked))


async def _all(
    s: session.Session,
    words: Sequence[str],
    *,
    failed: bool,
    force: bool,
    wait: bool,
    timeout_s: float | None,
) -> None:
    """Retry each named task, Job, SyncSet and file job.

    Prints the errors of those that cannot be retried, and raises the last error.
    """
    started: list[retries.StartedRun] = []
    begun = set[str]()

    async def task(word: str) -> retries.StartedRun:
        name = kinds.task_name(word)
        return await (
            retries.failed_task(s, name, begun) if failed else retries.task(s, name, force=force)
        )

    async def file_job(found: file_jobs.Job) -> retries.StartedRun:
        return await retries.file_job(s, found)

    async def job(found: job_lookup.Item) -> retries.StartedRun:
        return await retries.job(s, found, failed=failed)

    async def start(word: str) -> None:
        if (name := sync_set_requests.explicit_name(word)) is not None:
            if not failed:
                raise errors.InvalidInput(
                    f"--failed runs the failed steps of a SyncSet again; `kiln replay {name}` runs "
                    "the whole generation again, as a new one"
                )
            one = await retries.sync_set(s, name)
        else:
            word = await task_id_lookup.resolve(s, word)
            one = await job_lookup.call_for_named(s, word, task=task, file_job=file_job, job=job)
        click.echo(one.sentence)
        started.append(one)

    try:
        await file_job_lookup.for_each(words, start)
    finally:
        ends = [(one, await one.end(timeout_s)) for one in started if wait]
    for one, state in ends:
        if state not in _WELL:
            raise errors.TaskFailed(f"{one.name} ended {state}: see `kiln why {one.name}`")


_WELL = ("Success", api_job.Phase.SUCCEEDED)
