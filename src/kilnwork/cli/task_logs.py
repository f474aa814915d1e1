"""Copying of the output of tasks to standard output.

For a task without output it reports what the task waits for. Used by `kiln logs` and by `kiln run
--watch`.
"""

import asyncio
import contextlib
import sys
from collections.abc import Callable

import click

from kilnwork.api import kinds as api_kinds
from kilnwork.api import meta
from kilnwork.api import task as task_api
from kilnwork.cli import errors, object_waits, session
from kilnwork.kit import coroutines
from kilnwork.kube import errors as kube_errors

SAY_S = 1.0
"""Pause between two reads of what a task without output waits for."""


async def of_task(s: session.Session, name: str, query: dict[str, str]) -> None:
    """Copy the log of a task to standard output, once it has one."""
    copy = Copy(s, name, query)
    try:
        await _copy_log(s, name, copy)
    except kube_errors.NotFound:
        if not await _wait_for_start(s, name, follow="follow" in query):
            raise
        await _copy_log(s, name, copy)


async def _copy_log(s: session.Session, name: str, copy: "Copy") -> None:
    """Copy the log of a task; as long as it is empty, report what the task waits for."""
    if not copy.follows:
        await copy.run()
        if not copy.copied:
            await _report_wait(s, name, "")
        return
    background = coroutines.BackgroundWork("logs")
    background.start("waiting", _report_waits(s, name, copy))
    try:
        await copy.run()
    finally:
        await background.stop()


async def _report_waits(s: session.Session, name: str, copy: "Copy") -> None:
    """Report what the task waits for until there is output.

    Errors are ignored, because the copy reports them.
    """
    last_text = ""
    while not copy.copied:
        await asyncio.sleep(SAY_S)
        with contextlib.suppress(*errors.SERVER_ERRORS):
            last_text = await _report_wait(s, name, last_text)


async def _report_wait(s: session.Session, name: str, last_text: str) -> str:
    """Print what a waiting task waits for, unless the text equals `last_text`; return the text."""
    found = await s.get_json(s.tasks_path(name))
    if found["state"] not in (task_api.State.PENDING, task_api.State.STAGING):
        return last_text
    text = object_waits.described({"status": found})
    if text != last_text:
        click.echo(f"task {name} has printed nothing yet: it is {text}", err=True)
    return text


async def _wait_for_start(s: session.Session, name: str, *, follow: bool) -> bool:
    """Wait until a Task object that the journal does not know yet has started; then return True.

    Return False if there is no such object. Raises `errors.Missing` if the Task has finished
    without output, and CommandError if it has not started and `follow` is false.
    """
    subject = object_waits.WaitSubject(api_kinds.TASKS, name, s.one_namespace())
    try:
        found = await s.ask("GET", s.path(subject.resource, name, namespace=subject.namespace))
    except kube_errors.NotFound:
        return False
    if object_waits.final(found):
        raise errors.Missing(_explain_missing(name, found))
    if not follow:
        raise errors.CommandError(f"nothing was printed yet: it is {object_waits.described(found)}")
    text = f"waiting for task {name} to start"
    await object_waits.until(s, subject, _begun, text=text)
    return True


def _explain_missing(name: str, found: meta.JsonObject) -> str:
    """Return the reason why a finished task has no output.

    It never ran, or another journal has the output.
    """
    if not (found.get("status") or {}).get("attempts"):
        return f"task {name} printed nothing, it never ran: {object_waits.described(found)}"
    return (
        f"the output of task {name} is gone: the journal that held it was lost or replaced. "
        f"The task is {object_waits.described(found)}"
    )


def _begun(found: meta.JsonObject | None) -> bool:
    if found is None:
        raise errors.Missing("the task was deleted before it started")
    return bool((found.get("status") or {}).get("attempts")) or object_waits.final(found)


class Copy:
    """Copier of a task's log as it is written; a repeated copy omits what was copied before.

    `write`: where to write; default: standard output.
    """

    def __init__(
        self,
        s: session.Session,
        name: str,
        query: dict[str, str],
        *,
        write: Callable[[bytes], None] | None = None,
    ) -> None:
        self._write = write or _print
        self._session = s
        self._path = s.tasks_path(name, "logs")
        self._query = query
        self.copied = 0
        """Bytes."""

    @property
    def follows(self) -> bool:
        """Return whether the copy continues until the task finishes."""
        return "follow" in self._query

    async def run(self) -> None:
        """Copy the log until the end of the response. Raises KubeError or CommandError."""
        skip = self.copied
        found = self._session.stream(self._path, query=self._query)
        async with contextlib.aclosing(found) as output:
            async for some in output:
                fresh = some[skip:]
                skip = max(0, skip - len(some))
                self.copied += len(fresh)
                self._write(fresh)


def _print(some: bytes) -> None:
    sys.stdout.buffer.write(some)
    sys.stdout.buffer.flush()
