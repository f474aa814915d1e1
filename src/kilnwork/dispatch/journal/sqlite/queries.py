"""Read-only lookups in the journal: for the hub, the web page, `/v1` and the command line.

Sees what is on disk, nothing else: a task that is not committed yet does not exist here. Each
`Queries` holds one connection that cannot write; a point read takes about ten microseconds, so it
may be called on an event loop.
"""

import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec

from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.journal import port, task_rows
from kilnwork.dispatch.journal.sqlite import connections, statements
from kilnwork.dispatch.machine import inputs, instructions, transitions
from kilnwork.kit import ids

log = logging.getLogger(__name__)

_SQL = statements.QUERIES
_NEWEST = 1 << 62
ANYTHING = model.Wanted()
PAGE_ROWS = 10_000
"""Rows that one page of a list looks at: some ten milliseconds."""


class Queries:
    """One reading connection to a journal that some dispatcher has open: a `port.Reader`.

    Raises `JournalUnreadable` when it finds the file damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = connections.reading(path)

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
        self,
        namespace: str,
        *,
        wanted: model.Wanted = ANYTHING,
        limit: int = 500,
        below: int | None = None,
    ) -> tuple[list[model.TaskView], int | None]:
        """Newest runs, newest first, and what to give as `below` for the next page.

        A page looks at `PAGE_ROWS` rows at most, so that it never takes long: it may hold fewer
        tasks than `limit`, even none, and still be followed by another.
        """
        below = below or _NEWEST
        [(lowest,)] = self._all("looked_at", (below, PAGE_ROWS))
        if lowest is None:
            return [], None
        only = (wanted.state, wanted.declared, wanted.parent, wanted.function)
        found = list(self._task_rows("listed", (namespace, below, lowest, limit, *only)))
        last = found[-1].row if len(found) == limit else lowest
        more = any(row is not None for (row,) in self._all("looked_at", (last, 1)))
        return [self.view(row) for row in found], last if more else None

    def attempts(self, task: ids.TaskId, *, run: int | None = None) -> list[model.AttemptView]:
        """All attempts of a run, in order."""
        row = self.task_row(task, run=run)
        if row is None:
            return []
        found = [_past_view(row, values) for values in self._all("past_attempts", (row.row,))]
        if row.attempt and row.attempt not in {view.ref.attempt for view in found}:
            found.append(_newest_view(row))
        return found

    def view(self, row: task_rows.TaskRow, *, seq: int = 0) -> model.TaskView:
        """The view of a row, with its children counted."""
        children = self.children(row.task, row.run)
        view = task_rows.view(row, children, seq=seq)
        if not (row.losses or row.excused):
            return view
        [(losses, _, reason, message)] = self._all("losses", (row.row,))
        if not losses:
            return view
        loss = f"{reason}: {message}" if message else reason
        return msgspec.structs.replace(view, losses=losses, loss=loss)

    def task_row(self, task: ids.TaskId, *, run: int | None = None) -> task_rows.TaskRow | None:
        """The row of the newest run, or of the one asked for."""
        name, arguments = ("newest_run", (task,)) if run is None else ("one_run", (task, run))
        return next(self._task_rows(name, arguments), None)

    def declared(self) -> Iterator[task_rows.TaskRow]:
        """The newest run of every declared task whose object was not gone yet."""
        return self._task_rows("declared", ())

    def unfinished(self) -> Iterator[task_rows.TaskRow]:
        """Every run that has not ended, in order of submission; read while they are taken."""
        with connections.readable(self._path):
            for values in self._connection.execute(_SQL["unfinished"]):
                yield task_rows.TaskRow(*values)

    def templates(self) -> Iterator[port.TemplateRow]:
        """Every template, in order."""
        return self._all("templates", ())

    def families(self) -> Iterator[port.FamilySize]:
        """Children by state, wherever it still matters."""
        for parent, run, declared, state, number in self._all("family_sizes", ()):
            yield parent, run, bool(declared), state, number

    def children(self, parent: ids.TaskId, run: int) -> api_task.ChildCounts:
        """How many children one run has asked for, by where they are."""
        return task_rows.counts(self._all("child_states", (parent, run)))

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

    def known(self, asked: inputs.Lookups) -> dict[int, inputs.Known]:
        """By number of the call, those that the journal has."""
        found: dict[int, inputs.Known] = {}
        by_key = [("known_key", number, (asked.namespace, key)) for number, key in asked.keys]
        by_parent = [("known_child", number, child) for number, *child in asked.children]
        by_id = [("newest_run", number, (task,)) for number, task in asked.calls]
        for name, number, arguments in (*by_key, *by_parent, *by_id):
            for row in self._task_rows(name, tuple(arguments)):
                if row.namespace == asked.namespace and (known := _known(row)) is not None:
                    found[number] = known
        return found

    def values(
        self, namespace: str | None, tasks: Iterable[ids.TaskId]
    ) -> dict[ids.TaskId, calls.Value]:
        """How tasks of that namespace (None: any) ended; those that have not are left out."""
        found = {}
        for task in tasks:
            row = self.task_row(task)
            if row is None or row.finished is None:
                continue
            if namespace is None or row.namespace == namespace:
                found[task] = row.value
        return found

    def referenced(self, digests: Sequence[bytes]) -> set[bytes]:
        """Which of these blobs some task refers to, in whatever namespace.

        Over a connection of its own, so that it may run in a thread beside the others.
        """
        with contextlib.closing(connections.reading(self._path)) as connection:
            used = (connection.execute(_SQL["blob_used"], (digest,)).get for digest in digests)
            return {digest for digest, known in zip(digests, used, strict=True) if known}

    def aged(self, *, before: float, above: int, limit: int) -> list[tuple[int, ids.TaskId, bool]]:
        """(row, task, may be forgotten) of runs created before a moment, in order of age."""
        found = self._all("aged", (before, above, limit))
        return [(row, task, bool(forgettable)) for row, task, forgettable in found]

    def select(self, name: str, *values: instructions.Value) -> list[tuple[Any, ...]]:
        """All rows that a statement of a participant finds."""
        return list(self._all(name, values))

    def _all(self, name: str, arguments: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        """All rows at once, so that no reading transaction stays open."""
        try:
            return iter(self._connection.execute(_SQL[name], arguments).fetchall())
        except apsw.Error as error:
            found = connections.readable_error(self._path, error)
            if found is None:
                raise
            raise found from error

    def _task_rows(self, name: str, arguments: tuple[Any, ...]) -> Iterator[task_rows.TaskRow]:
        return map(task_rows.TaskRow._make, self._all(name, arguments))


def _known(row: task_rows.TaskRow) -> inputs.Known | None:
    """None for a spec that nobody can read: it is then the same as nothing."""
    try:
        spec = row.decoded_spec()
    except msgspec.MsgspecError as error:
        text = ids.task_text(row.task)
        log.warning("a task of the journal cannot be read", extra={"task": text, "why": str(error)})
        return None
    return inputs.Known(row.value, row.argument_payload, spec, row.parent_attempt or 0)


def _past_view(row: task_rows.TaskRow, values: tuple[Any, ...]) -> model.AttemptView:
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


def _newest_view(row: task_rows.TaskRow) -> model.AttemptView:
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
