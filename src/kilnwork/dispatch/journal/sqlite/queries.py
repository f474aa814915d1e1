"""Reads the journal's rows, for the hub, the web page, `/v1` and the command line.

Sees only rows on disk: a task that is not committed yet does not exist here. Each `Queries` holds
one read-only connection. A point read takes about ten microseconds, so it may be called on an event
loop.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.journal import port, row_reader, rows_to_write, task_rows
from kilnwork.dispatch.journal.sqlite import connections, statements
from kilnwork.dispatch.machine import inputs, instructions
from kilnwork.kit import ids

_SQL = statements.QUERIES
_NEWEST = 1 << 62
PAGE_ROWS = 10_000
"""Number of rows that one page of a list scans: some ten milliseconds."""


class Queries(row_reader.RowReader):
    """A reader of the journal over a read-only connection, while any dispatcher has the journal
    open.

    Also implements `port.Saved`. Raises `JournalUnreadable` when the file is found to be damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = connections.reading(path)

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._connection.close()

    def task_row(self, task: ids.TaskId, *, run: int | None = None) -> task_rows.TaskRow | None:
        """Return the row of a task, of its newest run by default, or None if there is no such row.

        This method and those below are documented in `row_reader`.
        """
        name, arguments = ("newest_run", (task,)) if run is None else ("one_run", (task, run))
        return next(self._task_rows(name, arguments), None)

    def named_row(self, namespace: str, name: str) -> task_rows.TaskRow | None:
        return next(self._task_rows("named", (namespace, name)), None)

    def keyed_row(self, namespace: str, key: str) -> task_rows.TaskRow | None:
        return next(self._task_rows("keyed", (namespace, key)), None)

    def child_row(self, parent: ids.TaskId, run: int, child_key: str) -> task_rows.TaskRow | None:
        return next(self._task_rows("child", (parent, run, child_key)), None)

    def cached_result(self, namespace: str, key: bytes) -> inputs.CachedResult | None:
        found = self.select("cached", namespace, key)
        if not found:
            return None
        task, finished, *result = found[0]
        payload = task_rows.payload_of(*result)
        return inputs.CachedResult(ids.TaskId(task), payload, finished)

    def child_states(self, parent: ids.TaskId, run: int) -> Iterator[tuple[str, int]]:
        return self._all("child_states", (parent, run))

    def unfinished_children(self, parent: ids.TaskId, run: int) -> list[ids.TaskId]:
        return [ids.TaskId(task) for (task,) in self._all("unfinished_children", (parent, run))]

    def failed_dependents(self, namespace: str) -> list[tuple[ids.TaskId, tuple[ids.TaskId, ...]]]:
        """Return the failed tasks of a namespace, each with the tasks whose results it takes.

        Reads over a connection of its own, so that it may run in a thread beside other reads.
        """
        with self._own_connection() as connection:
            found: list[Any] = connection.execute(
                _SQL["failed_dependents"], (namespace,)
            ).fetchall()
        return [(ids.TaskId(task), task_rows.tasks(needs)) for task, needs in found]

    def past_attempts(self, row: task_rows.TaskRow) -> list[model.AttemptView]:
        return [_attempt(row, values) for values in self._all("past_attempts", (row.row,))]

    def output(self, ref: attempts.AttemptRef) -> bytes | None:
        # Output is stored by row, and each run has its own row.
        row = self.task_row(ref.task, run=ref.run)
        found = [] if row is None else self.select("output", row.row, ref.attempt)
        return found[0][0] if found else None

    def declared(self) -> Iterator[task_rows.TaskRow]:
        return self._task_rows("declared", ())

    def page(
        self, namespace: str | None, wanted: model.TaskQuery, *, limit: int, below: int | None
    ) -> tuple[list[task_rows.TaskRow], int | None]:
        """Return rows of a page of tasks after reading at most `PAGE_ROWS` rows.

        If `wanted` names a state, uses the index of that state.
        """
        # A number instead of a condition, so that one statement serves all pages.
        below = below or _NEWEST
        by = _index_of(wanted.state)
        state = (None, None, wanted.state) if by == "_unusual" else ()
        [(lowest,)] = self._all(f"looked_at{by}", (below, PAGE_ROWS, *state))
        if lowest is None:
            return [], None
        arguments = (namespace, below, lowest, limit, *_filters(wanted))
        found = list(self._task_rows(f"listed{by}", arguments))
        # A full page ends at its last row, any other page where the scan ended.
        last = found[-1].row if len(found) == limit else lowest
        more = any(row is not None for (row,) in self._all(f"looked_at{by}", (last, 1, *state)))
        return found, last if more else None

    def counts(self, namespace: str | None = None) -> list[model.TaskCount]:
        found = self._all("counts", (namespace,))
        return rows_to_write.task_counts(
            ((of, bool(declared), function, state), number)
            for of, declared, function, state, number in found
        )

    def abbreviated(self, namespace: str, digits: str, *, limit: int) -> list[ids.TaskId]:
        """Return tasks whose ids begin or end with these hexadecimal digits; see `ids.abbreviated`.

        Scans every id, 0.1 s for a million: reads over a connection of its own, so that it may run
        in a thread.
        """
        first, last = (bytes.fromhex(digits.ljust(32, filler)) for filler in "0f")
        end = bytes.fromhex(digits[len(digits) % 2 :])
        with self._own_connection() as connection:
            begins = connection.execute(_SQL["begins_with"], (namespace, first, last, limit))
            found: list[Any] = begins.fetchall()
            ends = connection.execute(_SQL["ends_with"], (namespace, end, digits.upper(), limit))
            found += ends.fetchall()
        return [ids.TaskId(task) for task in dict.fromkeys(task for (task,) in found)][:limit]

    def referenced(self, digests: Sequence[bytes]) -> set[bytes]:
        """Return the blobs among `digests` to which a task refers, in any namespace.

        Reads over a connection of its own, so that it may run in a thread beside other reads.
        """
        with self._own_connection() as connection:
            used = (connection.execute(_SQL["blob_used"], (digest,)).get for digest in digests)
            return {digest for digest, known in zip(digests, used, strict=True) if known}

    def blobs_of(self, tasks: Iterable[ids.TaskId]) -> set[tuple[str, bytes]]:
        """Return the blobs to which these tasks refer, as namespace and digest.

        Reads over a connection of its own, as `referenced`.
        """
        with self._own_connection() as connection:
            found = (connection.execute(_SQL["blobs_of"], (task,)) for task in tasks)
            return {(namespace, digest) for rows in found for namespace, digest in rows}

    def old_runs(self, *, before: float, above: int, limit: int) -> list[model.OldRun]:
        return [model.OldRun(*found) for found in self._all("old_runs", (before, above, limit))]

    def select(self, name: str, *values: instructions.Value) -> list[tuple[Any, ...]]:
        return list(self._all(name, values))

    def unfinished(self) -> Iterator[task_rows.TaskRow]:
        """Yield every run that has not ended, in order of submission.

        Rows are read as they are consumed.
        """
        with connections.readable(self._path):
            # Row by row: there may be a million, and nothing is written before the start is over.
            for values in self._connection.execute(_SQL["unfinished"]):
                yield task_rows.TaskRow(*values)

    def templates(self) -> Iterator[port.TemplateRow]:
        """Yield every stored template, ordered by number."""
        return self._all("templates", ())

    def families(self) -> Iterator[port.FamilySize]:
        """Yield the numbers of children by state, for each parent that is unfinished or has an
        unfinished child.
        """
        for parent, run, declared, state, number in self._all("family_sizes", ()):
            yield parent, run, bool(declared), state, number

    @contextlib.contextmanager
    def _own_connection(self) -> Iterator[apsw.Connection]:
        """Open a connection for one read, which may run in a thread beside other reads."""
        with (
            connections.readable(self._path),
            contextlib.closing(connections.reading(self._path)) as connection,
        ):
            yield connection

    def _all(self, name: str, arguments: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        """Read all rows of a statement at once, so that no read transaction stays open."""
        try:
            # All rows are fetched: an open read keeps the log from starting over, so that it would
            # grow.
            return iter(self._connection.execute(_SQL[name], arguments).fetchall())
        except apsw.Error as error:
            found = connections.readable_error(self._path, error)
            if found is None:
                raise
            raise found from error

    def _task_rows(self, name: str, arguments: tuple[Any, ...]) -> Iterator[task_rows.TaskRow]:
        return map(task_rows.TaskRow._make, self._all(name, arguments))


def _index_of(state: api_task.State | None) -> str:
    """Return the key of `statements.NARROWED` whose statement finds tasks in that state."""
    if state in (None, api_task.State.SUCCESS):
        return ""
    waiting = state in (api_task.State.PENDING, api_task.State.STAGING)
    return "_unfinished" if waiting else "_unusual"


def _filters(wanted: model.TaskQuery) -> tuple[instructions.Value, ...]:
    return (wanted.state, wanted.declared, wanted.parent, wanted.function)


def _attempt(row: task_rows.TaskRow, values: tuple[Any, ...]) -> model.AttemptView:
    number, worker, node, reserved, started, finished, ending, reason, message, code, *used = values
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
        usage=task_rows.usage(*used),
    )
