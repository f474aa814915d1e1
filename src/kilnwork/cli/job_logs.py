"""Output of the tasks of a Job.

The output of one index is printed unchanged, that of several with the index before each line. Used
by `kiln logs job/NAME`, `kiln result job/NAME` and `set_logs`.
"""

import asyncio
import contextlib
import sys
from collections.abc import Mapping
from typing import Any

import click
import msgspec

from kilnwork.api import job, job_indexes
from kilnwork.api import kinds as api_kinds
from kilnwork.cli import (
    errors,
    job_fields,
    job_lists,
    job_lookup,
    object_waits,
    session,
    task_logs,
)
from kilnwork.jobs import index_job_types
from kilnwork.kit import coroutines
from kilnwork.kube import errors as kube_errors

MAX_SHOWN = 20
"""Maximum number of indexes that are shown, failed ones first."""

_LOOK_S = 0.5
"""Pause between two checks for newly started indexes."""

_State = index_job_types.IndexState

_NO_TASK = _State.WAITING


class Prefixed:
    """Writer of whole lines with a prefix to standard output.

    `close` writes an unfinished last line.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode()
        self._rest = b""

    def write(self, some: bytes) -> None:
        *lines, self._rest = (self._rest + some).split(b"\n")
        if lines:
            sys.stdout.buffer.write(b"".join(self._prefix + line + b"\n" for line in lines))
            sys.stdout.buffer.flush()

    def close(self) -> None:
        if self._rest:
            self.write(b"\n")


async def show(
    s: session.Session, found: job_lookup.Item, query: Mapping[str, str], *, index: str | None
) -> None:
    """Print the output of one index of a Job, or of all indexes up to MAX_SHOWN.

    With `follow` in the query, prints output while it is written.
    """
    name, total = found["metadata"]["name"], job_fields.counts(found).total
    if index is not None:
        await task_logs.of_task(s, await find_task(s, found, index), dict(query))
    elif total == 1 or not _parallelism(found):
        await _only(s, found, query)
    elif "follow" in query:
        await _follow(s, name, query)
    else:
        await _all(s, found, query)


def _parallelism(found: Mapping[str, Any]) -> Mapping[str, Any]:
    return (job_fields.spec(found).get("template") or {}).get("parallelism") or {}


async def _only(s: session.Session, found: job_lookup.Item, query: Mapping[str, str]) -> None:
    """Print the output of a Job with one index.

    With `follow` in the query, waits until the Job has started.
    """
    name = found["metadata"]["name"]
    if "follow" in query:
        subject = object_waits.WaitSubject(api_kinds.JOBS, name, s.one_namespace())
        text = f"waiting for Job {name} to start"
        found = await object_waits.until(s, subject, _begun, text=text) or found
    item = await find_index(s, name, 0)
    nothing = errors.CommandError(f"nothing was printed: {job_fields.sentence(found)}")
    if item is None or item["state"] == _NO_TASK:
        raise nothing
    try:
        await task_logs.of_task(s, str(item["task"]), dict(query))
    except kube_errors.NotFound as error:
        raise nothing from error


def _begun(found: job_lookup.Item | None) -> bool:
    if found is None:
        raise errors.Missing("the Job was deleted before it started")
    return bool(job_fields.status(found).get("createdTasks")) or job_fields.is_over(found)


async def find_task(s: session.Session, found: job_lookup.Item, index: str) -> str:
    """Return the id of the task of an index of a Job, found by label or number with one request.

    Raises `errors.Missing`, or CommandError if the index still waits and so has no task.
    """
    name, total = found["metadata"]["name"], job_fields.counts(found).total
    number = _number(_parallelism(found), index, total)
    item = None if number is None else await find_index(s, name, number)
    if item is None:
        raise errors.Missing(
            f"Job {name} has no index {index!r} among its {total:,}: `kiln jobs {name} --indexes`"
        )
    if item["state"] == _NO_TASK:
        raise errors.CommandError(f"index {index} of Job {name} has printed nothing yet: it waits")
    return str(item["task"])


async def find_index(s: session.Session, name: str, number: int) -> Mapping[str, Any] | None:
    """Return the manager's record of an index of a Job, or None if there is no such index.

    `number`: counted from 0. The record has the id of the task: its name could also be that of a
    Task that a user has made.
    """
    after = {} if number == 0 else {"after": str(number - 1)}
    page = await s.ask("GET", job_lists.indexes_path(s, name), query={"limit": "1", **after})
    return next((item for item in page["items"] if item["number"] == number), None)


def _number(parallelism: Mapping[str, Any], index: str, total: int) -> int | None:
    """Return the number of the index with this label or number, or None if there is none.

    Labels follow from the index set of the Job, except for a list that a task returned: only its
    length is known here.
    """
    given = msgspec.convert(parallelism, job.Parallelism)
    if given.with_result_of is not None:
        given = job.Parallelism(with_count=max(total, 1))
    try:
        return job_indexes.IndexSet(given).find(index)
    except job_indexes.UnknownIndex:
        return None


async def _all(s: session.Session, found: job_lookup.Item, query: Mapping[str, str]) -> None:
    name, total = found["metadata"]["name"], job_fields.counts(found).total
    items = await _started(s, name, limit=MAX_SHOWN)
    chosen = sorted(items, key=lambda item: (item["state"] != _State.FAILED, item["number"]))
    del chosen[MAX_SHOWN:]
    if not chosen:
        click.echo(f"nothing was printed yet: {job_fields.sentence(found)}", err=True)
    for item in chosen:
        await _copy(s, item, query)
    if total > len(chosen) > 0:
        click.echo(
            f"these are {len(chosen)} of {total:,} indexes: `kiln logs job/{name} --index N` "
            "shows another",
            err=True,
        )


async def _started(s: session.Session, name: str, *, limit: int) -> list[dict[str, Any]]:
    """Return the indexes of a Job that have a task, at most `limit` of each state.

    States are asked for in the order in which an index has them, so that an index whose state
    changes meanwhile is not missed.
    """
    found: dict[int, dict[str, Any]] = {}
    for state in _State:
        if state != _NO_TASK:
            listed = job_lists.list_indexes(s, name, state=state, limit=limit)
            async with contextlib.aclosing(listed) as each:
                found.update({int(item["number"]): item async for item in each})
    return list(found.values())


async def _copy(s: session.Session, item: Mapping[str, Any], query: Mapping[str, str]) -> None:
    """Print the output of one index; print nothing if the index has no task."""
    lines = Prefixed(f"[{item['label']}] ")
    copy = task_logs.Copy(s, str(item["task"]), dict(query), write=lines.write)
    with contextlib.suppress(kube_errors.NotFound):
        await copy.run()
    lines.close()


async def _follow(s: session.Session, name: str, query: Mapping[str, str]) -> None:
    """Print the output of up to MAX_SHOWN indexes that have a task, until the Job finishes.

    When more have one at a time, those that run go first.
    """
    background, warned, last_text = coroutines.BackgroundWork("logs"), False, ""
    followed: dict[int, asyncio.Task[Any]] = {}
    try:
        while True:
            found = await job_lookup.get(s, name)
            over = job_fields.is_over(found)
            if not followed and (text := job_fields.sentence(found)) != last_text:
                click.echo(f"nothing was printed yet: {text}", err=True)
                last_text = text
            items = [] if warned else await _started(s, name, limit=MAX_SHOWN + 1)
            for item in sorted(items, key=lambda i: (i["state"] != _State.RUNNING, i["number"])):
                number = int(item["number"])
                if number in followed:
                    continue
                if len(followed) < MAX_SHOWN:
                    copying = _copy(s, item, query)
                    followed[number] = background.start(f"index {number}", copying)
                elif not warned:
                    warned = True
                    another = f"`kiln logs -f job/{name} --index N` follows another"
                    click.echo(f"only {MAX_SHOWN} indexes are followed: {another}", err=True)
            if over:
                await asyncio.gather(*followed.values())
                return
            await asyncio.sleep(_LOOK_S)
    finally:
        await background.stop()
