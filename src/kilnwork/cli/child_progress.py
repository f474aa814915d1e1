"""Progress of a task that has children: a bar in a terminal, and a line for each failed child.

Used by commands that wait for tasks: `kiln wait`, `retry --wait`, `cancel --wait`, and `run
--watch`. Everything goes to standard error, and only if that is a terminal.
"""

import contextlib
import sys
from collections.abc import Mapping
from typing import Any

import click

from kilnwork.cli import errors, session, task_lists
from kilnwork.kit import progress_meter

MAX_SHOWN = 20
"""Maximum number of failed children that are printed; the others are counted."""

LOOK_S = 1.0
"""Pause between two reads of a task that only the journal has."""

SAY_S = 5.0
"""Pause between two progress lines where a bar would mix with the task's output."""


class Children:
    """Printer of the progress of a task's children. `ref`: the name or id of the task."""

    def __init__(self, s: session.Session, ref: str) -> None:
        self._session = s
        self._ref = ref
        self._meter = progress_meter.Meter(None, progress_meter.format_count, unit=" tasks")
        self._shown: set[str] = set()
        self._failed = 0

    async def look(self, found: Mapping[str, Any]) -> str:
        """Print the children that have failed since the last call, and return the progress line, or
        "".

        `found`: the current version of the task.
        """
        counts = (found.get("status") or {}).get("children")
        await self.tell(counts)
        line = self.line(counts)
        return f"{self._ref}  {line}" if line else ""

    def line(self, counts: Mapping[str, Any] | None) -> str:
        """Return the progress bar for the counts in `status.children`, or ""."""
        if not counts or not counts.get("total"):
            return ""
        failed = counts.get("failed", 0)
        self._meter.total = counts["total"]
        self._meter.at(counts.get("succeeded", 0) + failed, now_s=self._session.clock.monotonic())
        text = self._meter.text()
        return f"{text}  {failed:,} failed" if failed else text

    async def tell(self, counts: Mapping[str, Any] | None) -> None:
        """Print the children that failed since the last call."""
        failed = (counts or {}).get("failed", 0)
        if failed <= self._failed or len(self._shown) >= MAX_SHOWN:
            return
        self._failed = failed
        wanted = {"parent": self._ref, "state": "Failed"}
        with contextlib.suppress(*errors.SERVER_ERRORS):  # reported again at the end of the task
            found = task_lists.list_tasks(self._session, wanted=wanted, limit=MAX_SHOWN)
            for item in reversed([each async for each in found]):
                self._tell(item)

    def _tell(self, item: task_lists.Item) -> None:
        if item["id"] in self._shown or len(self._shown) >= MAX_SHOWN:
            return
        self._shown.add(item["id"])
        click.echo(failure(item), err=True)
        if len(self._shown) == MAX_SHOWN:
            more = f"`kiln tasks --parent {self._ref} --state Failed` lists them"
            click.echo(f"more failures are counted and not shown: {more}", err=True)


def failure(item: task_lists.Item) -> str:
    """Return one line of text about a failed task."""
    why = item.get("message") or item.get("reason") or "no reason is known"
    name = task_lists.name(item) or "task"
    return f"{name} ({task_lists.short_id(item['id'])}) failed: {str(why).splitlines()[0]}"


def children(s: session.Session, ref: str) -> Children | None:
    """Return a printer of the progress of a task's children.

    None if standard error is not a terminal.
    """
    return Children(s, ref) if sys.stderr.isatty() else None
