"""Views of tasks: what is stored, with the facts of the moment.

Used by the hub. What is stored of a task that is not over is read once after each change of it:
most changes that others follow (a Pod has got a node, a message is new) are of the moment.
"""

import msgspec

from kilnwork.dispatch import model
from kilnwork.dispatch.hub import commits, feed
from kilnwork.dispatch.journal import task_rows
from kilnwork.dispatch.machine import instructions, views
from kilnwork.kit import ids


class TaskViews:
    """`numbers`: of changes, which views carry."""

    def __init__(self, core: commits.Core, numbers: feed.Feed[ids.TaskId]) -> None:
        self._core = core
        self._numbers = numbers
        self._stored: dict[ids.TaskId, model.TaskView] = {}
        """Of declared tasks in memory, as they were read since their last change."""

    def view(self, task: ids.TaskId) -> model.TaskView | None:
        """The newest run of a task as it is on disk, None when there is no such task."""
        known = self._stored.get(task)
        if known is not None:
            return self.current(msgspec.structs.replace(known, seq=self._numbers.number(task)))
        row = self._core.reader.task_row(task)
        if row is None:
            return None
        stored = self._core.reader.view(row, seq=self._numbers.number(task))
        if stored.declared and not stored.state.final and self._core.machine.task(task) is not None:
            self._stored[task] = stored
        return self.current(stored)

    def of_row(self, row: task_rows.TaskRow) -> model.TaskView:
        """What is on disk, and the facts of the moment if memory has the same state."""
        return self.current(self._core.reader.view(row, seq=self._numbers.number(row.task)))

    def current(self, view: model.TaskView) -> model.TaskView:
        """A view from disk with the facts of the moment: why the task waits, and its progress."""
        return views.with_current_facts(view, self._core.machine.task(view.task))

    def committed(self, batch: instructions.Batch) -> None:
        """What a batch has changed is read again. A task shows its children, too."""
        if not self._stored:
            return
        if batch.forgotten or batch.writes:  # children that are deleted are not named
            self._stored.clear()
            return
        for task in batch.dirty:
            self._stored.pop(task.id, None)
            if task.parent is not None:
                self._stored.pop(task.parent.task, None)
        for past in batch.released:
            self._stored.pop(past, None)
