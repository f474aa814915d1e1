"""The journal in SQLite, with one writing connection that commits in groups on a thread of its own.

Used by the hub, which hands over the rows of one batch at a time and is called on its event loop
when they are on disk; the changes that it has gathered meanwhile are the next batch. Each opening
raises the epoch, which is checked inside every transaction, so that a dispatcher that lost the
journal can write nothing. An OS lock on a file beside the journal keeps a second process from
opening it at all. Reading is done by `queries`, over read-only connections.
"""

import contextlib
import functools
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from kilnwork.dispatch import errors
from kilnwork.dispatch.journal import port, rows_to_write
from kilnwork.dispatch.journal.sqlite import committer, connections, queries, statements
from kilnwork.dispatch.machine import instructions
from kilnwork.kit import ids, locks

_SQL = statements.QUERIES
PARTS = (32, 16, 8, 4, 2, 1)
"""Numbers of rows that one step of a repeated statement writes. Between two steps the loop's thread
gets the interpreter and keeps it as long as it likes, so a thousand rows must not take a thousand
steps. No more than 32: SQLite makes code of its own of each row of values, and that of many rows
leaves the processor's caches before it runs; steps of 256 rows took a quarter more time.
"""

MANY_WORKERS = 10_000
"""Number of rows of workers, some 150 bytes each, from which on a start searches for rows to
delete.
"""

ROWS_AT_ONCE = 1024
"""Maximum number of a participant's rows that are in memory as SQL values at the same time: an old
database that is taken over may have many.
"""


class _MultiRow:
    """A statement with one row of values, executed for any number of rows in few steps.

    In its methods, `flat` has the values of all rows, one row after the other.
    """

    def __init__(self, statement: str) -> None:
        row, text = statements.compact(statement)
        self._width = row.count("?")
        # A text for each size, so that every step finds its statement prepared.
        self._texts = [(many, text.format(",".join([row] * many))) for many in PARTS]

    def run(self, cursor: apsw.Cursor, flat: Sequence[rows_to_write.Value]) -> list[Any]:
        """Execute the statement for all rows; return the rows that the statement returns, as
        tuples.
        """
        at, end = 0, len(flat)
        returned: list[Any] = []
        for many, text in self._texts:
            step = many * self._width
            while end - at >= step:
                returned += cursor.execute(text, flat[at : at + step])
                at += step
        return returned

    def count(self, flat: Sequence[rows_to_write.Value]) -> int:
        """Return the number of rows whose values are in `flat`."""
        return len(flat) // self._width


_INSERT_CALLS = _MultiRow(_SQL["insert_calls"])
_INSERT_ARGUMENTS = _MultiRow(_SQL["insert_arguments"])
_INSERT_OUTPUTS = _MultiRow(_SQL["insert_outputs"])
_RESERVE_CALLS = _MultiRow(_SQL["reserve_calls"])
_FINISH_CALLS = _MultiRow(_SQL["finish_calls"])
_ROWS_OF_TASKS = _MultiRow(_SQL["rows_of_tasks"])
_COUNTED_ROWS = _MultiRow(_SQL["counted_rows"])
_FORGET_ROWS = _MultiRow(_SQL["forget_rows"])


@functools.cache
def _repeated(name: str) -> _MultiRow | None:
    """Return a participant's statement for many rows in one step.

    Returns None if the statement has no row of values that can be repeated.
    """
    return _MultiRow(_SQL[name]) if "VALUES (" in _SQL[name] else None


class Identity(NamedTuple):
    """The identity of a journal: a UUID, which copies share, and how often the journal was taken
    over.
    """

    uid: str
    epoch: int


class Journal:
    """A journal file and its lock. Implements `port.Store`.

    `retry_s`: interval between tries of a commit that failed because of the disk. `sync_delay_s`
    makes every commit slower, as a cloud disk would; for measurements only.
    """

    reader: queries.Queries

    def __init__(self, path: Path, *, retry_s: float = 1.0, sync_delay_s: float = 0.0) -> None:
        self.path = path
        self.epoch = 0
        self._lock = locks.OwnerLock(path.with_suffix(".lock"))
        self._connection: apsw.Connection | None = None
        self._committer: committer.Committer | None = None
        self._closing = threading.Event()
        self._retry_s = retry_s
        self._sync_delay_s = sync_delay_s

    @property
    def trouble(self) -> str | None:
        """Return why nothing can be stored at the moment, or None."""
        return None if self._committer is None else self._committer.trouble

    @property
    def refused(self) -> str | None:
        """Return the reason for which the current write has failed, or None; does not access the
        disk.
        """
        return None if self._committer is None else self._committer.refused

    def identify(self) -> Identity:
        """Return the identity of the journal without taking the journal over; create it if
        necessary.

        Raises `JournalLocked` or `JournalUnreadable`.
        """
        self._take_lock()
        try:
            with connections.readable(self.path):
                connection = connections.writing(self.path)
                try:
                    with connections.transaction(connection) as cursor:
                        made = ids.new_uid()
                        return Identity(*cursor.execute(_SQL["identify"], (made,)).get)
                finally:
                    connection.close()
        finally:
            self._lock.release()

    def open(self, *, lease_s: float = 0.0) -> port.Opened:
        """Lock and migrate the journal, and raise its epoch.

        Raises `JournalLocked` or `JournalUnreadable`.
        """
        # First, because migrating and raising the epoch are writes.
        self._take_lock()
        try:
            self._connection = connection = connections.writing(self.path)
            self._committer = committer.Committer(connection, self.path, retry_s=self._retry_s)
            with connections.readable(self.path), connections.transaction(connection) as cursor:
                # Once this is committed, an earlier dispatcher that still runs can write nothing.
                cursor.execute(_SQL["raise_epoch"])
                # At a start only: later, memory may have templates that no row uses yet.
                cursor.execute(_SQL["forget_templates"])
                cursor.execute(_SQL["forget_template_blobs"])
                cursor.execute(_SQL["forget_counts"])
                if int(cursor.execute(_SQL["count_workers"]).get) > MANY_WORKERS:
                    cursor.execute(_SQL["forget_workers"])
                self.epoch = int(cursor.execute(_SQL["read_epoch"]).get)
                longest_lease_s = float(cursor.execute(_SQL["raise_lease"], (lease_s,)).get)
                # After the deletions, whose numbers are free again: nothing refers to them.
                task_row, worker_row, template_row = cursor.execute(_SQL["next_rows"]).get
            # After the migration: a read-only connection could not create the tables.
            self.reader = queries.Queries(self.path)
        except BaseException:
            self.close()
            raise
        return port.Opened(
            task_row, worker_row, template_row, self.reader, longest_lease_s=longest_lease_s
        )

    def start(
        self, call_soon: port.CallSoon, *, on_failure: Callable[[BaseException], None]
    ) -> None:
        """Start the thread that writes."""
        self._opened.start(call_soon, on_failure=on_failure)

    def used_bytes(self) -> int:
        """Return the bytes that the journal uses on disk; see `port.Store`."""
        # A connection of its own: this is called in any thread.
        with contextlib.closing(connections.reading(self.path)) as connection:
            pages, free, size = (
                int(connection.pragma(name))
                for name in ("page_count", "freelist_count", "page_size")
            )
        return (pages - free) * size

    def write(self, batch: instructions.Batch, done: Callable[[port.Written], None]) -> None:
        """Write a batch in one transaction; `done` is called when it is on disk.

        Hand over the next batch only after that.
        """
        # On the thread of the loop, because records change while the other thread writes.
        made = rows_to_write.of_batch(batch)
        self._opened.put(
            functools.partial(self._commit, made), functools.partial(done, made.followed)
        )

    def close(self) -> None:
        """Finish the current batch, then close the file and release the lock. Idempotent."""
        self._closing.set()
        if self._committer is not None:
            self._committer.close()
        if hasattr(self, "reader"):
            self.reader.close()  # first: the last connection cleans up, and must be able to write
        if self._connection is not None:
            self._connection.close()
        self._connection = self._committer = None
        # Last: from here on another process may open the file.
        self._lock.release()

    def _take_lock(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self._lock.take():
            holder = locks.read_owner(self._lock.path) or "unknown"
            raise errors.JournalLocked(
                f"{self.path} is in use by process {holder}; end that one, or use another directory"
            )

    @property
    def _opened(self) -> committer.Committer:
        if self._committer is None:
            raise errors.HubStopped("the journal is closed")
        return self._committer

    def _commit(self, batch: rows_to_write.Rows) -> None:
        if self._connection is None:
            raise errors.HubStopped("the journal is closed")
        with connections.transaction(self._connection) as cursor:
            # Inside the transaction, which holds the write lock: no other dispatcher can take over
            # in between.
            epoch = cursor.execute(_SQL["read_epoch"]).get
            if epoch != self.epoch:
                raise errors.StaleEpoch(
                    f"the journal is at epoch {epoch}, this dispatcher is of epoch {self.epoch}"
                )
            _write(self._connection, cursor, batch)
            if self._sync_delay_s:
                self._closing.wait(self._sync_delay_s)


def _write(connection: apsw.Connection, cursor: apsw.Cursor, batch: rows_to_write.Rows) -> None:
    """Write all changes of a batch, and the resulting counts of tasks."""
    single: tuple[tuple[str, Sequence[tuple[rows_to_write.Value, ...]]], ...] = (
        ("insert_worker", batch.workers),
        ("insert_template", batch.templates),
        ("use_blobs", batch.blobs),
        ("insert_past_attempt", batch.past),
        ("keep_cached", batch.cached),
        ("release_task", batch.released),
        ("take_over", batch.taken_over),
        ("supersede", batch.superseded),
    )
    # Tasks first: `insert_arguments` skips rows whose task was not accepted.
    changed = _count_moves(cursor, batch, all_written=_write_tasks(connection, cursor, batch))
    for name, values in single:
        if values:
            cursor.executemany(_SQL[name], values)
    if batch.arguments:
        _INSERT_ARGUMENTS.run(cursor, batch.arguments)
    if batch.outputs:
        _INSERT_OUTPUTS.run(cursor, batch.outputs)
    # After the other rows of the batch, some of which may belong to these tasks.
    if batch.forgotten or batch.dropped:
        changed.subtract(_forget(cursor, batch))
    _write_counts(cursor, changed)
    # Last, because they may refer to tasks of this batch.
    for written_name, written in batch.writes:
        _write_of_participant(cursor, written_name, written)


def _write_tasks(
    connection: apsw.Connection, cursor: apsw.Cursor, batch: rows_to_write.Rows
) -> bool:
    """Write rows of tasks, new ones first; return False if some rows were not accepted."""
    before = connection.total_changes()
    expected = len(batch.inserts) + len(batch.updates)
    _INSERT_CALLS.run(cursor, batch.calls)
    if batch.inserts:
        cursor.executemany(_SQL["insert_task"], batch.inserts)
    if batch.updates:
        cursor.executemany(_SQL["update_task"], batch.updates)
    _RESERVE_CALLS.run(cursor, batch.reserved)
    _FINISH_CALLS.run(cursor, batch.finished)
    expected += _INSERT_CALLS.count(batch.calls)
    expected += _RESERVE_CALLS.count(batch.reserved)
    expected += _FINISH_CALLS.count(batch.finished)
    # A duplicate id, or a row that is final already, is skipped without an error.
    return connection.total_changes() - before == expected


def _count_moves(
    cursor: apsw.Cursor, batch: rows_to_write.Rows, *, all_written: bool
) -> Counter[rows_to_write.CountKey]:
    """Return the differences that the written rows of tasks make to the counts of tasks.

    Rows that were not accepted (a duplicate id, a run that has ended) are not counted.
    """
    moves = batch.moves
    if not all_written:
        each = itertools.chain.from_iterable(move.of_one for move in moves)
        # Read again, so that the counts follow the table, not the changes that were requested.
        states = (cursor.execute(_SQL["state_of_row"], (row,)).get for row in batch.moved)
        moves = [move for move, state in zip(each, states, strict=True) if move.after == state]
    changed = rows_to_write.count_deltas(moves)
    for rerun in batch.reruns:
        changed.subtract(rows_to_write.counts_of(cursor.execute(_SQL["counted_before"], rerun)))
    return changed


def _forget(cursor: apsw.Cursor, batch: rows_to_write.Rows) -> Counter[rows_to_write.CountKey]:
    """Delete tasks and everything that belongs to their rows; return the counts of the deleted
    tasks.
    """
    found = _ROWS_OF_TASKS.run(cursor, batch.forgotten)
    # The newest run of each task comes last, and only it is counted.
    newest = dict(found)
    counted = rows_to_write.counts_of(_COUNTED_ROWS.run(cursor, [*batch.dropped, *newest.values()]))
    # Sorted for `ranges`: rows that are forgotten together mostly follow one another.
    deleted = sorted([*batch.dropped, *(row for _, row in found)])
    _FORGET_ROWS.run(cursor, deleted)
    ranges = rows_to_write.ranges(deleted)
    for name in ("forget_attempts", "forget_blobs", "forget_arguments", "forget_outputs"):
        cursor.executemany(_SQL[name], ranges)
    return counted


def _write_counts(cursor: apsw.Cursor, changed: Counter[rows_to_write.CountKey]) -> None:
    # Many changes of one batch cancel out.
    values = [(*key, number) for key, number in changed.items() if number]
    if values:
        cursor.executemany(_SQL["count_tasks"], values)


def _write_of_participant(
    cursor: apsw.Cursor, name: str, written: Iterable[instructions.Row]
) -> None:
    repeated = _repeated(name)
    if repeated is None:
        cursor.executemany(_SQL[name], written)
        return
    # A new iterator each time: if the disk refuses a commit, it is repeated from the same rows.
    remaining = iter(written)
    while some := list(itertools.islice(remaining, ROWS_AT_ONCE)):
        repeated.run(cursor, list(itertools.chain.from_iterable(some)))
