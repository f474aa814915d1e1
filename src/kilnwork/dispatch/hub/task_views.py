"""Views of tasks: what is stored, with the facts of the moment.

Used by the hub. What is stored of a task that somebody follows (a declared one, or one that was
asked for) is kept from the moment it was written: nobody need read the disk for what memory has
just given to it. Most changes that others follow (a Pod has got a node, a message is new) are of
the moment, and change nothing of it.
"""

import msgspec

from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import commits, feed
from kilnwork.dispatch.journal import task_rows
from kilnwork.dispatch.machine import instructions, records, views
from kilnwork.kit import ids

MAX_ENDED = 1024
"""Views of tasks that are over which are kept: they are asked for right after they have ended, and
of Jobs of one task so many may end in one batch. Some kilobyte each."""


class TaskViews:
    """`numbers`: of changes, which views carry."""

    def __init__(self, core: commits.Core, numbers: feed.Feed[ids.TaskId]) -> None:
        self._core = core
        self._numbers = numbers
        self._stored: dict[ids.TaskId, model.TaskView] = {}
        """Of tasks in memory that somebody follows, as they are on disk."""
        self._asked: set[ids.TaskId] = set()
        """Tasks in memory that are not declared, and were asked for."""
        self._ended: dict[ids.TaskId, model.TaskView] = {}
        """The same of the newest that are over."""
        self._writing: list[task_rows.TaskRow] = []
        """Rows of the batch that is on its way to the disk."""

    def view(self, task: ids.TaskId) -> model.TaskView | None:
        """The newest run of a task as it is on disk, None when there is no such task."""
        known = self._stored.get(task) or self._ended.get(task)
        if known is not None:
            return self.current(msgspec.structs.replace(known, seq=self._numbers.number(task)))
        record = self._core.machine.task(task)
        stored = self._read(task, record)
        if stored is None:
            return None
        if record is not None:
            if not stored.declared:
                self._asked.add(task)
            if not stored.state.final:
                self._stored[task] = stored
        return views.with_current_facts(stored, record)

    def _read(self, task: ids.TaskId, record: records.Task | None) -> model.TaskView | None:
        """What is on disk: memory has the same of a record that has not changed since."""
        seq = self._numbers.number(task)
        if record is not None and _is_row(record) and self._core.is_stored(record):
            return task_rows.view(task_rows.of_record(record), api_task.ChildCounts(), seq=seq)
        row = self._core.reader.task_row(task)
        return None if row is None else self._core.reader.view(row, seq=seq)

    def keep(self, task: ids.TaskId) -> None:
        """A task that memory has will be asked for."""
        self._asked.add(task)

    def of_row(self, row: task_rows.TaskRow) -> model.TaskView:
        """What is on disk, and the facts of the moment if memory has the same state."""
        return self.current(self._core.reader.view(row, seq=self._numbers.number(row.task)))

    def current(self, view: model.TaskView) -> model.TaskView:
        """A view from disk with the facts of the moment: why the task waits, and its progress."""
        return views.with_current_facts(view, self._core.machine.task(view.task))

    def handed_over(self, batch: instructions.Batch) -> None:
        """A batch is about to be written: its rows are what will be stored, however its records
        change meanwhile."""
        asked = self._asked
        self._writing = [
            task_rows.of_record(task)
            for task in batch.dirty
            if (task.declared or task.id in asked) and _is_row(task)
        ]

    def committed(self, batch: instructions.Batch) -> None:
        """A batch is on disk. A task shows its children, too."""
        written, self._writing = self._writing, []
        if not (written or self._stored or self._ended or self._asked):
            return  # nobody follows a task: batches of calls are large
        if batch.forgotten:  # children that are deleted are not named
            self._stored.clear()
            self._ended.clear()
        for task in batch.dirty:
            self._drop(task.id)
            if task.parent is not None:
                self._drop(task.parent.task)
        for past in batch.released:
            self._drop(past)
        for row in written:
            self._keep(task_rows.view(row, api_task.ChildCounts()))
        self._asked.difference_update(task.id for task in batch.finals)

    def _keep(self, view: model.TaskView) -> None:
        if not view.state.final:
            self._stored[view.task] = view
            return
        self._ended[view.task] = view
        if len(self._ended) > MAX_ENDED:
            del self._ended[next(iter(self._ended))]

    def _drop(self, task: ids.TaskId) -> None:
        self._stored.pop(task, None)
        self._ended.pop(task, None)


def _is_row(task: records.Task) -> bool:
    """Return whether the view of a task needs nothing but its row."""
    return task.family is None and not (task.losses or task.excused)
