"""The form of the tables of states, which show for each observation of an attempt the state of its
task.

Used by the modules of executors that define the tables, and by `states_reference`, which writes
them into the reference. Not used by the manager.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from kilnwork.api import reasons, task

BEGIN = "<!-- {name}: written by `make docs` from kilnwork.executors.{module} -->"
END = "<!-- end of {name} -->"


class Counts(StrEnum):
    """The budget of a task that is charged for an attempt with this end."""

    NOTHING = ""
    FAILURE = "`maxAttempts`"
    LOSS = "`maxLosses`"
    FINAL = "no retry"


class Row(NamedTuple):
    """One row of a table of states.

    `state`: the state of the task while, or after, its newest attempt is observed as in `seen`.
    After a loss it is `Pending`, since the next attempt follows while the budget lasts.
    """

    state: task.State
    seen: str
    reason: reasons.Reason
    counts: Counts = Counts.NOTHING


Group = tuple[task.State, Counts, tuple[tuple[reasons.Reason, str], ...]]
"""Rows with the same state and budget: each has a reason, and a text about what is observed."""


class Table(NamedTuple):
    """A table of states.

    `name`: its name in the comments around it; `module`: its module below `executors`; `what`: the
    observed thing, for the heading.
    """

    name: str
    module: str
    what: str
    rows: tuple[Row, ...]

    def lines(self) -> Iterator[str]:
        """Yield the lines of the table in Markdown."""
        seen = f"What is seen of the {self.what}" if self.what else "What is seen"
        yield f"| State of the task | {seen} | Reason | Counts against |"
        yield "|---|---|---|---|"
        for row in self.rows:
            yield f"| {row.state} | {row.seen} | {row.reason} | {row.counts} |"


def rows(groups: Iterable[Group]) -> tuple[Row, ...]:
    """Return the rows of these groups as one sequence."""
    return tuple(
        Row(state, seen, reason, counts) for state, counts, each in groups for reason, seen in each
    )


def written(page: str, tables: Iterable[Table]) -> str:
    """Return the text of the page with these tables in their current form."""
    for table in tables:
        begin = BEGIN.format(name=table.name, module=table.module)
        end = END.format(name=table.name)
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise ValueError(f"the page has no place for table {table.name}: {begin} … {end}")
        page = "\n".join([before + begin, "", *table.lines(), "", end + after])
    return page
