"""Tasks of the journal, declared and spawned, as `/v1` lists and shows them.

Used by the commands that know tasks which are no objects: `tasks`, `get --spawned`, `why`, and by
completion.
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from kilnwork.cli import render, session

Item = dict[str, Any]
"""One document of `/v1`."""

_COLUMNS = ("id", "name", "function", "state", "reason", "attempts", "parent")
_WIDE = ("clusterName", "run", "losses", "podName", "creationTime", "message")


async def listed(
    s: session.Session, *, wanted: Mapping[str, str], limit: int | None = None
) -> AsyncIterator[Item]:
    """Tasks of the session's namespace, newest first; at most `limit`."""
    base = f"/v1/namespaces/{session.quoted(s.one_namespace())}/tasks"
    query, left = dict(wanted), limit
    while left is None or left > 0:
        if left is not None:
            query["limit"] = str(min(left, session.PAGE))
        page = await s.ask("GET", base, query=query)
        for item in page["items"]:
            yield item
        left = None if left is None else left - len(page["items"])
        if not page.get("continue"):
            return
        query["continue"] = page["continue"]


def table(
    items: Sequence[Item], *, wide: bool = False, names: Mapping[str, str] | None = None
) -> list[str]:
    """Lines of a table; `names`: of parents that are not among the items."""
    columns = (*_COLUMNS, *_WIDE) if wide else _COLUMNS
    known = {**(names or {}), **{item["id"]: item.get("name") or item["id"] for item in items}}
    cells = [[_cell(item, column, known) for column in columns] for item in items]
    return render.columns([_HEADERS.get(name, name.upper()) for name in columns], cells)


_HEADERS = {"clusterName": "CLUSTER", "podName": "WORKER", "creationTime": "CREATED"}


def _cell(item: Item, column: str, names: Mapping[str, str]) -> object:
    if column == "parent":
        return parent(item, names)
    value = item.get(column)
    if column == "name" and value == item["id"]:
        return None  # it was given none
    return value if value != "" else None


def parent(item: Item, names: Mapping[str, str]) -> str | None:
    """A parent by name if it is known, else by id; which of its attempts asked is for `-o yaml`."""
    task = (item.get("parent") or "").partition("/")[0]
    return names.get(task, task) or None


def traceback(error: Mapping[str, Any] | None) -> Iterator[str]:
    """The lines of a Python error as Python prints it: what caused it first."""
    if error is None:
        return
    cause = error.get("cause")
    if cause:
        yield from traceback(cause)
        yield from ("", "The above exception was the direct cause of the following exception:", "")
    text = str(error.get("traceback") or f"{error.get('type')}: {error.get('text', '')}")
    yield from text.rstrip().splitlines()
    yield from (note for note in error.get("notes") or () if note not in text)
