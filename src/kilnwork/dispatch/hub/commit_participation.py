"""Lets other packages add rows and inputs to the batch that the hub is making.

Used by jobs (`jobs.task_hub.TaskHub`), from the event loop of the hub. Rows and tasks that a
participant adds while a batch is being made are stored with it, or not at all.
"""

from collections.abc import Callable, Container, Iterable
from typing import Any

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import attempt_logs, commits, subscriptions, task_views
from kilnwork.dispatch.machine import inputs, instructions
from kilnwork.kit import ids


class Participation:
    """The operations on a hub that participants may use.

    `views`: the views of the hub's tasks. `cluster`: the method `Hub.cluster`.
    """

    def __init__(
        self,
        core: commits.Core,
        followed: subscriptions.Subscriptions,
        logs: attempt_logs.AttemptLogs,
        *,
        views: task_views.TaskViews,
        cluster: Callable[[str, str], model.ClusterView | None],
    ) -> None:
        self._core = core
        self._subscriptions = followed
        self._logs = logs
        self._views = views
        self.view = views.view
        self.cluster = cluster

    @property
    def epoch(self) -> int:
        """Return the epoch of this dispatcher's term as leader; 0 before the hub has started."""
        return self._core.store.epoch

    @property
    def refused(self) -> str | None:
        """Return the reason for which the current write has failed, or None; does not access the
        disk.
        """
        return self._core.store.refused

    def submit_now(
        self,
        submissions: Iterable[model.Submission],
        *,
        new: bool = False,
        shown: bool = False,
    ) -> list[subscriptions.Change]:
        """Accept runs of different tasks, also after a success, in the batch that is being made.

        Returns the runs that already existed: the submitted run, a higher run, or a lower run. An
        unfinished lower run is killed first: submit again when it has ended. Impossible runs are
        returned as failed. `new`: the caller knows that none of the tasks has a run yet. `shown`:
        the caller will ask for views of the tasks.
        """
        existing: list[subscriptions.Change] = []
        unknown: list[model.Submission] = []
        machine = self._core.machine
        for submission in submissions:
            if refusal := machine.refusal(submission):
                existing.append(subscriptions.refused(submission, refusal))
                continue
            task = submission.task
            known = machine.task(task)
            row = None if new or known is not None else self._core.reader.task_row(task)
            if known is None and row is None:
                # They are collected, so that thousands of new tasks are one input.
                unknown.append(submission)
                continue
            past = None if row is None else inputs.Past(row.run, api_task.State(row.state))
            self._core.apply(inputs.Submit(submission, past, force=True))
            if shown:
                self._views.follow(task)
            # In that case the input has changed nothing: that run, or a later one, is over.
            if row is not None and row.run >= submission.spec.run:
                existing.append(subscriptions.of_row(row, self._views.of_row(row)))
            if known is not None:
                existing.append(subscriptions.of_record(known))
        if unknown:
            self._core.apply(inputs.SubmitNew(unknown))
            for submission in unknown if shown else ():
                self._views.follow(submission.task)
        return existing

    def kill_now(self, tasks: Iterable[ids.TaskId], *, reason: str, message: str) -> None:
        """Kill tasks, as `Hub.kill`, in the batch that is being made."""
        for task in tasks:
            self._core.apply(inputs.Kill(task, reason, message))

    def suspend_now(self, tasks: Iterable[ids.TaskId], *, suspended: bool) -> None:
        """Suspend or resume tasks, as `Hub.suspend`, in the batch that is being made."""
        for task in tasks:
            self._core.apply(inputs.Suspend(task, suspended))

    def forget_now(
        self, runs: Iterable[tuple[ids.TaskId, int]], *, childless: bool = False
    ) -> None:
        """Forget tasks, each given with its newest run, in the batch that is being made.

        A task that is unfinished, has children or has stored output is kept like any other.
        `childless`: the caller knows that none of the tasks has children.
        """
        reader = self._core.reader
        forgettable = tuple(
            task
            for task, run in runs
            if (childless or not any(reader.child_states(task, run)))
            # Deleting output blocks on the disk, so a task with output is left to retention.
            and not self._logs.has_output(task, new=self._core.is_new(task))
        )
        self._core.apply(inputs.Forget(forgettable))

    def participate(self, participant: commits.Participant) -> Callable[[], None]:
        """Let a participant add to every batch from now on; return a function that ends this."""
        self._core.participants.append(participant)
        return lambda: self._core.participants.remove(participant)

    def wake(self) -> None:
        """Have a batch made soon, since a participant has something to add."""
        self._core.schedule()

    async def write(self, writes: instructions.Writes) -> None:
        """Write rows of a participant's tables in one transaction; they are on disk when this
        returns.
        """
        self.write_next(writes)
        await self._core.flush()

    def write_next(self, writes: instructions.Writes) -> None:
        """Add rows of a participant's tables to the batch that is written next."""
        # A batch of a stopped hub is never written.
        self._core.check()
        self._core.machine.memory.batch.writes += writes

    def select(self, name: str, *values: instructions.Value) -> list[tuple[Any, ...]]:
        """Return all stored rows that a statement of a participant selects.

        `name`: the name of the statement. `values`: the values of its parameters.
        """
        return self._core.reader.select(name, *values)

    def follow(
        self, tasks: Container[ids.TaskId], on_changes: subscriptions.OnChanges
    ) -> Callable[[], None]:
        """Call `on_changes` with stored changes of `tasks` (a container that may grow and shrink).

        Returns a function that ends this.
        """
        return self._subscriptions.follow(tasks, on_changes)

    def unfinished(self, tasks: Iterable[ids.TaskId]) -> list[subscriptions.Change]:
        """Return the states of those tasks among `tasks` that have not finished."""
        return subscriptions.of_memory(map(self._core.machine.task, tasks))

    def knows(self, task: ids.TaskId) -> bool:
        """Return whether the task has any run, finished or not."""
        return (
            self._core.machine.task(task) is not None
            or self._core.reader.task_row(task) is not None
        )

    def result(self, task: ids.TaskId) -> attempts.Payload | None:
        """Return the result of a task's newest run, even if the run ends in the current batch.

        Returns None if the run has not succeeded, or returned nothing.
        """
        known = self._core.machine.task(task)
        if known is not None:
            return known.result if known.state is api_task.State.SUCCESS else None
        # Memory has no record of the task: all of it is on disk.
        for media_type, data, size, digest in self._core.reader.select("task_result", task):
            if media_type is not None:
                return attempts.Payload(media_type, bytes(data or b""), digest, size or 0)
        return None

    def states(self, tasks: Iterable[ids.TaskId]) -> list[subscriptions.Change]:
        """Return the states of the newest runs of `tasks` as they are on disk, without unknown
        tasks.
        """
        rows = map(self._core.reader.task_row, tasks)
        return [
            subscriptions.of_row(row, self._views.of_row(row)) for row in rows if row is not None
        ]
