"""Read-only lookups in the journal: for the hub, the web page, `/v1` and the command line.

Sees what is on disk, nothing else: a task that is not committed yet does not exist here. Each
`Queries` holds one connection that cannot write; a point read takes about ten microseconds, so it
may be called on an event loop.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.dispatch import inputs, model, rows, statements, transitions
from kilnwork.kit import ids

_SQL = statements.QUERIES
_NEWEST = 1 << 62


class Queries:
    """One reading connection to a journal that some dispatcher has open."""

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        self._connection.set_busy_timeout(5000)

    def close(self) -> None:
        """Let go of the file; repeatable."""
        self._connection.close()

    def task(self, task: ids.TaskId, *, run: int | None = None) -> model.TaskView | None:
        """The newest run of a task, or the one asked for."""
        row = self.task_row(task, run=run)
        return None if row is None else self.view(row)

    def find(self, namespace: str, name: str) -> model.TaskView | None:
        """The task of that name, the declared one first, else the newest; its newest run."""
        for row in self._task_rows("named", (namespace, name)):
            return self.view(row)
        return None

    def tasks(
        self, namespace: str, *, limit: int = 500, below: int | None = None
    ) -> tuple[list[model.TaskView], int | None]:
        """Newest runs, newest first, and what to give as `below` for the next page."""
        arguments = (namespace, below or _NEWEST, limit)
        found = list(self._task_rows("newest_in_namespace", arguments))
        more = found[-1].row if len(found) == limit else None
        return [self.view(row) for row in found], more

    def attempts(self, task: ids.TaskId, *, run: int | None = None) -> list[model.AttemptView]:
        """All attempts of a run, in order."""
        row = self.task_row(task, run=run)
        if row is None:
            return []
        found = [_past_view(row, values) for values in self._all("past_attempts", (row.row,))]
        if row.attempt and row.attempt not in {view.ref.attempt for view in found}:
            found.append(_newest_view(row))
        return found

    def view(self, row: rows.TaskRow, *, seq: int = 0) -> model.TaskView:
        """The view of a row, with its children counted."""
        return rows.view(row, self.children(row.task, row.run), seq=seq)

    def task_row(self, task: ids.TaskId, *, run: int | None = None) -> rows.TaskRow | None:
        """The row of the newest run, or of the one asked for."""
        name, arguments = ("newest_run", (task,)) if run is None else ("one_run", (task, run))
        return next(self._task_rows(name, arguments), None)

    def declared(self) -> Iterator[rows.TaskRow]:
        """The newest run of every declared task whose object was not gone yet."""
        return self._task_rows("declared", ())

    def unfinished(self) -> Iterator[rows.TaskRow]:
        """Every run that has not ended, in order of submission."""
        return self._task_rows("unfinished", ())

    def families(self) -> Iterator[tuple[ids.TaskId, int, bool, str, int]]:
        """(parent, run, parent is declared, state, children) wherever it still matters."""
        for parent, run, declared, state, number in self._all("family_sizes", ()):
            yield parent, run, bool(declared), state, number

    def children(self, parent: ids.TaskId, run: int) -> api_task.ChildCounts:
        """How many children one run has asked for, by where they are."""
        return rows.counts(self._all("child_states", (parent, run)))

    def past(self, task: ids.TaskId) -> inputs.Past | None:
        """Number and state of the newest run."""
        for run, state in self._all("newest_state", (task,)):
            return inputs.Past(run, api_task.State(state))
        return None

    def child(self, parent: ids.TaskId, run: int, child_key: str) -> inputs.Found | None:
        """The newest child of that key."""
        for task, digest, asked_by in self._all("child", (parent, run, child_key)):
            return inputs.Found(task, digest or b"", asked_by or 0)
        return None

    def aged(self, *, before: float, above: int, limit: int) -> list[tuple[int, ids.TaskId, bool]]:
        """(row, task, may be forgotten) of runs created before a moment, in order of age."""
        found = self._all("aged", (before, above, limit))
        return [(row, task, bool(forgettable)) for row, task, forgettable in found]

    def _all(self, name: str, arguments: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        return iter(self._connection.execute(_SQL[name], arguments).fetchall())

    def _task_rows(self, name: str, arguments: tuple[Any, ...]) -> Iterator[rows.TaskRow]:
        return (rows.TaskRow(*values) for values in self._all(name, arguments))


def _past_view(row: rows.TaskRow, values: tuple[Any, ...]) -> model.AttemptView:
    number, worker, node, reserved, started, finished, ending, reason, message, code = values
    return model.AttemptView(
        ref=attempts.AttemptRef(row.task, row.run, number),
        worker=worker,
        node=node,
        ending=attempts.Ending(ending),
        reason=reason,
        message=message,
        exit_code=code,
        reserved=reserved,
        started=started,
        finished=finished,
    )


def _newest_view(row: rows.TaskRow) -> model.AttemptView:
    succeeded = row.attempt_state == transitions.AttemptState.SUCCEEDED
    return model.AttemptView(
        ref=attempts.AttemptRef(row.task, row.run, row.attempt),
        worker=row.worker_name or "",
        node=row.node or "",
        ending=attempts.Ending.SUCCEEDED if succeeded else None,
        reason=row.reason,
        message=row.message,
        exit_code=row.exit_code,
        reserved=row.reserved or row.created,
        started=row.attempt_started,
        finished=row.finished,
    )
