"""Retention: finished tasks are removed after a while with their output; others are kept."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.channel import messages
from kilnwork.dispatch import errors, model
from kilnwork.dispatch.hub import hub, retention
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids
from support import hubs, raw_worker

WEEK_S = 7 * 86_400.0


@pytest.fixture
def clock() -> clocks.ManualClock:
    return clocks.ManualClock()


@pytest.fixture
async def dispatcher(tmp_path: Path, clock: clocks.ManualClock) -> AsyncIterator[hub.Hub]:
    async with hubs.running(tmp_path, clock=clock, options=hub.HubOptions(lease_s=1e9)) as made:
        yield made


@pytest.fixture
async def worker(dispatcher: hub.Hub, tmp_path: Path) -> AsyncIterator[raw_worker.RawWorker]:
    async with raw_worker.RawWorker(tmp_path / "run" / "channel.sock", slots=2) as made:
        yield made


async def declare(dispatcher: hub.Hub, *, declared: bool = True) -> ids.TaskId:
    spec = api_task.TaskSpec(command=("true",))
    task = ids.new_task_id()
    name = f"t-{task.hex()}"
    await dispatcher.submit(
        model.Submission(task=task, namespace="ns", name=name, spec=spec, declared=declared)
    )
    return task


async def run_one(
    dispatcher: hub.Hub, worker: raw_worker.RawWorker, *, prints: bytes = b""
) -> ids.TaskId:
    task = await declare(dispatcher)
    run = await worker.expect(messages.Run)
    if prints:
        worker.say(messages.Log(run.ref, 0, prints))
        await worker.expect(messages.LogKept)
    await worker.wait_until_acknowledged(worker.succeed(run.ref))
    return task


async def followed(dispatcher: hub.Hub) -> set[ids.TaskId]:
    return {view.task for view in (await dispatcher.changes(0))[1]}


async def test_old_task_is_forgotten_with_its_output(
    dispatcher: hub.Hub, worker: raw_worker.RawWorker, clock: clocks.ManualClock
) -> None:
    task = await run_one(dispatcher, worker, prints=b"hello\n")
    directory = dispatcher.log_file(task, run=1, attempt=1).parent
    assert directory.exists()
    await dispatcher.release([task])
    clock.advance(WEEK_S - 1)
    await dispatcher.forget_old()
    assert dispatcher.view(task) is not None
    clock.advance(2)
    await dispatcher.forget_old()
    assert dispatcher.view(task) is None
    assert not directory.exists()


async def test_new_run_of_a_task_being_forgotten_keeps_its_output(
    dispatcher: hub.Hub,
    worker: raw_worker.RawWorker,
    clock: clocks.ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tasks = [await run_one(dispatcher, worker, prints=b"old") for _ in range(2)]
    await dispatcher.release(tasks)
    clock.advance(WEEK_S + 1)
    begun, submitted, delete = threading.Event(), threading.Event(), dispatcher.logs.delete

    def slow_delete(task: ids.TaskId) -> None:
        begun.set()
        assert submitted.wait(30)
        delete(task)

    monkeypatch.setattr(dispatcher.logs, "delete", slow_delete)
    forgetting = asyncio.create_task(dispatcher.forget_old())
    await asyncio.to_thread(begun.wait)
    spec = api_task.TaskSpec(command=("true",), run=2)
    again = model.Submission(task=tasks[1], namespace="ns", name="t", spec=spec)
    await dispatcher.submit(again, force=True)
    run = await worker.expect(messages.Run)
    worker.say(messages.Log(run.ref, 0, b"new"))
    await worker.expect(messages.LogKept)
    submitted.set()
    await forgetting
    assert dispatcher.view(tasks[0]) is None
    assert hubs.view(dispatcher, tasks[1]).run == 2
    assert dispatcher.log_file(tasks[1], run=2, attempt=1).read_bytes() == b"new"
    assert dispatcher.logs.has_output(tasks[1], new=True)


async def test_reader_of_a_task_being_forgotten_leaves_no_file_behind(
    dispatcher: hub.Hub, worker: raw_worker.RawWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await run_one(dispatcher, worker)
    monkeypatch.setattr(dispatcher._core.reader, "output", lambda _: b"from a row")
    with dispatcher._core.machine.memory.pins.retire((task,)):
        assert not dispatcher.log_file(task, run=1, attempt=1).exists()
    assert dispatcher.log_file(task, run=1, attempt=1).read_bytes() == b"from a row"


async def test_task_whose_object_exists_is_kept(
    dispatcher: hub.Hub, worker: raw_worker.RawWorker, clock: clocks.ManualClock
) -> None:
    task = await run_one(dispatcher, worker)
    clock.advance(100 * WEEK_S)
    await dispatcher.forget_old()
    assert dispatcher.view(task) is not None
    assert await followed(dispatcher) == {task}


async def test_unfinished_task_is_kept(dispatcher: hub.Hub, clock: clocks.ManualClock) -> None:
    task = await declare(dispatcher)
    await dispatcher.release([task])
    clock.advance(100 * WEEK_S)
    await dispatcher.forget_old()
    view = hubs.view(dispatcher, task)
    assert view.state is api_task.State.PENDING
    assert await followed(dispatcher) == {task}


async def test_task_tree_is_removed_from_its_root(
    dispatcher: hub.Hub, worker: raw_worker.RawWorker, clock: clocks.ManualClock
) -> None:
    parent = await declare(dispatcher)
    run = await worker.expect(messages.Run)
    worker.started(run.ref)
    spec = api_task.TaskSpec(command=("true",))
    worker.say(messages.Spawn(7, run.ref, 1, None, None, spec, None))
    assert (await worker.expect(messages.Response)).status == 201
    child = await worker.expect(messages.Run)
    worker.started(child.ref)
    worker.serial = 10
    done = attempts.Outcome(attempts.Ending.SUCCEEDED, "Succeeded", exit_code=0)
    await worker.wait_until_acknowledged(worker.finished(run.ref, done))
    await dispatcher.release([parent])
    clock.advance(2 * WEEK_S)
    await dispatcher.forget_old()
    assert dispatcher.view(parent) is not None, "its child is not over"
    await worker.wait_until_acknowledged(worker.finished(child.ref, done))
    await dispatcher.forget_old()
    assert dispatcher.view(parent) is None
    assert dispatcher.view(child.ref.task) is not None, "it ended just now"
    clock.advance(WEEK_S + 1)
    await dispatcher.forget_old()
    assert dispatcher.view(child.ref.task) is None


async def test_task_of_a_deleted_object_is_not_reported_at_start(
    dispatcher: hub.Hub, worker: raw_worker.RawWorker
) -> None:
    gone, stays = [await run_one(dispatcher, worker) for _ in range(2)]
    await dispatcher.release([gone])
    assert await followed(dispatcher) == {stays}
    assert dispatcher.view(gone) is not None, "it can still be asked for"


async def test_many_tasks_are_removed_in_small_batches(
    dispatcher: hub.Hub,
    worker: raw_worker.RawWorker,
    clock: clocks.ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    tasks = [await run_one(dispatcher, worker) for _ in range(5)]
    kept = tasks.pop(1)
    await dispatcher.release(tasks)
    clock.advance(WEEK_S + 1)
    await dispatcher.forget_old()
    assert [t for t in [*tasks, kept] if dispatcher.view(t) is not None] == [kept]


async def test_clock_jump_does_not_age_tasks(
    dispatcher: hub.Hub, worker: raw_worker.RawWorker, clock: clocks.ManualClock
) -> None:
    """Forward and back, backward and forward: tasks are removed when a week has really passed."""
    tasks = []
    for jump in (WEEK_S + 60, -WEEK_S - 60, -WEEK_S - 60, WEEK_S + 60):
        task = await run_one(dispatcher, worker)
        await dispatcher.release([task])
        tasks.append(task)
        clock.advance(1)
        await dispatcher.forget_old()
        clock.jump(jump)
        await dispatcher.forget_old()
        assert all(dispatcher.view(one) is not None for one in tasks)
    clock.advance(2 * WEEK_S + 120)  # also for tasks with a time in the future
    await dispatcher.forget_old()
    assert [one for one in tasks if dispatcher.view(one) is not None] == []


async def test_age_counts_on_in_the_next_dispatcher(
    tmp_path: Path, clock: clocks.ManualClock
) -> None:
    options = hub.HubOptions(lease_s=1e9, clock_file=tmp_path / "journal.clock")

    first = hubs.make(tmp_path, clock=clock, options=options)
    await first.start(tmp_path / "run" / "channel.sock")
    async with raw_worker.RawWorker(tmp_path / "run" / "channel.sock", slots=1) as one:
        task = await run_one(first, one)
    await first.release([task])
    await first.stop()
    assert (tmp_path / "journal.clock").exists()
    clock.jump(WEEK_S + 60)
    second = hubs.make(tmp_path, clock=clock, options=options)
    await second.start(tmp_path / "run" / "channel.sock")
    await second.forget_old()
    kept = second.view(task) is not None
    clock.advance(WEEK_S + 1)
    await second.forget_old()
    gone = second.view(task) is None
    await second.stop()
    assert (kept, gone) == (True, True)


async def run_many(
    dispatcher: hub.Hub, worker: raw_worker.RawWorker, clock: clocks.ManualClock, count: int
) -> list[ids.TaskId]:
    """Run tasks without an object, one an hour, to their ends."""
    found = []
    for _ in range(count):
        found.append(await run_one(dispatcher, worker, prints=b"x" * 1000))
        clock.advance(3600)
    await dispatcher.release(found)
    return found


def remaining(dispatcher: hub.Hub, tasks: list[ids.TaskId]) -> list[bool]:
    return [dispatcher.view(task) is not None for task in tasks]


async def test_prune_removes_only_the_requested_tasks(
    dispatcher: hub.Hub, worker: raw_worker.RawWorker, clock: clocks.ManualClock
) -> None:
    tasks = await run_many(dispatcher, worker, clock, 6)
    asked = model.Pruning(older_s=4.5 * 3600)
    would = await dispatcher.prune(asked, dry_run=True)
    assert would.tasks == 2
    assert would.size_bytes > 2000
    assert remaining(dispatcher, tasks) == [True] * 6
    assert await dispatcher.prune(asked) == would
    assert remaining(dispatcher, tasks) == [False] * 2 + [True] * 4
    assert (await dispatcher.prune(model.Pruning(older_s=0, namespace="other"))).tasks == 0
    assert (await dispatcher.prune(model.Pruning(older_s=0, keep=3))).tasks == 1
    assert (await dispatcher.prune(model.Pruning(older_s=0, free_bytes=1500))).tasks == 2
    assert remaining(dispatcher, tasks) == [False] * 5 + [True]
    assert sum(one.number for one in dispatcher.counts()) == 1


async def test_prune_keeps_tasks_that_just_ended(
    dispatcher: hub.Hub, worker: raw_worker.RawWorker, clock: clocks.ManualClock
) -> None:
    task = await run_one(dispatcher, worker)
    await dispatcher.release([task])
    clock.advance(retention.MIN_AGE_S - 1)
    assert (await dispatcher.prune(model.Pruning(older_s=0))).tasks == 0
    clock.advance(2)
    assert (await dispatcher.prune(model.Pruning(older_s=0))).tasks == 1


async def test_tasks_over_the_count_limit_are_removed_early(
    tmp_path: Path, clock: clocks.ManualClock
) -> None:
    keep = retention.RetentionLimits(tasks=2)
    options = hub.HubOptions(lease_s=1e9, keep=keep)
    async with (
        hubs.running(tmp_path, clock=clock, options=options) as dispatcher,
        raw_worker.RawWorker(tmp_path / "run" / "channel.sock", slots=2) as worker,
    ):
        tasks = await run_many(dispatcher, worker, clock, 4)
        await dispatcher.forget_old()
        assert remaining(dispatcher, tasks) == [False, False, True, True]


async def test_journal_size_limit_is_respected(tmp_path: Path, clock: clocks.ManualClock) -> None:
    options = hub.HubOptions(lease_s=1e9, keep=retention.RetentionLimits(size_bytes=1))
    async with (
        hubs.running(tmp_path, clock=clock, options=options) as dispatcher,
        raw_worker.RawWorker(tmp_path / "run" / "channel.sock", slots=2) as worker,
    ):
        tasks = await run_many(dispatcher, worker, clock, 3)
        await dispatcher.forget_old()
        assert remaining(dispatcher, tasks) == [False] * 3


async def test_single_task_can_be_forgotten(
    dispatcher: hub.Hub, worker: raw_worker.RawWorker
) -> None:
    task = await run_one(dispatcher, worker)
    with pytest.raises(errors.RunRefused, match="is an object: delete that"):
        await dispatcher.forget(task)
    await dispatcher.release([task])
    await dispatcher.forget(task)
    assert dispatcher.view(task) is None
    with pytest.raises(errors.RunRefused, match="does not know"):
        await dispatcher.forget(task)
    waits = await declare(dispatcher, declared=False)
    with pytest.raises(errors.RunRefused, match="cancel it first"):
        await dispatcher.forget(waits)
