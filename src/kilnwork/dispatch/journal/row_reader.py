"""The reader that all stores share: makes views and other values of a few kinds of rows.

Used by `sqlite.queries` and `memory_store`, which implement the abstract methods, as another
database would: each method finds rows of one kind. The hub and the server see a `port.Reader`.
"""

import abc
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.journal import task_rows
from kilnwork.dispatch.machine import inputs, instructions, transition_table
from kilnwork.kit import ids

log = logging.getLogger(__name__)

ANYTHING = model.TaskQuery()
DEFAULT_LIMIT = 500
"""Default number of tasks in one page of a list."""


class RowReader(abc.ABC):
    """Implements `port.Reader` with abstract methods that find stored rows."""

    @abc.abstractmethod
    def task_row(self, task: ids.TaskId, *, run: int | None = None) -> task_rows.TaskRow | None:
        """Return the row of one run of a task: run `run`, or the newest run if that is None."""

    @abc.abstractmethod
    def named_row(self, namespace: str, name: str) -> task_rows.TaskRow | None:
        """Return the row of the newest run of the task with that name.

        If several tasks have the name, the declared task is returned, otherwise the newest task.
        """

    @abc.abstractmethod
    def keyed_row(self, namespace: str, key: str) -> task_rows.TaskRow | None:
        """Return the row of the newest call to which a driver gave that key."""

    @abc.abstractmethod
    def child_row(self, parent: ids.TaskId, run: int, child_key: str) -> task_rows.TaskRow | None:
        """Return the row of the newest child with that key of one run of a parent."""

    @abc.abstractmethod
    def cached_result(self, namespace: str, key: bytes) -> inputs.CachedResult | None:
        """Return the newest result that was cached with that key, or None.

        Also returns None if the task of the result has run again since and failed.
        """

    @abc.abstractmethod
    def child_states(self, parent: ids.TaskId, run: int) -> Iterable[tuple[str, int]]:
        """Return how many children of one run are in each state."""

    @abc.abstractmethod
    def unfinished_children(self, parent: ids.TaskId, run: int) -> list[ids.TaskId]:
        """Return the unfinished children of one run of a parent."""

    @abc.abstractmethod
    def failed_dependents(self, namespace: str) -> list[tuple[ids.TaskId, tuple[ids.TaskId, ...]]]:
        """Return the failed tasks of a namespace, each with the tasks whose results it takes.

        Call it in a thread.
        """

    @abc.abstractmethod
    def past_attempts(self, row: task_rows.TaskRow) -> list[model.AttemptView]:
        """Return the attempts of one run that ended without success, in order."""

    @abc.abstractmethod
    def output(self, ref: attempts.AttemptRef) -> bytes | None:
        """Return the output of an attempt, or None if the store does not have it."""

    @abc.abstractmethod
    def declared(self) -> Iterator[task_rows.TaskRow]:
        """Yield the newest run of every declared task whose Task object is not known to be
        deleted.
        """

    @abc.abstractmethod
    def page(
        self, namespace: str | None, wanted: model.TaskQuery, *, limit: int, below: int | None
    ) -> tuple[list[task_rows.TaskRow], int | None]:
        """Return the rows of a page of tasks, by their newest runs, and the value of `below` for
        the next page.

        `namespace`: the namespace whose tasks are listed; None: all namespaces.
        """

    @abc.abstractmethod
    def counts(self, namespace: str | None = None) -> list[model.TaskCount]:
        """Return how many tasks there are by function and state.

        `namespace`: the namespace whose tasks are counted; None: all namespaces.
        """

    @abc.abstractmethod
    def old_runs(self, *, before: float, above: int, limit: int) -> list[model.OldRun]:
        """Return runs created before the wall time `before`, oldest first, from rows above `above`.

        Returns at most `limit` runs, among them runs that must be kept (see `model.OldRun`).
        """

    @abc.abstractmethod
    def referenced(self, digests: Sequence[bytes]) -> set[bytes]:
        """Return the blobs among `digests` to which a task refers, in any namespace.

        Call it in a thread.
        """

    @abc.abstractmethod
    def blobs_of(self, tasks: Iterable[ids.TaskId]) -> set[tuple[str, bytes]]:
        """Return the blobs to which these tasks refer, as namespace and digest. Call it in a
        thread.
        """

    @abc.abstractmethod
    def select(self, name: str, *values: instructions.Value) -> list[tuple[Any, ...]]:
        """Return all rows that a statement of a participant selects."""

    def task(self, task: ids.TaskId, *, run: int | None = None) -> model.TaskView | None:
        """Return the view of one run of a task: run `run`, or the newest run if that is None."""
        row = self.task_row(task, run=run)
        return None if row is None else self.view(row)

    def find(self, namespace: str, name: str) -> model.TaskView | None:
        """Return the view of the newest run of the task with that name.

        If several tasks have the name, the declared task is returned, otherwise the newest task.
        """
        row = self.named_row(namespace, name)
        return None if row is None else self.view(row)

    def tasks(
        self,
        namespace: str | None,
        *,
        wanted: model.TaskQuery = ANYTHING,
        limit: int = DEFAULT_LIMIT,
        below: int | None = None,
    ) -> tuple[list[model.TaskView], int | None]:
        """Return a page of tasks by their newest runs, newest first, and the value of `below` for
        the next page.

        `namespace`: the namespace whose tasks are listed; None: all namespaces. A page never takes
        long: it may hold fewer tasks than `limit`, even none, and still be followed by another
        page.
        """
        rows, more = self.page(namespace, wanted, limit=limit, below=below)
        return [self.view(row) for row in rows], more

    def attempts(self, task: ids.TaskId, *, run: int | None = None) -> list[model.AttemptView]:
        """Return all attempts of one run of a task, oldest first.

        Leaves out attempts that a slot has given back unstarted. `run`: the number of the run;
        None: the newest run.
        """
        row = self.task_row(task, run=run)
        if row is None:
            return []
        found = self.past_attempts(row)
        # The newest attempt is only on the row of the task, until it has ended without success.
        # A lost attempt without a row of its own was given back by its slot.
        given_back = row.attempt_state == transition_table.AttemptState.LOST
        if row.attempt and not given_back and row.attempt not in {one.ref.attempt for one in found}:
            found.append(_newest_attempt(row))
        return found

    def view(self, row: task_rows.TaskRow, *, seq: int = 0) -> model.TaskView:
        """Return the view of a row, with the children of the run counted."""
        children = task_rows.counts(self.child_states(row.task, row.run))
        view = task_rows.view(row, children, seq=seq)
        if not (row.losses or row.excused):
            return view
        # The row counts the losses that the budget counts; a view shows all lost attempts that had
        # started.
        lost = [one for one in self.past_attempts(row) if _was_lost(one)]
        if not lost:
            return view
        newest = lost[-1]
        loss = f"{newest.reason}: {newest.message}" if newest.message else newest.reason
        return msgspec.structs.replace(view, losses=len(lost), loss=loss)

    def child(self, parent: ids.TaskId, run: int, child_key: str) -> inputs.StoredChild | None:
        """Return the newest child of one run of a parent with that key."""
        row = self.child_row(parent, run, child_key)
        if row is None:
            return None
        requested_by = row.parent_attempt or 0
        # The row of the request is `row`; a later run of it may have ended otherwise.
        newest = self._newest(row)
        return inputs.StoredChild(
            row.task,
            row.digest or b"",
            requested_by,
            api_task.State(newest.state),
            newest.run,
            self.earlier(newest),
        )

    def earlier(self, row: task_rows.TaskRow) -> inputs.Earlier | None:
        """Return the children of a run, for the next run to continue with.

        Returns None if the run has succeeded or is unfinished.
        """
        state = api_task.State(row.state)
        if not state.final or state is api_task.State.SUCCESS:
            return None
        counts = task_rows.counts(self.child_states(row.task, row.run))
        # Usually there are none, which the counts have shown already.
        unfinished = self.unfinished_children(row.task, row.run) if counts.running else ()
        return inputs.Earlier(
            row.run, counts.total, counts.succeeded, counts.failed, tuple(unfinished)
        )

    def _newest(self, child: task_rows.TaskRow) -> task_rows.TaskRow:
        """Return the newest run of a child that failed under an earlier run of its parent.

        A user may have started the child again by hand.
        """
        if child.parent_attempt or child.state == api_task.State.SUCCESS:
            return child
        return self.task_row(child.task) or child

    def stored_calls(self, lookups: inputs.Lookups) -> dict[int, inputs.StoredCall]:
        """Return the calls in a submission that are stored already, by number of the call."""
        namespace, found = lookups.namespace, dict[int, inputs.StoredCall]()
        rows = [(number, self.keyed_row(namespace, key)) for number, key in lookups.keys]
        rows += [
            (number, self.child_row(parent, run, key))
            for number, parent, run, key in lookups.children
        ]
        # Last: the very call that was sent before takes precedence over another one with its key.
        rows += [(number, self.task_row(task)) for number, task in lookups.calls]
        for number, row in rows:
            # Peers choose ids and name parents, so these may be of another namespace.
            if row is not None and row.namespace == namespace:
                known = self._known(row)
                if known is not None:
                    found[number] = known
        return found

    def cached(self, lookups: inputs.Lookups, *, now: float) -> dict[int, inputs.CachedResult]:
        """Return cached results that calls may use at the wall time `now`, by number of the
        call.
        """
        found: dict[int, inputs.CachedResult] = {}
        for number, key, age_s in lookups.cached:
            known = self.cached_result(lookups.namespace, key)
            if known is not None and known.finished >= now - age_s:
                found[number] = known
        return found

    def _known(self, row: task_rows.TaskRow) -> inputs.StoredCall | None:
        """Return the stored call of a row, or None if its spec cannot be read.

        The call is then submitted as if the stored call did not exist.
        """
        try:
            spec = row.decoded_spec()
        except msgspec.MsgspecError as error:
            extra = {"task": ids.task_text(row.task), "why": str(error)}
            log.warning("a task of the journal cannot be read", extra=extra)
            return None
        # A keyed call is found by its newest run anyway.
        newest = row if row.parent is None else self._newest(row)
        return inputs.StoredCall(
            newest.value,
            row.argument_payload,
            spec,
            row.parent_attempt or 0,
            newest.run,
            self.earlier(newest),
            newest.source or b"",
        )

    def values(
        self, namespace: str | None, tasks: Iterable[ids.TaskId]
    ) -> dict[ids.TaskId, calls.Value]:
        """Return the outcomes of those tasks among `tasks` that have finished, by task id.

        `namespace`: the namespace of the tasks; None: any namespace.
        """
        found = {}
        for task in tasks:
            row = self.task_row(task)
            if row is None or row.finished is None:
                continue
            if namespace is None or row.namespace == namespace:
                found[task] = row.value
        return found


def _was_lost(attempt: model.AttemptView) -> bool:
    return attempt.ending is attempts.Ending.LOST and attempt.started is not None


def _newest_attempt(row: task_rows.TaskRow) -> model.AttemptView:
    succeeded = row.attempt_state == transition_table.AttemptState.SUCCEEDED
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
        usage=row.usage,
    )
