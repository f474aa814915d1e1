"""Connections among failed tasks and Jobs: which run again together, and in which order.

No I/O. Used by `kiln retry --failed`. An object names the objects whose end or result it waits for:
a Task in `inputs`, a Job also in `dependsOn` and `withResultOf`. The children of an object are
known only to the journal.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kilnwork.api import job as api_job
from kilnwork.api import kinds as api_kinds
from kilnwork.cli import job_fields

Item = Mapping[str, Any]
Name = tuple[str, str]
"""Kind and name of an object."""

TASK, JOB = api_kinds.TASKS.kind, api_kinds.JOBS.kind
_FAILED_TASK = ("Failed", "Killed")
_FAILED_JOB = (api_job.Phase.FAILED, api_job.Phase.KILLED)


def connected(items: Mapping[Name, Item], start: Iterable[Name]) -> list[Name]:
    """Return the failed objects that are connected with those of `start` through failed objects.

    Each object comes after the objects that it waits for.
    """
    failed = {name: item for name, item in items.items() if has_failed(name[0], item)}
    takers: dict[Name, list[Name]] = {}
    for name, item in failed.items():
        for source in _sources(name[0], item):
            takers.setdefault(source, []).append(name)
    found = set[Name]()
    front = [name for name in start if name in failed]
    while front:
        name = front.pop()
        if name not in found:
            found.add(name)
            around = (*_sources(name[0], failed[name]), *takers.get(name, ()))
            front += [one for one in around if one in failed]
    return list(_ordered(found, failed))


def has_failed(kind: str, item: Item) -> bool:
    """Return whether the requested run of a Task or Job has finished without success."""
    if kind == JOB:
        return job_fields.is_over(item) and job_fields.phase(item) in _FAILED_JOB
    status = item.get("status") or {}
    wanted = int(item.get("spec", {}).get("run", 1))
    return status.get("state") in _FAILED_TASK and int(status.get("run") or 1) >= wanted


def _sources(kind: str, item: Item) -> Iterator[Name]:
    spec = item.get("spec") or {}
    if kind == TASK:
        yield from _of_inputs(spec)
        return
    for one in spec.get("dependsOn") or ():
        yield str(one.get("kind") or JOB), str(one.get("name"))
    template = spec.get("template") or {}
    yield from _of_inputs(template.get("taskTemplate") or {})
    listed = (template.get("parallelism") or {}).get("withResultOf") or {}
    for field, source in (("task", TASK), ("job", JOB)):
        if listed.get(field):
            yield source, str(listed[field])


def _of_inputs(spec: Item) -> Iterator[Name]:
    for one in spec.get("inputs") or ():
        for field, source in (("task", TASK), ("job", JOB)):
            if one.get(field):
                yield source, str(one[field])


def _ordered(found: set[Name], items: Mapping[Name, Item]) -> Iterator[Name]:
    done = set[Name]()
    for first in sorted(found):
        stack = [(first, False)]
        while stack:
            name, ready = stack.pop()
            if ready:
                yield name
            elif name not in done:
                done.add(name)
                stack.append((name, True))
                sources = _sources(name[0], items[name])
                stack += [(one, False) for one in sources if one in found]
