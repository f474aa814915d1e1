"""Views of tasks: the stored state, completed with facts that only memory knows.

Used by the hub. The stored rows of followed tasks are kept in memory from the time they were
written, so that followers do not read rows from disk that memory has just written. Most changes
that they follow (a Pod was assigned to a node, a message is new) are in memory only and leave the
stored state unchanged.
"""

import msgspec

from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import commits, feed
from kilnwork.dispatch.journal import port, task_rows
from kilnwork.dispatch.machine import instructions, views
from kilnwork.kit import ids

MAX_ENDED = 1024
"""Maximum number of views of finished tasks that are kept, a kilobyte each. A view is requested
soon after its task has ended, and about as many Jobs of one task may end in one batch.
"""


class TaskViews:
    """Makes views of tasks. `numbers`: the feed whose change numbers the views carry."""

    def __init__(self, core: commits.Core, numbers: feed.Feed[ids.TaskId]) -> None:
        self._core = core
        self._numbers = numbers
        self._stored: dict[ids.TaskId, model.TaskView] = {}
        """Views of tasks in memory that others follow, as they are on disk."""
        self._ended: dict[ids.TaskId, model.TaskView] = {}
        """Views of the newest finished tasks."""

    def view(self, task: ids.TaskId) -> model.TaskView | None:
        """Return the newest run of a task as it is on disk, or None if the task is unknown."""
        known = self._stored.get(task) or self._ended.get(task)
        if known is not None:
            return self.current(msgspec.structs.replace(known, seq=self._numbers.number(task)))
        row = self._core.reader.task_row(task)
        if row is None:
            return None
        stored = self._core.reader.view(row, seq=self._numbers.number(task))
        record = self._core.machine.task(task)
        # A final view is kept by `_keep`, which limits how many there are.
        if record is not None and record.followed and not stored.state.final:
            self._stored[task] = stored
        return views.with_current_facts(stored, record)

    def follow(self, task: ids.TaskId) -> None:
        """Keep the stored row of a task in memory, since its view will be asked for."""
        record = self._core.machine.task(task)
        if record is not None:
            record.shown = True

    def of_row(self, row: task_rows.TaskRow) -> model.TaskView:
        """Return the view of a stored row, completed from memory if memory has the same state."""
        return self.current(self._core.reader.view(row, seq=self._numbers.number(row.task)))

    def current(self, view: model.TaskView) -> model.TaskView:
        """Complete a stored view with facts that only memory knows: why the task waits, and its
        progress.
        """
        return views.with_current_facts(view, self._core.machine.task(view.task))

    def committed(self, batch: instructions.Batch, written: port.Written) -> None:
        """Update the kept rows of followed tasks after a batch was stored.

        A change of a task also changes the view of its parent, which shows its children.
        """
        if not (written or self._stored or self._ended):
            return  # no task is followed: batches of calls are large
        if batch.forgotten:  # children that are deleted are not named
            self._stored.clear()
            self._ended.clear()
        # All views that may be stale are dropped before the written ones are kept.
        for task in batch.dirty:
            self._drop(task.id)
            # Its view counts its children.
            if task.parent is not None:
                self._drop(task.parent.task)
        for past in batch.released:
            self._drop(past)
        for row in written:
            self._keep(task_rows.view(row, api_task.ChildCounts()))

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
