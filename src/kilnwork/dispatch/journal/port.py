"""Where tasks are stored: the port that the hub writes to and reads from.

Two implementations pass one contract suite: `sqlite.journal`, a file that outlives every process,
and `memory_store`, the memory of this one. An implementation guarantees:

- One writer: `open` refuses a store that another process has open, and raises the epoch; a batch of
  an earlier epoch is refused inside its transaction (`StaleEpoch`).
- All or nothing: a batch is one transaction, however often the process is killed.
- Order: batches are written in the order of `write`, and their `done` is called in that order.
- Durability: `done` is called after the batch is on disk, and only then may anything of it be
  passed on. The reader sees what is written and nothing else.
- Finality: a run that has ended keeps its state, whatever a later batch says.
- An id that is taken already: the second run of that number is not written, and the rest of its
  batch is.
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
"""Parent, its run, whether it is declared, a state, how many children are in it."""

TemplateRow = tuple[int, str, bytes]
"""Number, namespace, spec as JSON."""

Written = Sequence[task_rows.TaskRow]
"""Rows of tasks that others follow as a batch has stored them, without those whose view takes more
than their row (`rows.is_whole_view`)."""

CallSoon = Callable[[Callable[[], None]], object]
"""Runs a callable on the loop of the store's owner (`loop.call_soon_threadsafe`)."""


class Saved(Protocol):
    """Gives what an earlier dispatcher has left."""

    def templates(self) -> Iterable[TemplateRow]:
        """Every template, in order."""
        ...

    def unfinished(self) -> Iterable[task_rows.TaskRow]:
        """Every run that has not ended, in order of submission."""
        ...

    def families(self) -> Iterable[FamilySize]:
        """Children by state, for every parent that is unfinished or has an unfinished child."""
        ...


@dataclass(frozen=True, slots=True)
class Opened:
    """Facts that a dispatcher needs before it starts. `saved`: None when nothing can be there.
    `longest_lease_s`: as workers of earlier dispatchers may hold one."""

    next_task_row: int = 1
    next_worker_row: int = 1
    next_template_row: int = 1
    saved: Saved | None = None
    longest_lease_s: float = 0.0


class TaskReader(Protocol):
    """Looks tasks up on the owner's thread, in microseconds. Sees what is stored, nothing else."""

    def task_row(self, task: ids.TaskId, *, run: int | None = None) -> task_rows.TaskRow | None:
        """The newest run of a task, or `run`."""
        ...

    def view(self, row: task_rows.TaskRow, *, seq: int = 0) -> model.TaskView:
        """The view of a row, with its children counted."""
        ...

    def output(self, ref: attempts.AttemptRef) -> bytes | None:
        """What an attempt has printed, if it is kept here."""
        ...

    def declared(self) -> Iterator[task_rows.TaskRow]:
        """The newest run of every declared task whose object was not gone yet."""
        ...

    def child(self, parent: ids.TaskId, run: int, child_key: str) -> inputs.StoredChild | None:
        """The newest child of that key."""
        ...

    def known(self, lookups: inputs.Lookups) -> dict[int, inputs.StoredCall]:
        """By number of the call, those that are there already."""
        ...

    def cached(self, lookups: inputs.Lookups, *, now: float) -> dict[int, inputs.CachedResult]:
        """By number of the call, results that will do at that wall time."""
        ...

    def values(
        self, namespace: str | None, tasks: Iterable[ids.TaskId]
    ) -> dict[ids.TaskId, calls.Value]:
        """How tasks of that namespace (None: any) ended; those that have not are left out."""
        ...

    def earlier(self, row: task_rows.TaskRow) -> inputs.Earlier | None:
        """The children that another run goes on with, None if this one has succeeded, or is not
        over."""
        ...

    def failed_dependents(self, namespace: str) -> list[tuple[ids.TaskId, tuple[ids.TaskId, ...]]]:
        """Tasks that have failed, and whose results they take. Called in a thread: it looks at all
        that have failed."""
        ...


class ListReader(Protocol):
    """Lists tasks for the server and the command line."""

    def task(self, task: ids.TaskId, *, run: int | None = None) -> model.TaskView | None:
        """The newest run of a task, or `run`."""
        ...

    def find(self, namespace: str, name: str) -> model.TaskView | None:
        """The task of that name, the declared one first, else the newest; its newest run."""
        ...

    def tasks(
        self,
        namespace: str | None,
        *,
        wanted: model.TaskQuery = ...,
        limit: int = ...,
        below: int | None = ...,
    ) -> tuple[list[model.TaskView], int | None]:
        """Newest runs, newest first, and what to give as `below` for the next page; a namespace of
        None means all."""
        ...

    def counts(self, namespace: str | None = None) -> list[model.TaskCount]:
        """How many tasks there are by function and state, in one namespace or (None) in all."""
        ...

    def attempts(self, task: ids.TaskId, *, run: int | None = None) -> list[model.AttemptView]:
        """All attempts of a run, in order."""
        ...


class RetentionReader(Protocol):
    """Says what need not be kept any more."""

    def old_runs(self, *, before: float, above: int, limit: int) -> list[model.OldRun]:
        """Runs created before a moment, in order of age."""
        ...

    def child_states(self, parent: ids.TaskId, run: int) -> Iterable[tuple[str, int]]:
        """How many children of one run are in each state."""
        ...

    def referenced(self, digests: Sequence[bytes]) -> set[bytes]:
        """Which of these blobs some task refers to, in whatever namespace."""
        ...

    def blobs_of(self, tasks: Iterable[ids.TaskId]) -> set[tuple[str, bytes]]:
        """The blobs that these tasks refer to: namespace and digest. Called in a thread."""
        ...


class Reader(TaskReader, ListReader, RetentionReader, Protocol):
    """Reads a store; `row_reader.RowReader` makes all of it from rows."""

    def select(self, name: str, *values: instructions.Value) -> list[tuple[Any, ...]]:
        """All rows that a statement of a participant finds (`instructions.Batch.writes`)."""
        ...


class Store(Protocol):
    """Stores batches, one transaction each. `epoch`: of this leadership."""

    epoch: int

    @property
    def trouble(self) -> str | None:
        """Why nothing is kept at the moment, None when all is well."""
        ...

    @property
    def refused(self) -> str | None:
        """Why the disk has refused what is being written, None while it has not; cheap to read."""
        ...

    @property
    def reader(self) -> Reader:
        """Return the reader of what is stored; from `open` on."""
        ...

    def open(self, *, lease_s: float = 0.0) -> Opened:
        """Take it over, to grant leases of that length.

        Raises `JournalLocked` or `JournalUnreadable`.
        """
        ...

    def start(self, call_soon: CallSoon, *, on_failure: Callable[[BaseException], None]) -> None:
        """Begin to write; `on_failure` is called when that cannot go on."""
        ...

    def used_bytes(self) -> int:
        """How much of the disk is in use, without what is free within the file; in any thread."""
        ...

    def write(self, batch: instructions.Batch, done: Callable[[Written], None]) -> None:
        """Write a batch as it is now, and call `done`: later through `call_soon`, or at once."""
        ...

    def close(self) -> None:
        """Write what was handed over, then release everything; repeatable."""
        ...
