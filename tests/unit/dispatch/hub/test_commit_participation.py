"""Participants get the states of tasks with the counts that later changes of the tasks have."""

import random
from types import SimpleNamespace
from typing import Any, cast

from kilnwork.api import attempts, reasons
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import commit_participation, feed, subscriptions, task_views
from kilnwork.dispatch.journal import memory_store
from kilnwork.dispatch.machine import inputs, machine, memory
from kilnwork.jobs import item_states, transitions
from kilnwork.kit import ids
from support import index_records

TASK = ids.TaskId(bytes(16))


class StoredWorld:
    """One worker and one task, each batch of which is stored at once."""

    def __init__(self) -> None:
        self.memory = memory.Memory(lease_s=10, entropy=random.Random(0))
        self.machine = machine.Machine(self.memory)
        self.store = memory_store.MemoryStore()
        self.now = inputs.Moment(1000.0, 0.0)
        spec = api_task.TaskSpec(command=("true",))
        task = model.Submission(task=TASK, namespace="ns", name="t", spec=spec)
        self.apply(inputs.SubmitNew((task,)))
        self.apply(
            inputs.Join(
                link=1,
                session=bytes(16),
                namespace="ns",
                cluster="default",
                name="w",
                pod_uid="pod",
                node="n",
                slots=1,
            )
        )

    @property
    def ref(self) -> attempts.AttemptRef:
        return self.memory.tasks[TASK].ref

    def apply(self, item: inputs.Input) -> list[subscriptions.Change]:
        """Apply an input; return the changes of the task that a subscriber gets."""
        self.machine.handle(item, self.now)
        batch = self.machine.take(self.now)
        self.store.write(batch, lambda _: None)
        return subscriptions.of_batch(batch, {TASK})

    def participation(self) -> commit_participation.Participation:
        core = cast(Any, SimpleNamespace(machine=self.machine, reader=self.store))
        return commit_participation.Participation(
            core,
            subscriptions.Subscriptions(),
            cast(Any, None),
            views=task_views.TaskViews(core, feed.Feed()),
            cluster=lambda *_: None,
        )


def lose_excused(world: StoredWorld) -> None:
    """Lose an attempt that has started, because the server stops in order."""
    world.apply(inputs.Started(1, 1, world.ref, 1001.0))
    world.memory.closing = True
    lost = attempts.Outcome(attempts.Ending.LOST, reasons.Reason.WORKER_STOPPING, started=1001.0)
    world.apply(inputs.Finished(1, 2, world.ref, lost))
    world.memory.closing = False


def test_excused_loss_does_not_change_count_of_recovered_job() -> None:
    world = StoredWorld()
    lose_excused(world)
    job = index_records.job(1)
    job.items.set(1, item_states.ItemState.SUBMITTED)
    recovered = [(1, change) for change in world.participation().states([TASK])]
    transitions.record_recovered(job, (), recovered, now=2.0)
    assert 1 in job.tasks
    changes = world.apply(inputs.Kill(TASK, "Killed", "by the test"))
    assert changes
    for change in changes:
        transitions.apply_task_change(job, 1, change, now=3.0)
    assert job.loss_count == 0
