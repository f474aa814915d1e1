"""Suspending and resuming: tasks, Jobs, SyncSets, file jobs and the schedules of JobConfigs.

Used by `kiln enable`, `disable`, `suspend` and `resume`.
"""

from collections.abc import Sequence

import click

from kilnwork.api import kinds as api_kinds
from kilnwork.cli import (
    errors,
    file_job_lookup,
    file_jobs,
    job_fields,
    job_lookup,
    kinds,
    object_waits,
    session,
    sync_set_requests,
)
from kilnwork.kit import http_types
from kilnwork.kube import errors as kube_errors


async def set_disabled(s: session.Session, words: Sequence[str], *, disabled: bool) -> None:
    """Enable or disable the schedule of each named JobConfig.

    Prints the errors and raises the last one.
    """
    served = api_kinds.JOB_CONFIGS

    async def one(word: str) -> None:
        name = job_lookup.plain_name(word, served)
        found = await job_lookup.get(s, name, served)
        schedule = found["spec"].get("schedule")
        if not schedule:
            raise errors.CommandError(
                f"JobConfig {name} has no schedule: `kiln run-job {name}` runs it"
            )
        state = "disabled" if disabled else "enabled"
        if bool(schedule.get("disabled")) == disabled:
            click.echo(f"{name} is already {state}")
            return
        await job_lookup.patch_spec(s, name, {"schedule": {"disabled": disabled}}, served)
        click.echo(f"{name} is {state}")

    await file_job_lookup.for_each(words, one)


async def suspend(s: session.Session, words: Sequence[str], *, suspended: bool) -> None:
    """Suspend or resume each named task, file job, Job or SyncSet.

    Prints the errors and raises the last one.
    """

    async def task(word: str) -> None:
        await _suspend_task(s, kinds.task_name(word), suspended=suspended)

    async def file_job(found: file_jobs.Job) -> None:
        after = await file_jobs.post_action(s, found["id"], "suspend" if suspended else "resume")
        click.echo(f"job {after['id']} is {file_jobs.phase(after)}")

    async def job(found: job_lookup.Item) -> None:
        await _suspend_job(s, found, suspended=suspended)

    async def one(word: str) -> None:
        of_set = sync_set_requests.explicit_name(word)
        if of_set is not None:
            click.echo(await sync_set_requests.suspend(s, of_set, suspended=suspended))
            return
        await job_lookup.call_for_named(s, word, task=task, file_job=file_job, job=job)

    await file_job_lookup.for_each(words, one)


async def _suspend_task(s: session.Session, name: str, *, suspended: bool) -> None:
    path = s.path(api_kinds.TASKS, name, namespace=s.one_namespace())
    try:
        live = await s.ask("GET", path)
    except kube_errors.NotFound:
        found = await s.ask("POST", s.tasks_path(name, "suspend" if suspended else "resume"))
        state = str(found["state"])
    else:
        state = str((live.get("status") or {}).get("state", ""))
        was_suspended = bool(live["spec"].get("suspend"))
        if not object_waits.is_final(state) or (was_suspended and not suspended):
            change = {"spec": {"suspend": suspended}}
            await s.ask("PATCH", path, body=change, content_type=http_types.MERGE_PATCH)
        if object_waits.is_final(state) and was_suspended and not suspended:
            click.echo(sync_set_requests.resumed_ended(f"task {name}", state, retry=name))
            return
    if object_waits.is_final(state):
        raise errors.CommandError(f"task {name} is already {state}")
    click.echo(f"{name} {'is suspended' if suspended else 'is resumed'}")


async def _suspend_job(s: session.Session, found: job_lookup.Item, *, suspended: bool) -> None:
    name = found["metadata"]["name"]
    if job_fields.is_over(found):
        if not suspended and job_fields.spec(found).get("suspend"):
            await job_lookup.patch_spec(s, name, {"suspend": False})
            phase = job_fields.phase(found)
            click.echo(sync_set_requests.resumed_ended(f"Job {name}", phase, retry=f"job/{name}"))
            return
        raise errors.CommandError(f"Job {name} is already {job_fields.phase(found)}")
    await job_lookup.patch_spec(s, name, {"suspend": suspended})
    click.echo(f"Job {name} {'is suspended' if suspended else 'is resumed'}")
