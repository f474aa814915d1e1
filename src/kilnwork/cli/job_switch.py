"""Holding things back and letting them go on: schedules of JobConfigs, Jobs and file jobs.

Used by `kiln enable`, `disable`, `pause` and `resume`.
"""

from collections.abc import Sequence

import click

from kilnwork.api import kinds as api_kinds
from kilnwork.cli import errors, file_jobs, file_names, job_names, job_objects, session, set_objects
from kilnwork.kube import errors as kube_errors


async def switch(s: session.Session, words: Sequence[str], *, disabled: bool) -> None:
    """Each that can be; the others are named, the last of them by the exit."""
    served = api_kinds.JOB_CONFIGS

    async def one(word: str) -> None:
        name = job_names.bare(word, served)
        found = await job_names.get(s, name, served)
        schedule = found["spec"].get("schedule")
        if not schedule:
            raise errors.CommandError(
                f"JobConfig {name} has no schedule: `kiln run-job {name}` runs it"
            )
        state = "disabled" if disabled else "enabled"
        if bool(schedule.get("disabled")) == disabled:
            click.echo(f"{name} is already {state}")
            return
        await job_names.change(s, name, {"schedule": {"disabled": disabled}}, served)
        click.echo(f"{name} is {state}")

    await file_names.each(words, one)


async def suspend(s: session.Session, words: Sequence[str], *, suspended: bool) -> None:
    """Of file jobs, and of Jobs and SyncSets by `KIND/NAME`; each that can be."""

    async def one(word: str) -> None:
        name, of_set = job_names.said(word), set_objects.said(word)
        if name is not None:
            await _suspend_job(s, name, suspended=suspended)
            return
        if of_set is not None:
            click.echo(await set_objects.suspend(s, of_set, suspended=suspended))
            return
        try:
            found = await file_jobs.tell(s, word, "pause" if suspended else "resume")
        except kube_errors.NotFound as error:
            if "/" not in word and await job_names.perhaps(s, word) is not None:
                raise errors.Missing(f"{word} is a Job: write job/{word}") from error
            raise
        click.echo(f"job {found['id']} is {file_jobs.phase(found)}")

    await file_names.each(words, one)


async def _suspend_job(s: session.Session, name: str, *, suspended: bool) -> None:
    found = await job_names.get(s, name)
    if job_objects.is_over(found):
        raise errors.CommandError(f"Job {name} is already {job_objects.phase(found)}")
    await job_names.change(s, name, {"suspend": suspended})
    click.echo(f"Job {name} {'is suspended' if suspended else 'goes on'}")
