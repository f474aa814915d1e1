"""Lists of the tasks in the journal, declared and spawned, as `/v1` serves them.

Used by completion, by the commands that show tasks without reading Kubernetes objects (`tasks`,
`get --spawned`, `why`), and by `child_progress` and `function_totals`.
"""

import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import click

from kilnwork.api import reasons
from kilnwork.cli import file_jobs, output_formats, session
from kilnwork.kit import clock

Item = dict[str, Any]
"""One document of `/v1`."""

LIMIT = 50
"""Default number of tasks in a table; -o json, yaml and name print all."""

WIDTH = 100
"""Maximum width of a table."""

SHORT_ID = 8
"""Number of digits at the end of an id by which tables and commands name a task.

Among a million other tasks one has the same digits with a probability of 1 in 4,000; commands then
name both.
"""

Measure = Literal["took", "cpu", "peak"]
"""Sort key of tasks: seconds until the end or now, CPU seconds, or peak memory."""

_COLUMNS = ("ID", "NAME", "STATE", "ATTEMPTS", "AGE", "TOOK", "PARENT")
_FLEXIBLE = ("NAME", "PARENT", "STATE")
_WIDE = {
    "FUNCTION": "function",
    "CLUSTER": "clusterName",
    "RUN": "run",
    "LOSSES": "losses",
    "CPU": "cpuSeconds",
    "PEAK": "peakMemoryBytes",
    "WORKER": "podName",
    "CREATED": "creationTime",
    "MESSAGE": "message",
}
_PLAIN_REASONS = ("", "Started", "Succeeded")
"""Reasons that add nothing to the state."""


class TaskPage(NamedTuple):
    """The first tasks of a list.

    `more`: the number of further tasks, or None if it is unknown and not zero.
    """

    items: list[Item]
    more: int | None = 0


async def list_tasks(
    s: session.Session, *, wanted: Mapping[str, str], limit: int | None = None
) -> AsyncIterator[Item]:
    """Yield at most `limit` tasks of the session's namespace, newest first.

    Under `-A` the tasks are those of all namespaces.
    """
    async for page in _pages(s, wanted, limit):
        for item in page["items"]:
            yield item


async def newest(s: session.Session, *, wanted: Mapping[str, str], limit: int) -> TaskPage:
    """Return the newest tasks and the number of further tasks."""
    found = [item async for item in list_tasks(s, wanted=wanted, limit=limit + 1)]
    if len(found) <= limit:  # a further task would mean that there are more
        return TaskPage(found)
    total = await _total(s, wanted)
    return TaskPage(found[:limit], None if total is None else max(1, total - limit))


async def sort_by_measure(
    items: AsyncIterator[Item], *, by: Measure, limit: int, now: float
) -> TaskPage:
    """Return the tasks with the highest values of a measure, then the tasks without a value.

    Tasks with equal values are sorted newest first. `limit` 0: all.
    """

    def rank(item: Item) -> float:
        found = took_s(item, now=now) if by == "took" else item.get(_MEASURES[by])
        return math.inf if found is None else -found

    kept: list[Item] = []
    number = 0
    async for item in items:
        kept.append(item)
        number += 1
        if limit and len(kept) > limit + session.PAGE:
            kept = sorted(kept, key=rank)[:limit]
    kept.sort(key=rank)
    return TaskPage(kept[: limit or None], max(0, number - limit) if limit else 0)


_MEASURES = {"cpu": _WIDE["CPU"], "peak": _WIDE["PEAK"]}


async def _total(s: session.Session, wanted: Mapping[str, str]) -> int | None:
    """Return the number of tasks in a list.

    None for the children of a task, for which there are no counts.
    """
    if "parent" in wanted:
        return None
    counts = await s.get_json(_path(s, "task-counts"))
    return sum(int(one["number"]) for one in counts["items"] if _counts(one, wanted))


def _counts(one: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    """Return whether an entry of the task counts is about tasks that the query `wanted` selects."""
    declared = {"true": True, "false": False}.get(wanted.get("declared", ""))
    return (
        wanted.get("state") in (None, one["state"])
        and wanted.get("function") in (None, one.get("function"))
        and declared in (None, one["declared"])
    )


async def _pages(
    s: session.Session, wanted: Mapping[str, str], limit: int | None
) -> AsyncIterator[dict[str, Any]]:
    query, left = dict(wanted), limit
    while left is None or left > 0:
        query["limit"] = str(session.PAGE if left is None else min(left, session.PAGE))
        page = await s.ask("GET", _path(s, "tasks"), query=query)
        yield page
        left = None if left is None else left - len(page["items"])
        if not page.get("continue"):
            return
        query["continue"] = page["continue"]


async def show(
    s: session.Session,
    wanted: Mapping[str, str],
    form: str | None,
    *,
    limit: int | None,
    headers: bool,
    sort: Measure | None = None,
) -> None:
    """Print the newest tasks of a list, or those with the highest values of the measure `sort`.

    `limit`: None for `LIMIT` in a table and all otherwise, 0 for all.
    """
    if limit is None and form in (None, "wide"):
        limit = LIMIT
    if sort is not None:
        every = list_tasks(s, wanted=wanted)
        found = await sort_by_measure(every, by=sort, limit=limit or 0, now=s.clock.wall())
    elif limit:
        found = await newest(s, wanted=wanted, limit=limit)
    elif form == "name":  # printed as they arrive, however many
        await _print_ids(s, wanted)
        return
    else:
        found = TaskPage([item async for item in list_tasks(s, wanted=wanted)])
    if form in (None, "wide"):
        await _show_table(s, found.items, wide=form == "wide", headers=headers)
    else:
        await _print_whole(s, found.items, form)
    if found.more != 0:
        number = "" if found.more is None else f"{found.more:,} "
        click.echo(f"… and {number}more (--limit 0 for all)", err=True)


async def _print_ids(s: session.Session, wanted: Mapping[str, str]) -> None:
    number = 0
    async for item in list_tasks(s, wanted=wanted):
        click.echo(item["id"])
        number += 1
    if not number:
        await s.check_namespace()


async def _print_whole(s: session.Session, items: Sequence[Item], form: str | None) -> None:
    if not items:
        await s.check_namespace()
    if form != "name":
        click.echo(output_formats.document({"items": items}, form), nl=False)
        return
    for item in items:
        click.echo(item["id"])


async def _show_table(
    s: session.Session, items: Sequence[Item], *, wide: bool, headers: bool
) -> None:
    if not items:
        await s.say_nothing_found("nothing found")
        return
    everywhere = s.target.all_namespaces
    lines = table(items, now=s.clock.wall(), wide=wide, namespaces=everywhere)
    for line in lines if headers else lines[1:]:
        click.echo(line)


def _path(s: session.Session, what: str) -> str:
    if s.target.all_namespaces:
        return f"/v1/{what}"
    return f"/v1/namespaces/{session.quoted(s.namespace)}/{what}"


def table(
    items: Sequence[Item], *, now: float, wide: bool = False, namespaces: bool = False
) -> list[str]:
    """Return the lines of a table of tasks, at most `WIDTH` characters long unless `wide`.

    `namespaces`: whether the first column is the namespace.
    """
    shown = short_ids([item["id"] for item in items])
    header: tuple[str, ...] = _COLUMNS
    rows = [_row(item, shown, now=now) for item in items]
    if wide:
        header = (*header, *_WIDE)
        rows = [
            (item["id"], *row[1:], *(_wide(item, member) for member in _WIDE.values()))
            for item, row in zip(items, rows, strict=True)
        ]
    if namespaces:
        header = ("NAMESPACE", *header)
        rows = [(item["namespace"], *row) for item, row in zip(items, rows, strict=True)]
    if wide:
        return output_formats.columns(header, rows)
    return output_formats.fitted(header, rows, width=WIDTH, flexible=_FLEXIBLE)


def _wide(item: Item, member: str) -> object:
    """Return a member of a task as a table with `-o wide` shows it.

    The resource use of an attempt becomes text for people; other members are unchanged.
    """
    value = item.get(member)
    if value is None:
        return None
    if member == "cpuSeconds":
        return f"{value:.1f}s"
    return file_jobs.size_text(value) if member == "peakMemoryBytes" else _plain(value)


def _plain(value: object) -> object:
    return None if value == "" else value


def short_ids(known: Sequence[str]) -> dict[str, str]:
    """Return for each task id the digits at its end that distinguish it from the other ids.

    There are at least `SHORT_ID` digits.
    """
    digits = {one: one.replace("-", "") for one in known}
    shown: dict[str, str] = {}
    length = SHORT_ID
    while len(shown) < len(digits):
        ends: dict[str, list[str]] = {}
        for one in digits.keys() - shown.keys():
            ends.setdefault(digits[one][-length:], []).append(one)
        shown |= {same[0]: end for end, same in ends.items() if len(same) == 1 or length >= 32}
        length += 1
    return shown


def short_id(one: str) -> str:
    """Return the last `SHORT_ID` digits of a task id."""
    return one.replace("-", "")[-SHORT_ID:]


def _row(item: Item, shown: Mapping[str, str], *, now: float) -> tuple[object, ...]:
    took = took_s(item, now=now)
    created = item.get("creationTime")
    return (
        shown[item["id"]],
        name(item),
        state(item),
        item.get("attempts", 0),
        None if created is None else output_formats.short_time(now - clock.parse_rfc3339(created)),
        None if took is None else output_formats.took(took),
        parent(item),
    )


def name(item: Item) -> str | None:
    """Return the name of a task or, if it has none, the function that it calls."""
    own = item.get("name")
    return own if own and own != item["id"] else item.get("function")


def state(item: Item) -> str:
    """Return the state of a task, with the reason if that adds information."""
    found, reason = str(item.get("state", "")), item.get("reason") or ""
    if item.get("suspended"):  # a running one has its own reason
        reason = reasons.Reason.SUSPENDED.value
    return found if reason in (*_PLAIN_REASONS, found) else f"{found} ({reason})"


def took_s(item: Item, *, now: float) -> float | None:
    """Return the seconds from the first start of a task's newest run to its end, or until now.

    None before the first start.
    """
    started, finished = item.get("startTime"), item.get("finishTime")
    if started is None:
        return None
    end = now if finished is None else clock.parse_rfc3339(finished)
    return max(0.0, end - clock.parse_rfc3339(started))


def parent(item: Item) -> str | None:
    """Return the name of a task's parent, or the parent's function and short id.

    Only the short id once the parent was deleted.
    """
    task = (item.get("parent") or "").partition("/")[0]
    if not task:
        return None
    own, function = item.get("parentName"), item.get("parentFunction")
    if own and own != task:
        return str(own)
    short = short_id(task)
    return f"{function.rpartition(':')[2]} ({short})" if function else short


def traceback(error: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the lines of a Python error in the form in which Python prints it, the cause first."""
    if error is None:
        return
    cause = error.get("cause")
    if cause:
        yield from traceback(cause)
        yield from ("", "The above exception was the direct cause of the following exception:", "")
    text = str(error.get("traceback") or f"{error.get('type')}: {error.get('text', '')}")
    yield from text.rstrip().splitlines()
    yield from (note for note in error.get("notes") or () if note not in text)
