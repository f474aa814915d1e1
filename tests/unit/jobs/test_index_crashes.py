"""A Job that is killed before or after any write continues: no index is lost, none runs twice."""

import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kilnwork.api import job as api_job
from kilnwork.jobs import index_job_types, job_start_queue
from support import index_job_world, job_world

_P = api_job.Phase
CONFIG = str(uuid.UUID(int=7))
GROUP = job_start_queue.ConcurrencyGroup(
    config=CONFIG, name="nightly", policy=api_job.ConcurrencyPolicy.ENQUEUE
)

Story = Callable[[index_job_world.IndexWorld], Awaitable[None]]


def new(
    number: int, name: str, *, tick: int | None = None, **template: Any
) -> index_job_types.NewIndexJob:
    task = {"command": ["true"]}
    spec = {"template": {"taskTemplate": task, **template}}
    return index_job_types.NewIndexJob(
        uid=str(uuid.UUID(int=number)),
        namespace="ns",
        name=name,
        spec=msgspec.convert(spec, api_job.JobSpec),
        created=0.0,
        group=GROUP,
        tick=tick,
    )


async def end(world: index_job_world.IndexWorld, uid: str) -> index_job_types.IndexJobView:
    jobs = world.services.indexes

    def over() -> bool:
        view = jobs.view(uid)
        return view is not None and view.phase.final

    await world.until(over, what=f"the end of {uid}")
    found = jobs.view(uid)
    assert found is not None
    return found


HOOKS = [{"on": ["Running", "Succeeded", "Failed", "Killed"], "taskTemplate": {"command": ["h"]}}]


async def all_of_it(world: index_job_world.IndexWorld) -> None:
    """Two Jobs of a group, one after the other, with a finalizer and hooks, created by a tick."""
    finalizer = {"taskTemplate": {"command": ["sum"]}}
    decision = index_job_types.TickDecision(
        config=CONFIG, namespace="ns", name="nightly", tick=100, run=(100,)
    )
    first = new(
        1, "first", parallelism={"withCount": 4, "maxInFlight": 2}, finalizer=finalizer, hooks=HOOKS
    )
    second = new(2, "second", tick=100)

    async def decide() -> None:
        if world.services.indexes.schedule(CONFIG) is None:
            await world.services.indexes.decide(decision)

    await job_world.retry_in_new_lives(
        world,
        decide,
        lambda: world.services.indexes.put(first),
        lambda: world.services.indexes.put(second),
        lambda: end(world, first.uid),
        lambda: end(world, second.uid),
    )
    view = world.services.indexes.view(first.uid)
    assert view is not None
    assert (view.phase, view.counts.succeeded) == (_P.SUCCEEDED, 4)
    assert view.result is not None
    assert view.result.data == b'{"results":[1,1,1,1]}'
    other = world.services.indexes.view(second.uid)
    assert other is not None
    assert other.phase is _P.SUCCEEDED
    assert (other.started or 0.0) >= (view.finished or 0.0)
    row = world.services.indexes.schedule(CONFIG)
    assert row is not None
    assert (row.pending, row.taken) == ((), {100: second.uid})
    await job_world.retry_in_new_lives(world, lambda: ran(world, 8))
    assert Counter(world.dispatcher.ran) == Counter(
        [
            *(f"first-{number}" for number in range(4)),
            "first-finalizer",
            "first-hook-0-running",
            "first-hook-0-succeeded",
            "second-0",
        ]
    )


async def ran(world: index_job_world.IndexWorld, count: int) -> None:
    await world.until(lambda: len(world.dispatcher.ran) >= count, what="all tasks")


async def failed_and_run_again(world: index_job_world.IndexWorld) -> None:
    """A Job with a failed index, and its second run."""
    world.played.broken_names = {"job-1"}
    job = new(3, "job", parallelism={"withCount": 3, "maxInFlight": 1}, hooks=HOOKS)

    async def again() -> None:
        world.played.broken_names = set()
        await world.services.indexes.rerun(job.uid, 2)

    await job_world.retry_in_new_lives(
        world, lambda: world.services.indexes.put(job), lambda: end(world, job.uid)
    )
    view = world.services.indexes.view(job.uid)
    assert view is not None
    assert (view.phase, view.failed_indexes) == (_P.FAILED, "1")
    await job_world.retry_in_new_lives(world, again, lambda: second_end(world, job.uid))
    await job_world.retry_in_new_lives(world, lambda: ran(world, 8))
    assert Counter(world.dispatcher.ran) == Counter(
        {
            "job-0": 1,
            "job-1": 2,
            "job-2": 1,
            "job-hook-0-running": 2,
            "job-hook-0-failed": 1,
            "job-hook-0-succeeded": 1,
        }
    )


async def second_end(world: index_job_world.IndexWorld, uid: str) -> None:
    found = await end(world, uid)
    assert (found.run, found.phase) == (2, _P.SUCCEEDED)


async def killed_and_released(world: index_job_world.IndexWorld) -> None:
    """A Job that is killed while it runs, and then dropped from memory."""
    job = new(4, "job", parallelism={"withCount": 30, "maxInFlight": 2})

    async def some() -> None:
        await world.until(lambda: len(world.dispatcher.ran) >= 3, what="some tasks")

    async def gone() -> None:
        row = uuid.UUID(job.uid).bytes
        await world.until(lambda: not world.dispatcher.select("job_by_uuid", row))

    await job_world.retry_in_new_lives(
        world,
        lambda: world.services.indexes.put(job),
        some,
        lambda: world.services.indexes.kill(job.uid),
        lambda: end(world, job.uid),
    )
    view = world.services.indexes.view(job.uid)
    assert view is not None
    assert view.phase is _P.KILLED
    before = list(world.dispatcher.ran)
    assert max(Counter(before).values()) == 1
    await job_world.retry_in_new_lives(world, lambda: world.services.indexes.release(job.uid), gone)
    assert world.dispatcher.ran == before
    assert all(entry.state.final for entry in world.dispatcher.tasks.values())


STORIES = [all_of_it, failed_and_run_again, killed_and_released]


@pytest.mark.parametrize("story", STORIES)
async def test_job_without_crash_gives_expected_result(story: Story, tmp_path: Path) -> None:
    async with index_job_world.IndexWorld(tmp_path) as world:
        await story(world)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("story", STORIES)
async def test_job_survives_kill_at_any_write(story: Story, memory_path: Path) -> None:
    async with index_job_world.IndexWorld(memory_path / "whole") as world:
        await story(world)
        count = world.fuse.count
    assert count > 10
    for after in range(count):
        fuse = job_world.Fuse(after)
        world = index_job_world.IndexWorld(memory_path / str(after), fuse=fuse)
        while True:
            try:
                await world.start()
                break
            except job_world.CrashedHere:
                await world.stop()
                world.dispatcher.fuse = world.fuse = job_world.Fuse()
        try:
            await story(world)
            assert fuse.blown
        finally:
            await world.stop()
