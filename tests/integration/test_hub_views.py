"""Views for followers of tasks: the dispatcher does not read back what it has written."""

from pathlib import Path

import msgspec
import pytest

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import hub, task_views
from kilnwork.dispatch.journal import memory_store, task_rows
from kilnwork.dispatch.machine import instructions
from kilnwork.kit import ids
from support import hubs

POD = api_task.PodTemplate(spec={"containers": []})
SUCCEEDED = attempts.Outcome(attempts.Ending.SUCCEEDED, "Succeeded")


class Counting(memory_store.MemoryStore):
    """Journal that counts reads of task rows."""

    reads = 0

    def task_row(self, task: ids.TaskId, *, run: int | None = None) -> task_rows.TaskRow | None:
        self.reads += 1
        return super().task_row(task, run=run)


async def newest_change(dispatcher: hub.Hub, since: int) -> tuple[int, model.TaskView]:
    """Return the newest change of the only task."""
    since, changed = await dispatcher.changes(since)
    return since, changed[-1]


def stored(kept: Counting, view: model.TaskView) -> model.TaskView:
    """Return the view as it is read from the journal."""
    row = kept.task_row(view.task)
    assert row is not None
    return kept.view(row, seq=view.seq)


async def test_following_a_task_does_not_read_the_journal(tmp_path: Path) -> None:
    kept = Counting()
    async with hubs.running(tmp_path, kept=kept) as dispatcher:
        given: list[instructions.ForExecutor] = []
        link = await dispatcher.join_executor("pod", capacity=9, receive=given.append)
        spec = api_task.TaskSpec(pod=POD, cluster_name="c")
        task = model.Submission(task=ids.new_task_id(), namespace="ns", name="t", spec=spec)
        accepted = await dispatcher.submit(task)
        assert kept.reads == 1  # to find out whether it is in the journal
        since, view = await newest_change(dispatcher, 1)
        assert view.state is accepted.state is api_task.State.STAGING
        ref = attempts.AttemptRef(task.task, 1, 1)
        for number in range(3):
            link.observed(ref, model.Observed("Starting", f"pulls {number}", f"node-{number}"))
            since, view = await newest_change(dispatcher, since)
            assert (view.message, view.node) == (f"pulls {number}", f"node-{number}")
        link.started(ref, at=5.0)
        since, view = await newest_change(dispatcher, since)
        assert (view.state, view.node) == (api_task.State.RUNNING, "node-2")
        assert view.started is not None
        assert view == hubs.view(dispatcher, task.task)
        await link.finished(ref, SUCCEEDED)
        since, view = await newest_change(dispatcher, since)
        assert view.state is api_task.State.SUCCESS
        assert dispatcher.view(task.task) == view
        assert kept.reads == 1
        assert view == stored(kept, view)


async def test_next_run_replaces_what_was_kept_of_the_last(tmp_path: Path) -> None:
    kept = Counting()
    async with hubs.running(tmp_path, kept=kept) as dispatcher:
        link = await dispatcher.join_executor("pod", capacity=9, receive=lambda _: None)
        spec = api_task.TaskSpec(pod=POD, cluster_name="c")
        task = model.Submission(task=ids.new_task_id(), namespace="ns", name="t", spec=spec)
        await dispatcher.submit(task)
        await link.finished(attempts.AttemptRef(task.task, 1, 1), SUCCEEDED)
        assert hubs.view(dispatcher, task.task).state is api_task.State.SUCCESS
        again = msgspec.structs.replace(task, spec=msgspec.structs.replace(spec, run=2))
        view = await dispatcher.submit(again, force=True)
        assert (view.run, view.state) == (2, api_task.State.STAGING)
        await dispatcher.release([task.task])
        assert hubs.view(dispatcher, task.task).run == 2


async def test_newest_finished_tasks_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_views, "MAX_ENDED", 2)
    kept = Counting()
    async with hubs.running(tmp_path, kept=kept) as dispatcher:
        link = await dispatcher.join_executor("pod", capacity=9, receive=lambda _: None)
        spec = api_task.TaskSpec(pod=POD, cluster_name="c")
        tasks = [ids.new_task_id() for _ in range(3)]
        for number, task in enumerate(tasks):
            new = model.Submission(task=task, namespace="ns", name=f"t-{number}", spec=spec)
            await dispatcher.submit(new)
            await link.finished(attempts.AttemptRef(task, 1, 1), SUCCEEDED)
        before = kept.reads
        states = [hubs.view(dispatcher, task).state for task in tasks]
        assert states == [api_task.State.SUCCESS] * 3
        assert kept.reads == before + 1
