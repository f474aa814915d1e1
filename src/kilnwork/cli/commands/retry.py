"""`kiln retry`: a new run of tasks that are over, by their objects or by the journal."""

from collections.abc import Sequence
from typing import Any

import click

from kilnwork.api import job as api_job
from kilnwork.api import kinds as api_kinds
from kilnwork.cli import (
    completing,
    errors,
    file_names,
    job_names,
    job_objects,
    kinds,
    options,
    session,
    task_names,
    waiting,
)
from kilnwork.kit import http_types
from kilnwork.kube import errors as kube_errors

_FORCE = "kilnwork.dev/force-run"


@click.command()
@click.argument(
    "tasks",
    nargs=-1,
    required=True,
    metavar="NAME|ID|job/NAME…",
    shell_complete=completing.subjects,
)
@options.target
@click.option("--force", is_flag=True, help="Run again also what has succeeded.")
@click.option(
    "--failed",
    is_flag=True,
    help="Of Jobs: run only the indexes that have not succeeded, which is the default.",
)
@click.option("--wait", is_flag=True, help="Wait until they are over; 6 if one ends badly.")
@click.option("--timeout", type=options.DURATION, default=None, help="Wait no longer than this.")
def command(tasks: tuple[str, ...], timeout: float | None, **asked: bool) -> None:
    """Start tasks anew that have failed or were killed: a new run with new budgets.

    \b
    kiln retry hello
    kiln tasks --state Failed -o name | xargs kiln retry --wait
    kiln retry job/report-x7k2p --failed

    Runs before it stay readable: `kiln logs --run N`. What depended on the task is not run again.
    Of a Job the indexes that have not succeeded run again; those that have keep their results.
    """
    names = [word if job_names.said(word) else kinds.task_name(word) for word in tasks]
    session.run(
        lambda s: _all(s, names, force=asked["force"], wait=asked["wait"], timeout_s=timeout)
    )


async def _all(
    s: session.Session, names: Sequence[str], *, force: bool, wait: bool, timeout_s: float | None
) -> None:
    """Each that can be; the others are named, the last of them by the exit."""
    runs: dict[str, int] = {}
    refused: list[errors.CommandError | kube_errors.ApiError] = []
    for word in names:
        try:
            name = await task_names.resolved(s, word)
            runs[name] = await _retry_any(s, name, force=force)
        except (errors.CommandError, kube_errors.ApiError) as error:
            refused.append(error)
        else:
            click.echo(f"{name} starts anew as run {runs[name]}")
    states = [
        (name, await _end(s, name, timeout_s=timeout_s, run=run))
        for name, run in runs.items()
        if wait
    ]
    for one in refused[:-1]:
        click.echo(f"error: {one}", err=True)
    if refused:
        raise refused[-1]
    for name, state in states:
        if state not in ("Success", api_job.Phase.SUCCEEDED):
            what = "" if job_names.said(name) else "task "
            raise errors.TaskFailed(f"{what}{name} ended {state}: see `kiln why {name}`")


async def _end(s: session.Session, name: str, *, timeout_s: float | None, run: int) -> str:
    job = job_names.said(name)
    if job is None:
        return await waiting.for_final(s, name, timeout_s=timeout_s, run=run)
    subject = waiting.Subject(api_kinds.JOBS, job, s.one_namespace())
    found = await waiting.until(
        s,
        subject,
        lambda found: found is None or job_objects.is_over(found),
        text=f"waiting for Job {job} to be over",
        timeout_s=timeout_s,
    )
    return "Deleted" if found is None else job_objects.phase(found)


async def _retry_any(s: session.Session, name: str, *, force: bool) -> int:
    """The number of the new run of a task, or of the Job in `job/NAME`."""
    job = job_names.said(name)
    if job is None:
        return await _retry(s, name, force=force)
    found = await job_names.get(s, job)
    _check_job(found)
    run = int(job_objects.spec(found).get("run", 1)) + 1
    await job_names.change(s, job, {"run": run, "killTimestamp": None})
    return run


def _check_job(found: job_names.Item) -> None:
    name, phase = found["metadata"]["name"], job_objects.phase(found)
    if not job_objects.is_over(found):
        raise errors.CommandError(
            f"Job {name} is {phase or 'new'}, not over: `kiln cancel job/{name}` stops it"
        )
    counts = job_objects.counts(found)
    if phase == api_job.Phase.SUCCEEDED and counts.succeeded == counts.total:
        raise errors.CommandError(
            f"Job {name} has succeeded, nothing of it is left to run: make another Job"
        )


async def _retry(s: session.Session, name: str, *, force: bool) -> int:
    """The number of the new run."""
    namespace = s.one_namespace()
    path = s.path(api_kinds.TASKS, name, namespace=namespace)
    try:
        live = await s.ask("GET", path)
    except kube_errors.NotFound:
        return await _spawned(s, name, force=force)
    status = live.get("status") or {}
    state, run = str(status.get("state", "")), max(int(status.get("run", 0)), 1)
    asked = live.get("spec", {}).get("run", 1)
    if asked > run:
        return int(asked)  # it was asked for already
    _check(name, state, force=force)
    change: dict[str, Any] = {"spec": {"run": run + 1, "killTimestamp": None}}
    if state == "Success":
        change["metadata"] = {"annotations": {_FORCE: str(run + 1)}}
    await s.ask("PATCH", path, body=change, content_type=http_types.MERGE_PATCH)
    return run + 1


def _check(name: str, state: str, *, force: bool) -> None:
    if not waiting.is_final(state):
        raise errors.CommandError(
            f"task {name} is {state or 'new'}, not over: `kiln cancel {name}` stops it"
        )
    if state == "Success" and not force:
        raise errors.CommandError(f"task {name} has succeeded: --force runs it again")


async def _spawned(s: session.Session, name: str, *, force: bool) -> int:
    query = {"force": "true"} if force else {}
    try:
        answer = await s.ask("POST", s.tasks_path(name, "retry"), query=query)
    except kube_errors.NotFound:
        if (found := await file_names.perhaps(s, name)) is not None:
            job = found.job["id"]
            raise errors.Missing(f"{name} is a file job: write `kiln redrive {job}`") from None
        if await job_names.perhaps(s, name) is not None:
            raise errors.Missing(f"{name} is a Job: write `kiln retry job/{name}`") from None
        raise
    return int(answer["run"])
