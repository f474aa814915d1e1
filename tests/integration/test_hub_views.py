"""What is read of a task for those who follow it: once after each change of what is stored."""

from pathlib import Path

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import hub
from kilnwork.dispatch.journal import memory_store, task_rows
from kilnwork.dispatch.machine import instructions
from kilnwork.kit import ids
from support import hubs

POD = api_task.PodTemplate(spec={"containers": []})
SUCCEEDED = attempts.Outcome(attempts.Ending.SUCCEEDED, "Succeeded")


class Counting(memory_store.MemoryStore):
    """Counts how often the row of a task is read."""

    reads = 0

    def task_row(self, task: ids.TaskId, *, run: int | None = None) -> task_rows.TaskRow | None:
        self.reads += 1
        return super().task_row(task, run=run)


async def followed(dispatcher: hub.Hub, since: int) -> tuple[int, model.TaskView]:
    """The newest change of the only task."""
    since, changed = await dispatcher.changes(since)
    return since, changed[-1]


async def test_what_is_only_observed_is_shown_and_costs_no_reading(tmp_path: Path) -> None:
    kept = Counting()
    async with hubs.running(tmp_path, kept=kept) as dispatcher:
        given: list[instructions.ForExecutor] = []
        link = await dispatcher.join_executor("pod", capacity=9, receive=given.append)
        spec = api_task.TaskSpec(pod=POD, cluster_name="c")
        task = model.Submission(task=ids.new_task_id(), namespace="ns", name="t", spec=spec)
        await dispatcher.submit(task)
        since, view = await followed(dispatcher, 1)
        assert view.state is api_task.State.STAGING
        before, ref = kept.reads, attempts.AttemptRef(task.task, 1, 1)
        for number in range(3):
            link.observed(ref, model.Observed("Starting", f"pulls {number}", f"node-{number}"))
            since, view = await followed(dispatcher, since)
            assert (view.message, view.node) == (f"pulls {number}", f"node-{number}")
        assert kept.reads == before
        link.started(ref, at=5.0)
        since, view = await followed(dispatcher, since)
        assert (view.state, view.node) == (api_task.State.RUNNING, "node-2")
        assert view.started is not None
        assert view == hubs.view(dispatcher, task.task)
        await link.finished(ref, SUCCEEDED)
        since, view = await followed(dispatcher, since)
        assert view.state is api_task.State.SUCCESS
        assert dispatcher.view(task.task) == view
