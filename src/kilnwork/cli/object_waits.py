"""Waits for an object until a task ends, a state or condition is reached, or it is deleted.

Used by the commands that wait for objects, such as `wait`, `cancel --wait`, `run --watch`, `delete`
and `scale`. Watches the object, so changes are seen at once.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kilnwork.api import api_resources, kinds, meta, task
from kilnwork.cli import child_progress, errors, session, wait_notice
from kilnwork.kube import errors as kube_errors

_PAUSE_S = 0.5
"""Pause before a watch is opened again after it failed."""

Test = Callable[[meta.JsonObject | None], bool]
"""Returns whether the object, or None if it does not exist, is as wanted; may raise to stop
waiting."""


@dataclass(frozen=True, slots=True)
class WaitSubject:
    """The object to wait for, by kind, name and namespace."""

    resource: api_resources.Resource
    name: str
    namespace: str


async def versions(
    s: session.Session, subject: WaitSubject
) -> AsyncGenerator[meta.JsonObject | None, None]:
    """Yield an object now and after every change; None while it does not exist. Never ends.

    Close it early only with `contextlib.aclosing`.
    """
    path = s.path(subject.resource, namespace=subject.namespace)
    query = {"fieldSelector": f"metadata.name={subject.name}"}
    while True:
        page = await s.ask("GET", path, query=query)
        yield page["items"][0] if page["items"] else None
        version = page["metadata"]["resourceVersion"]
        watch = s.changes(path, query={**query, "resourceVersion": version})
        try:
            async with contextlib.aclosing(watch):
                async for change in watch:
                    if change["type"] != "BOOKMARK":
                        yield None if change["type"] == "DELETED" else change["object"]
        except kube_errors.Expired:
            continue
        except kube_errors.Unavailable:
            await asyncio.sleep(_PAUSE_S)


async def until(
    s: session.Session,
    subject: WaitSubject,
    test: Test,
    *,
    text: str,
    timeout_s: float | None = None,
    where: Callable[[meta.JsonObject | None], str] | None = None,
) -> meta.JsonObject | None:
    """Wait until `test` is true of an object and return the object.

    Raises `errors.TimedOut` after `timeout_s`. The first read is not subject to the timeout, so
    that 0 checks once. `where`: describes the object while waiting; default: `described`.
    """
    last = ""
    is_task = subject.resource == kinds.TASKS
    children = child_progress.children(s, subject.name) if is_task else None
    try:
        async with (
            asyncio.timeout(None) as limit,
            wait_notice.waiting(text) as waiting,
            contextlib.aclosing(versions(s, subject)) as found_ones,
        ):
            async for found in found_ones:
                if test(found):
                    return found
                last = (where or described)(found)
                bar = "" if children is None else await children.look(found or {})
                waiting.say(bar or f"{text}: {last}")
                if timeout_s == 0:
                    raise TimeoutError
                if timeout_s is not None and limit.when() is None:
                    limit.reschedule(asyncio.get_running_loop().time() + timeout_s)
    except TimeoutError as error:
        raise errors.TimedOut(f"{text}: not within {timeout_s:g} s; {last}") from error
    raise AssertionError("versions() never ends")


def described(found: meta.JsonObject | None) -> str:
    """Return the state of an object in a few words."""
    if found is None:
        return "it does not exist"
    status = found.get("status") or {}
    state = status.get("state") or status.get("phase") or ""
    if state:
        reason, message = status.get("reason", ""), status.get("message", "")
        text = state if reason in ("", state) else f"{state} ({reason})"
        return f"{text}: {message}" if message else text
    conditions = [
        f"{c['type']}={c['status']} ({c.get('reason', '')})" for c in status.get("conditions") or ()
    ]
    return ", ".join(conditions) or "it has no status yet"


_FINAL = frozenset(state.value for state in task.State if state.final)


def is_final(state: str) -> bool:
    """Return whether a task state is final: Success, Failed or Killed."""
    return state in _FINAL


def final(found: meta.JsonObject | None) -> bool:
    """Return whether a Task has finished, and `spec.run` does not request a later run.

    A Task that has succeeded runs again only if the annotation `kilnwork.dev/force-run` permits it.
    """
    live = found or {}
    status = live.get("status") or {}
    state, asked = status.get("state", ""), (live.get("spec") or {}).get("run", 1)
    if asked <= max(status.get("run", 1), 1):
        return is_final(state)
    return state == task.State.SUCCESS and not _is_forced(live, asked)


def _is_forced(live: meta.JsonObject, run: int) -> bool:
    notes = live.get("metadata", {}).get("annotations") or {}
    return bool(notes.get(task.FORCE_ANNOTATION) == str(run))


async def wait_until_final(
    s: session.Session, name: str, *, timeout_s: float | None, run: int = 0
) -> str:
    """Wait until a task finishes and return its state, or "Deleted" if its object was deleted.

    The task may be an object or only in the journal. `run`: wait until this or a later run has
    finished.
    """
    subject = WaitSubject(kinds.TASKS, name, s.one_namespace())
    path = s.path(kinds.TASKS, name, namespace=subject.namespace)
    text = f"waiting for task {name} to stop"

    def over(found: meta.JsonObject | None) -> bool:
        if found is None:
            return True
        return final(found) and found["status"].get("run", 0) >= run

    try:
        await s.ask("GET", path)
    except kube_errors.NotFound:
        return await _journal(s, name, text=text, timeout_s=timeout_s, run=run)
    found = await until(s, subject, over, text=text, timeout_s=timeout_s)
    return "Deleted" if found is None else str(found["status"]["state"])


def _standing(found: Mapping[str, Any]) -> str:
    """Return a text on the state and progress of a task of the journal."""
    progress = found.get("progress") or {}
    parts = [found["state"]]
    if progress.get("fraction") is not None:
        parts.append(f"{progress['fraction']:.0%}")
    if progress.get("message"):
        parts.append(str(progress["message"]))
    return ", ".join(parts)


async def _journal(
    s: session.Session, name: str, *, text: str, timeout_s: float | None, run: int
) -> str:
    children = child_progress.children(s, name)
    query = {"wait": "20" if children is None else f"{child_progress.LOOK_S:.0f}"}
    try:
        async with asyncio.timeout(timeout_s), wait_notice.waiting(text) as waiting:
            while True:
                found = await s.ask("GET", s.tasks_path(name), query=query)
                if is_final(found["state"]) and found["run"] >= run:
                    return str(found["state"])
                if children is not None:
                    bar = await children.look({"status": found})
                    waiting.say(bar or f"{text}: {_standing(found)}")
    except TimeoutError as error:
        raise errors.TimedOut(f"{text}: not within {timeout_s:g} s") from error
