"""What the dispatcher is told of a job's tasks: gathered in a round, given in that order.

Used by the engine. Rounds do not wait for the dispatcher; what a later one says comes after what an
earlier one has said, so that nothing is ended before it was begun.
"""

import asyncio
import logging
from collections.abc import Callable

from kilnwork.api import task as api_task
from kilnwork.dispatch import errors as dispatch_errors
from kilnwork.dispatch import model as task_model
from kilnwork.dispatch.hub import subscriptions
from kilnwork.jobs import muscle
from kilnwork.kit import ids

log = logging.getLogger(__name__)


class Orders:
    """Of one round. `new`: tasks that never were before; `again`: others to run."""

    def __init__(self) -> None:
        self.new: list[task_model.Submission] = []
        self.again: list[task_model.Submission] = []
        self.held: list[ids.TaskId] = []
        self.let_go: list[ids.TaskId] = []
        self.killed: list[tuple[list[ids.TaskId], str]] = []

    def __bool__(self) -> bool:
        return bool(self.new or self.again or self.held or self.let_go or self.killed)


class Giver:
    """Gives orders, one round after the other. `heard` is told of tasks that were there before, or
    cannot be."""

    def __init__(
        self, hub: muscle.Muscle, heard: Callable[[list[subscriptions.Change]], None]
    ) -> None:
        self._hub, self._heard = hub, heard
        self._turn = asyncio.Lock()

    async def give(self, orders: Orders) -> None:
        """Return when the dispatcher has them on disk, or has stopped."""
        async with self._turn:
            try:
                await self._submit(orders.new, new=True)
                await self._submit(orders.again, new=False)
                for named, held in ((orders.held, True), (orders.let_go, False)):
                    if named:
                        await self._hub.suspend_many(named, suspended=held)
                for named, message in orders.killed:
                    await self._hub.kill_many(named, reason="Killed", message=message)
            except dispatch_errors.HubStopped:
                log.info("the dispatcher stopped before it had all orders")

    async def _submit(self, many: list[task_model.Submission], *, new: bool) -> None:
        if not many:
            return
        try:
            self._heard(await self._hub.submit_many(many, new=new))
        except dispatch_errors.TaskTooLarge as error:
            if len(many) == 1:
                self._heard([_refused(many[0], str(error))])
                return
            for one in many:
                await self._submit([one], new=new)


def _refused(submission: task_model.Submission, why: str) -> subscriptions.Change:
    """A task that cannot be: it has failed."""
    return subscriptions.Change(
        submission.task, submission.spec.run, api_task.State.FAILED, "TaskTooLarge", why, 0, 1, 0,
        "", None, False,
    )  # fmt: skip
