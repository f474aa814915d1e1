"""The interface of task stores, which the hub writes and reads.

Two implementations pass one contract suite: `sqlite.journal`, a file that outlives every process,
and `memory_store`, the memory of this process. An implementation guarantees:

- One writer: `open` refuses a store that another process has open, and raises the epoch; a batch of
  an earlier epoch is refused inside its transaction (`StaleEpoch`).
- All or nothing: a batch is one transaction, whenever the process is killed.
- Order: batches are written in the order of `write`, and their `done` is called in that order.
- Durability: `done` is called after the batch is on disk (in memory, for `memory_store`), and only
  then may anything of it be passed on. The reader sees what is written and nothing else.
- Finality: a run that has ended keeps its state, whatever a later batch says.
- Duplicate ids: a second run with the same id and number is not written; the rest of its batch is.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kilnwork.api import attempts, calls
from kilnwork.dispatch import model
from kilnwork.dispatch.journal import task_rows
from kilnwork.dispatch.machine import inputs, instructions
from kilnwork.kit import ids

FamilySize = tuple[ids.TaskId, int, bool, str, int]
"""Parent, its run, whether it is declared, a state, and how many of its children are in that
state.
"""

TemplateRow = tuple[int, str, bytes]
"""Number, namespace, and spec as JSON."""

Written = Sequence[task_rows.TaskRow]
"""Rows of tasks that others follow as a batch has stored them, without those whose view needs more
than their row (`rows_to_write.is_whole_view`).
"""

CallSoon = Callable[[Callable[[], None]], object]
"""Runs a callable on the loop of the store's owner (`loop.call_soon_threadsafe`)."""


class Saved(Protocol):
    """Reads the state that an earlier dispatcher has stored."""

    def templates(self) -> Iterable[TemplateRow]:
        """Return every stored template, ordered by number."""
        ...

    def unfinished(self) -> Iterable[task_rows.TaskRow]:
        """Return every stored run that has not ended, in order of submission."""
        ...

    def families(self) -> Iterable[FamilySize]:
        """Return the numbers of children by state, for each parent that is unfinished or has an
        unfinished child.
        """
        ...


@dataclass(frozen=True, slots=True)
class Opened:
    """The state of a store that a dispatcher reads before it starts.

    `saved`: a reader of the stored state; None if nothing can be stored. `longest_lease_s`: the
    longest lease that workers of earlier dispatchers may hold.
    """

    next_task_row: int = 1
    next_worker_row: int = 1
    next_template_row: int = 1
    saved: Saved | None = None
    longest_lease_s: float = 0.0


class TaskReader(Protocol):
    """Looks up stored tasks on the caller's thread, in microseconds."""

    def task_row(self, task: ids.TaskId, *, run: int | None = None) -> task_rows.TaskRow | None:
        """Return the row of one run of a task: run `run`, or the newest run if that is None."""
        ...

    def view(self, row: task_rows.TaskRow, *, seq: int = 0) -> model.TaskView:
        """Return the view of a row, with the children of the run counted."""
        ...

    def output(self, ref: attempts.AttemptRef) -> bytes | None:
        """Return the output of an attempt, or None if the store does not have it."""
        ...

    def declared(self) -> Iterator[task_rows.TaskRow]:
        """Yield the newest run of every declared task whose Task object is not known to be
        deleted.
        """
        ...

    def child(self, parent: ids.TaskId, run: int, child_key: str) -> inputs.StoredChild | None:
        """Return the newest child of one run of a parent with that key."""
        ...

    def stored_calls(self, lookups: inputs.Lookups) -> dict[int, inputs.StoredCall]:
        """Return the calls in a submission that exist already, by number of the call."""
        ...

    def cached(self, lookups: inputs.Lookups, *, now: float) -> dict[int, inputs.CachedResult]:
        """Return cached results that calls may use at the wall time `now`, by number of the
        call.
        """
        ...

    def values(
        self, namespace: str | None, tasks: Iterable[ids.TaskId]
    ) -> dict[ids.TaskId, calls.Value]:
        """Return the outcomes of those tasks among `tasks` that have finished, by task id.

        `namespace`: the namespace of the tasks; None: any namespace.
        """
        ...

    def earlier(self, row: task_rows.TaskRow) -> inputs.Earlier | None:
        """Return the children of a run, for the next run to continue with.

        Returns None if the run has succeeded or is unfinished.
        """
        ...

    def failed_dependents(self, namespace: str) -> list[tuple[ids.TaskId, tuple[ids.TaskId, ...]]]:
        """Return the failed tasks of a namespace, each with the tasks whose results it takes.

        Call it in a thread, since it goes through all failed tasks.
        """
        ...


class ListReader(Protocol):
    """Lists stored tasks for the server and the command line."""

    def task(self, task: ids.TaskId, *, run: int | None = None) -> model.TaskView | None:
        """Return the view of one run of a task: run `run`, or the newest run if that is None."""
        ...

    def find(self, namespace: str, name: str) -> model.TaskView | None:
        """Return the newest run of the task with that name.

        If several tasks have the name, the declared task is returned, otherwise the newest task.
        """
        ...

    def tasks(
        self,
        namespace: str | None,
        *,
        wanted: model.TaskQuery = ...,
        limit: int = ...,
        below: int | None = ...,
    ) -> tuple[list[model.TaskView], int | None]:
        """Return a page of tasks by their newest runs, newest first, and the value of `below` for
        the next page.

        `namespace`: the namespace whose tasks are listed; None: all namespaces.
        """
        ...

    def counts(self, namespace: str | None = None) -> list[model.TaskCount]:
        """Return how many tasks there are by function and state.

        `namespace`: the namespace whose tasks are counted; None: all namespaces.
        """
        ...

    def attempts(self, task: ids.TaskId, *, run: int | None = None) -> list[model.AttemptView]:
        """Return all attempts of one run of a task, oldest first.

        Leaves out attempts that a slot has given back unstarted. `run`: the number of the run;
        None: the newest run.
        """
        ...


class RetentionReader(Protocol):
    """Finds tasks and blobs that may be deleted."""

    def old_runs(self, *, before: float, above: int, limit: int) -> list[model.OldRun]:
        """Return runs created before the wall time `before`, oldest first, from rows above `above`.

        Returns at most `limit` runs, among them runs that must be kept (see `model.OldRun`).
        """
        ...

    def child_states(self, parent: ids.TaskId, run: int) -> Iterable[tuple[str, int]]:
        """Return how many children of one run are in each state."""
        ...

    def referenced(self, digests: Sequence[bytes]) -> set[bytes]:
        """Return the blobs among `digests` to which a task refers, in any namespace."""
        ...

    def blobs_of(self, tasks: Iterable[ids.TaskId]) -> set[tuple[str, bytes]]:
        """Return the blobs to which these tasks refer, as namespace and digest. Call it in a
        thread.
        """
        ...


class Reader(TaskReader, ListReader, RetentionReader, Protocol):
    """The interface for reading a store; `row_reader.RowReader` implements most of it from rows."""

    def select(self, name: str, *values: instructions.Value) -> list[tuple[Any, ...]]:
        """Return all rows that a statement of a participant selects
        (`instructions.Batch.writes`).
        """
        ...


class Store(Protocol):
    """Stores batches, one transaction each. `epoch`: the epoch of this dispatcher's term as
    leader.
    """

    epoch: int

    @property
    def trouble(self) -> str | None:
        """Return why nothing can be stored at the moment, or None."""
        ...

    @property
    def refused(self) -> str | None:
        """Return the reason for which the current write has failed, or None; does not access the
        disk.
        """
        ...

    @property
    def reader(self) -> Reader:
        """Return a reader of the stored tasks; valid from `open` on."""
        ...

    def open(self, *, lease_s: float = 0.0) -> Opened:
        """Take over the store for a dispatcher that grants leases of `lease_s`.

        Raises `JournalLocked` or `JournalUnreadable`.
        """
        ...

    def start(self, call_soon: CallSoon, *, on_failure: Callable[[BaseException], None]) -> None:
        """Begin to write; `on_failure` is called when writing cannot continue."""
        ...

    def used_bytes(self) -> int:
        """Return the bytes that the store uses on disk, without free space inside files.

        May be called in any thread.
        """
        ...

    def write(self, batch: instructions.Batch, done: Callable[[Written], None]) -> None:
        """Write a batch as it is now; call `done` when it is stored, directly or through
        `call_soon`.
        """
        ...

    def close(self) -> None:
        """Write the batch that was handed over, then release all files and locks. Idempotent."""
        ...
