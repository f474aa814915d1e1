"""Participation in batches: others' rows and tasks, in the transaction of what they follow.

Used by jobs (`jobs.task_hub.TaskHub`), from the event loop of the hub. What a participant adds
while a batch is being made is stored with it, or not at all.
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
    """Offers participants what they may do with a hub. `views`: those of its tasks; `cluster`: as
    that of the hub."""

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
        """Return the epoch of this leadership; 0 before the hub has started."""
        return self._core.store.epoch

    @property
    def refused(self) -> str | None:
        """Why the disk has refused what is being written, None while it has not; cheap to read."""
        return self._core.store.refused

    def submit_now(
        self,
        submissions: Iterable[model.Submission],
        *,
        new: bool = False,
        shown: bool = False,
    ) -> list[subscriptions.Change]:
        """Accept runs of different tasks, also after a success, in the batch that is being made:
        for participants.

        Gives those runs that were there before, as they are: the submitted one, a higher one, or a
        lower one that is killed first (submit again when it is over); and those that cannot be, as
        failed. `new`: the caller knows that there is no run of any of them yet; `shown`: it will
        ask for their views.
        """
        there: list[subscriptions.Change] = []
        unknown: list[model.Submission] = []
        machine = self._core.machine
        for submission in submissions:
            if refusal := machine.refusal(submission):
                there.append(subscriptions.refused(submission, refusal))
                continue
            task = submission.task
            known = machine.task(task)
            row = None if new or known is not None else self._core.reader.task_row(task)
            if known is None and row is None:
                unknown.append(submission)
                continue
            past = None if row is None else inputs.Past(row.run, api_task.State(row.state))
            self._core.apply(inputs.Submit(submission, past, force=True))
            if shown:
                self._views.follow(task)
            if row is not None and row.run >= submission.spec.run:
                there.append(subscriptions.of_view(self._views.of_row(row)))
            if known is not None:
                there.append(subscriptions.of_record(known))
        if unknown:
            self._core.apply(inputs.SubmitNew(unknown))
            for submission in unknown if shown else ():
                self._views.follow(submission.task)
        return there

    def kill_now(self, tasks: Iterable[ids.TaskId], *, reason: str, message: str) -> None:
        """As `kill`, in the batch that is being made: for participants."""
        for task in tasks:
            self._core.apply(inputs.Kill(task, reason, message))

    def suspend_now(self, tasks: Iterable[ids.TaskId], *, suspended: bool) -> None:
        """As `suspend`, in the batch that is being made: for participants."""
        for task in tasks:
            self._core.apply(inputs.Suspend(task, suspended))

    def forget_now(
        self, runs: Iterable[tuple[ids.TaskId, int]], *, childless: bool = False
    ) -> None:
        """Forget tasks by their newest runs, in the batch that is being made: for participants.

        One that is not over, has children or has printed something stays as long as any other.
        `childless`: the caller knows that none of them has children.
        """
        reader = self._core.reader
        over = tuple(
            task
            for task, run in runs
            if (childless or not any(reader.child_states(task, run)))
            and not self._logs.has_output(task, new=self._core.is_new(task))
        )
        self._core.apply(inputs.Forget(over))

    def participate(self, participant: commits.Participant) -> Callable[[], None]:
        """Let it add to every batch from now on; ends when what is returned is called."""
        self._core.participants.append(participant)
        return lambda: self._core.participants.remove(participant)

    def wake(self) -> None:
        """A participant has something to add: make a batch soon."""
        self._core.schedule()

    async def write(self, writes: instructions.Writes) -> None:
        """Write rows of tables of a participant in one transaction; on disk when this returns."""
        self.write_next(writes)
        await self._core.flush()

    def write_next(self, writes: instructions.Writes) -> None:
        """Add rows of tables of a participant to the batch that is written next."""
        self._core.check()
        self._core.machine.memory.batch.writes += writes

    def select(self, name: str, *values: instructions.Value) -> list[tuple[Any, ...]]:
        """All rows that a statement of a participant finds: what is on disk."""
        return self._core.reader.select(name, *values)

    def follow(
        self, tasks: Container[ids.TaskId], on_changes: subscriptions.OnChanges
    ) -> Callable[[], None]:
        """Call `on_changes` with changes of `tasks` (which may grow and shrink) that are stored
        from now on, until what is returned is called."""
        return self._subscriptions.follow(tasks, on_changes)

    def unfinished(self, tasks: Iterable[ids.TaskId]) -> list[subscriptions.Change]:
        """Return the states of those of `tasks` that are not over."""
        return subscriptions.of_memory(map(self._core.machine.task, tasks))

    def knows(self, task: ids.TaskId) -> bool:
        """There is a run of it, over or not."""
        return (
            self._core.machine.task(task) is not None
            or self._core.reader.task_row(task) is not None
        )

    def result(self, task: ids.TaskId) -> attempts.Payload | None:
        """Return what the newest run of a task has returned, also in the batch that is being made.

        None: it has not succeeded, or returned nothing.
        """
        known = self._core.machine.task(task)
        if known is not None:
            return known.result if known.state is api_task.State.SUCCESS else None
        for media_type, data, size, digest in self._core.reader.select("task_result", task):
            if media_type is not None:
                return attempts.Payload(media_type, bytes(data or b""), digest, size or 0)
        return None

    def states(self, tasks: Iterable[ids.TaskId]) -> list[subscriptions.Change]:
        """The newest runs of those of `tasks` that there are, as they are on disk."""
        views = map(self.view, tasks)
        return [subscriptions.of_view(view) for view in views if view is not None]
