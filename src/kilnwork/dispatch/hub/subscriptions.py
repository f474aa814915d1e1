"""Subscriptions to changes of tasks, for subscribers with thousands of tasks.

Used by the hub for `jobs`, and by `callback_results`. Changes of tasks are published in batches,
after the commit that stores them. Unlike a reader of a feed, a subscriber runs on the same event
loop, and reads all states again after a restart (`Participation.unfinished` and `states`).
"""

from collections.abc import Callable, Container, Iterable

import msgspec

from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.journal import task_rows
from kilnwork.dispatch.machine import instructions, records
from kilnwork.kit import ids

_S = api_task.State
# Used for each change: a member by way of its class takes ten times as long to look up.
_SUCCESS, _FAILED, _KILLED = _S.SUCCESS, _S.FAILED, _S.KILLED
_STAGING, _RUNNING, _KILLING = _S.STAGING, _S.RUNNING, _S.KILLING
_FINAL = (_SUCCESS, _FAILED, _KILLED)


class Change(msgspec.Struct, frozen=True, gc=False):
    """The current state of a run, as published to subscribers.

    `attempt`: how many attempts have started or are reserved. `losses`: how many losses count
    against `retry.maxLosses`. `worker`: the name of the Pod of the worker. `started`: start of the
    newest attempt. `over`: the state is final. A final state that is not stored yet is not
    published.
    """

    task: ids.TaskId
    run: int
    state: api_task.State
    reason: str
    message: str
    attempt: int
    failures: int
    losses: int
    worker: str
    started: float | None
    suspended: bool
    stopped: bool | None = None
    """For a finished task: whether there is proof that no process of it is left."""
    parent: bool = False
    """Whether the task has asked for children."""

    @property
    def over(self) -> bool:
        """Return whether this run will not change any more."""
        state = self.state
        return state is _SUCCESS or state is _FAILED or state is _KILLED

    @property
    def active(self) -> bool:
        """Return whether a worker has this run."""
        state = self.state
        return state is _STAGING or state is _RUNNING or state is _KILLING


OnChanges = Callable[[list[Change]], None]
"""Receives the changes of one batch."""


class Subscriptions:
    """The subscribers: the tasks that each follows, and its callback for changes."""

    def __init__(self) -> None:
        self._subscriptions: list[tuple[Container[ids.TaskId], OnChanges]] = []

    def follow(self, tasks: Container[ids.TaskId], on_changes: OnChanges) -> Callable[[], None]:
        """Call `on_changes` with changes of `tasks` (a container that may grow and shrink) from now
        on.

        Returns a function that ends this.
        """
        subscription = (tasks, on_changes)
        self._subscriptions.append(subscription)
        return lambda: self._subscriptions.remove(subscription)

    def publish(self, batch: instructions.Batch) -> None:
        """Publish the changes of a stored batch."""
        if not self._subscriptions:
            return
        # A copy: a subscriber may end its subscription when it is called.
        for tasks, on_changes in tuple(self._subscriptions):
            changes = of_batch(batch, tasks)
            if changes:
                on_changes(changes)


def of_batch(batch: instructions.Batch, tasks: Container[ids.TaskId]) -> list[Change]:
    """Return the changes in a batch that concern `tasks`."""
    # A record may have ended since the batch was taken: that end is not stored yet.
    ended = set(batch.finals)
    return [
        of_record(task)
        for task in batch.dirty
        if task.id in tasks and (task.state not in _FINAL or task in ended)
    ]


def of_record(task: records.Task) -> Change:
    """Return the state of a task that is in memory."""
    return Change(
        task.id, task.run, task.state, task.reason, task.message,
        task.attempt - task.unstarted, task.failures,
        task.losses, "" if task.worker is None else task.worker.name, task.attempt_started,
        task.suspended, task.stopped, task.family is not None,
    )  # fmt: skip


def of_row(row: task_rows.TaskRow, view: model.TaskView) -> Change:
    """Return the state of a task that is in the journal, from its row and the view of that row."""
    # From the row, as in `of_record`: the losses of a view include excused ones, and its start is
    # the first one of the run.
    return Change(
        view.task, view.run, view.state, view.reason, view.message, view.attempts, view.failures,
        row.losses, view.worker, row.attempt_started, view.suspended, view.stopped,
        view.children.total > 0,
    )  # fmt: skip


def refused(submission: model.Submission, why: str) -> Change:
    """Return the change of a task that was refused because it is impossible: it is Failed."""
    return Change(
        submission.task, submission.spec.run, _S.FAILED, "TaskTooLarge", why, 0, 1, 0, "", None,
        False, True,
    )  # fmt: skip


def of_memory(tasks: Iterable[records.Task | None]) -> list[Change]:
    """Return the states of those tasks that are in memory and have not finished."""
    return [of_record(task) for task in tasks if task is not None and not task.state.final]
