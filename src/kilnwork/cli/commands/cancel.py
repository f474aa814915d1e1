"""`kiln cancel`: stop tasks, Jobs, SyncSets and file jobs.

A Task object is stopped by its killTimestamp, a task without an object by a request to the journal.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import click

from kilnwork.api import kinds as api_kinds
from kilnwork.cli import (
    errors,
    file_job_lookup,
    file_job_progress,
    file_jobs,
    job_fields,
    job_lookup,
    kinds,
    object_waits,
    options,
    session,
    shell_completion,
    sync_set_requests,
    time_types,
)
from kilnwork.kit import clock, http_types
from kilnwork.kube import errors as kube_errors


@click.command()
@click.argument(
    "tasks",
    nargs=-1,
    required=True,
    metavar="NAME|ID|job/NAME…",
    shell_complete=shell_completion.subjects,
)
@options.target
@click.option("--wait", is_flag=True, help="Wait until they have stopped.")
@click.option(
    "--timeout", type=options.DURATION, default=None, help="Stop waiting after this time."
)
@click.option(
    "--at",
    type=time_types.MOMENT,
    metavar="TIME",
    help="Stop Jobs at this time instead of now.",
)
def command(tasks: tuple[str, ...], timeout: float | None, **asked: Any) -> None:
    """Stop tasks, Jobs, SyncSets and file jobs; their objects and logs are kept.

    \b
    kiln cancel hello
    kiln tasks --state Running --function train:fit -o name | xargs kiln cancel --wait
    kiln cancel job/report-x7k2p
    kiln cancel job/report-x7k2p --at 2026-01-02T06:00

    A command gets SIGTERM and, after its grace period, SIGKILL, with all processes that it started.
    In a Python function kiln.Cancelled is raised instead of SIGTERM. Children are stopped with
    their parent. A finished task is not changed.

    job/NAME stops a Job with all its indexes, syncset/NAME the newest generation of a SyncSet. The
    id or name of a file job, or file/NAME, stops the file job; its finished parts can still be
    read.
    """
    at = None if asked["at"] is None else clock.rfc3339(asked["at"].first())
    if at is not None and asked["wait"]:
        raise click.UsageError("--wait cannot be combined with --at")
    session.run(lambda s: _all(s, tasks, wait=asked["wait"], timeout_s=timeout, at=at))


async def _all(
    s: session.Session,
    words: Sequence[str],
    *,
    wait: bool,
    timeout_s: float | None,
    at: str | None,
) -> None:
    ends: list[Callable[[], Awaitable[object]]] = []

    async def stop_task(word: str) -> None:
        name = kinds.task_name(word)
        _check_at(name, at)
        click.echo(f"{name} {await _cancel(s, name)}")
        ends.append(lambda: object_waits.wait_until_final(s, name, timeout_s=timeout_s))

    async def stop_job(found: job_lookup.Item) -> None:
        name = found["metadata"]["name"]
        click.echo(f"Job {name} {await _cancel_job(s, found, at)}")
        ends.append(lambda: _job_end(s, name, timeout_s=timeout_s))

    async def stop_set(name: str) -> None:
        click.echo(await sync_set_requests.cancel(s, name, at))
        ends.append(lambda: _set_end(s, name, timeout_s=timeout_s))

    async def stop(word: str) -> None:
        name = sync_set_requests.explicit_name(word)
        if name is not None:
            await stop_set(name)
            return
        await job_lookup.call_for_named(
            s, word, task=stop_task, file_job=stop_file_job, job=stop_job
        )

    async def stop_file_job(job: file_jobs.Job) -> None:
        _check_at(job["id"], at)
        found = await file_jobs.post_action(s, job["id"], "cancel")
        over = file_jobs.phase(found).final
        how = f"is already {file_jobs.phase(found)}" if over else "is being stopped"
        click.echo(f"job {job['id']} {how}")
        ends.append(
            lambda: file_job_progress.wait_until_finished(s, job["id"], timeout_s=timeout_s)
        )

    try:
        await file_job_lookup.for_each(words, stop)
    finally:
        if wait:
            for end in ends:
                await end()


async def _cancel(s: session.Session, name: str) -> str:
    namespace = s.one_namespace()
    path = s.path(api_kinds.TASKS, name, namespace=namespace)
    try:
        live = await s.ask("GET", path)
    except kube_errors.NotFound:
        response = await s.ask("POST", s.tasks_path(name, "cancel"))
        state = str(response.get("state", ""))
        return f"is already {state}" if object_waits.is_final(state) else "is being stopped"
    state = live.get("status", {}).get("state", "")
    if object_waits.is_final(state):
        return f"is already {state}"
    if live.get("spec", {}).get("killTimestamp"):
        return "is being stopped already"
    change = {"spec": {"killTimestamp": clock.rfc3339(s.clock.wall())}}
    await s.ask("PATCH", path, body=change, content_type=http_types.MERGE_PATCH)
    return "is being stopped"


def _check_at(name: str, at: str | None) -> None:
    if at is not None:
        raise errors.InvalidInput(f"--at is only for Jobs, and {name} is not a Job: leave it out")


async def _cancel_job(s: session.Session, found: job_lookup.Item, at: str | None) -> str:
    if job_fields.is_over(found):
        return f"is already {job_fields.phase(found)}"
    time = at or clock.rfc3339(s.clock.wall())
    await job_lookup.patch_spec(s, found["metadata"]["name"], {"killTimestamp": time})
    return "is being stopped" if at is None else f"will be stopped at {at}"


async def _job_end(s: session.Session, name: str, *, timeout_s: float | None) -> None:
    subject = object_waits.WaitSubject(api_kinds.JOBS, name, s.one_namespace())
    text = f"waiting for Job {name} to stop"
    await object_waits.until(
        s,
        subject,
        lambda found: found is None or job_fields.is_over(found),
        text=text,
        timeout_s=timeout_s,
    )


async def _set_end(s: session.Session, name: str, *, timeout_s: float | None) -> None:
    subject = object_waits.WaitSubject(api_kinds.SYNC_SETS, name, s.one_namespace())
    await object_waits.until(
        s,
        subject,
        lambda found: found is None or sync_set_requests.is_over(found),
        text=f"waiting for SyncSet {name} to stop",
        timeout_s=timeout_s,
    )
