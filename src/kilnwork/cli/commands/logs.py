"""`kiln logs`: what a task printed, from the journal's log files; they outlive Pods and objects.

`kiln run --watch` copies its task's output with `Copy`.
"""

import asyncio
import contextlib
import sys

import click

from kilnwork.api import kinds as api_kinds
from kilnwork.api import meta
from kilnwork.api import task as task_api
from kilnwork.cli import completing, errors, file_jobs, file_names, kinds, options, session, waiting
from kilnwork.kit import coroutines
from kilnwork.kube import errors as kube_errors

SAY_S = 1.0
"""Between looks for what a task waits for that has printed nothing."""


@click.command()
@click.argument("task", metavar="NAME|ID", shell_complete=completing.subjects)
@options.target
@click.option("-f", "--follow", is_flag=True, help="Go on until the task is over.")
@click.option("--run", type=click.IntRange(min=1), help="Of this run; default the newest.")
@click.option("--attempt", type=click.IntRange(min=1), help="Of this attempt; default the newest.")
@click.option("--tail", type=click.IntRange(min=0), help="Only the last N lines.")
def command(
    task: str,
    follow: bool,  # noqa: FBT001
    run: int | None,
    attempt: int | None,
    tail: int | None,
) -> None:
    """Print what a task printed, standard output and error in one.

    \b
    kiln logs -f hello
    kiln logs --tail 20 0199a0d2-7c1e-7d35-8a51-0d4c5c1f2a10

    With -f and no --attempt the next attempts follow, until the task is over. Of a task that waits
    it is said what for. Of a file job, by id
    or name, a part is shown: the first that failed, else the first; NAME-3 is part 3.
    """
    asked = {"run": run, "attempt": attempt, "tail": tail}
    query = {key: str(value) for key, value in asked.items() if value is not None}
    if follow:
        query["follow"] = "true"
    session.run(
        lambda s: file_names.either(
            s,
            task,
            task=lambda name: _logs(s, kinds.task_name(name), query),
            job=lambda job: _of_job(s, job, query),
        )
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
    await _logs(s, f"{of}-{number}", query)


async def _logs(s: session.Session, name: str, query: dict[str, str]) -> None:
    copy = Copy(s, name, query)
    try:
        await _copied(s, name, copy)
    except kube_errors.NotFound:
        if not await _may_come(s, name, follow="follow" in query):
            raise
        await _copied(s, name, copy)


async def _copied(s: session.Session, name: str, copy: "Copy") -> None:
    """Copy it; of a task that has printed nothing say what it waits for."""
    if not copy.follows:
        await copy.run()
        if not copy.copied:
            await _say_wait(s, name, "")
        return
    crew = coroutines.Crew("logs")
    crew.start("waiting", _say_waits(s, name, copy))
    try:
        await copy.run()
    finally:
        await crew.stop()


async def _say_waits(s: session.Session, name: str, copy: "Copy") -> None:
    """Until something is printed. What goes wrong here, the copy says better."""
    said = ""
    while not copy.copied:
        await asyncio.sleep(SAY_S)
        with contextlib.suppress(*errors.SERVER_ERRORS):
            said = await _say_wait(s, name, said)


async def _say_wait(s: session.Session, name: str, said: str) -> str:
    """What a task waits for that does not run, unless that was `said`; what is said now."""
    found = await s.get_json(s.tasks_path(name))
    if found["state"] not in (task_api.State.PENDING, task_api.State.STAGING):
        return said
    text = waiting.described({"status": found})
    if text != said:
        click.echo(f"task {name} has printed nothing yet: it is {text}", err=True)
    return text


async def _may_come(s: session.Session, name: str, *, follow: bool) -> bool:
    """True once a Task object that the journal does not know yet has been started."""
    subject = waiting.Subject(api_kinds.TASKS, name, s.one_namespace())
    try:
        found = await s.ask("GET", s.path(subject.resource, name, namespace=subject.namespace))
    except kube_errors.NotFound:
        return False
    if waiting.final(found):
        raise errors.Missing(_gone(name, found))
    if not follow:
        raise errors.CommandError(f"nothing was printed yet: it is {waiting.described(found)}")
    text = f"waiting for task {name} to start"
    await waiting.until(s, subject, _begun, text=text)
    return True


def _gone(name: str, found: meta.JsonObject) -> str:
    """Why a task that is over has no output: it never ran, or its journal is not this one."""
    if not (found.get("status") or {}).get("attempts"):
        return f"task {name} printed nothing, it never ran: {waiting.described(found)}"
    return (
        f"the output of task {name} is gone: the journal that held it was lost or replaced. "
        f"The task is {waiting.described(found)}"
    )


def _begun(found: meta.JsonObject | None) -> bool:
    if found is None:
        raise errors.Missing("the task was deleted before it started")
    return bool((found.get("status") or {}).get("attempts")) or waiting.final(found)


class Copy:
    """Copies a task's log to standard output as it comes, and again if need be: what was copied
    before is left out then."""

    def __init__(self, s: session.Session, name: str, query: dict[str, str]) -> None:
        self._session = s
        self._path = s.tasks_path(name, "logs")
        self._query = query
        self.copied = 0
        """Bytes."""

    @property
    def follows(self) -> bool:
        """It goes on until the task is over."""
        return "follow" in self._query

    async def run(self) -> None:
        """Until the end of the answer. Raises KubeError or CommandError."""
        skip = self.copied
        found = self._session.stream(self._path, query=self._query)
        async with contextlib.aclosing(found) as output:
            async for some in output:
                fresh = some[skip:]
                skip = max(0, skip - len(some))
                self.copied += len(fresh)
                sys.stdout.buffer.write(fresh)
                sys.stdout.buffer.flush()
