"""A service that is killed at any of its effects is continued by another: no loss, no repetition.

An effect is a commit of the journal, or an object written or deleted. The service is killed before
the effect, or after it but before the service has recorded it. Each scenario first runs without a
crash, which counts its effects, then once for each effect.
"""

import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kilnwork.api import filejobs
from support.job_world import NS, CrashedHere, Fuse, World, retry_in_new_lives

_P = filejobs.FileJobPhase
_O = filejobs.PartOutcome
CONTENT = b"".join(b'{"n":%d}\n' % n for n in range(1, 18))
Scenario = Callable[[World], Awaitable[None]]


async def job_of(world: World, **spec: object) -> str:
    found = ""

    async def create() -> None:
        nonlocal found
        found = (await world.create(CONTENT, key="k", **spec)).id  # type: ignore[arg-type]

    await retry_in_new_lives(world, create)
    return found


async def maps_and_reduces(world: World) -> None:
    job = await job_of(world, itemsPerPart=5)
    await retry_in_new_lives(world, lambda: world.finished(job))
    view = world.view(job)
    assert view.phase is _P.SUCCEEDED
    assert world.result(view) == CONTENT
    assert view.run == 1
    assert set(world.records(view)) == {(part, 1) for part in range(5)}
    assert len(world.dispatcher.ran) == 5, "no task was run twice"


async def maps_one_small_part(world: World) -> None:
    job = await job_of(world, inline=True)
    await retry_in_new_lives(world, lambda: world.finished(job))
    view = world.view(job)
    assert world.result(view) == CONTENT
    assert len(world.dispatcher.ran) == 1


async def is_cancelled_and_redriven(world: World) -> None:
    job = await job_of(world, itemsPerPart=5)

    async def cancel() -> None:
        await world.running(job, 1) if not world.view(job).phase.final else None
        await world.jobs.cancel(NS, job)

    async def redrive() -> None:
        if world.view(job).phase.final and world.view(job).phase is not _P.SUCCEEDED:
            await world.jobs.redrive(NS, job)

    await retry_in_new_lives(world, cancel, lambda: world.finished(job))
    view = world.view(job)
    assert view.phase is _P.CANCELLED
    done = view.parts.succeeded
    kept = {key for key, how in world.records(view).items() if how is _O.SUCCEEDED}
    assert len(kept) == done
    await retry_in_new_lives(world, redrive, lambda: world.finished(job))
    view = world.view(job)
    assert (view.phase, view.run) == (_P.SUCCEEDED, 2)
    assert world.result(view) == CONTENT
    again = {(part, run) for part, run in world.records(view) if part and run == 2}
    assert len(again) == 4 - done, "only what had not succeeded was redriven"


async def fails_and_is_redriven(world: World) -> None:
    job = await job_of(world, itemsPerPart=5)
    world.dispatcher.broken = lambda work: (
        "broken" if isinstance(work, filejobs.PartWork) and work.part.number % 2 else ""
    )
    await retry_in_new_lives(world, lambda: world.finished(job))
    view = world.view(job)
    assert (view.phase, view.parts.failed, view.parts.succeeded) == (_P.FAILED, 2, 2)
    world.dispatcher.broken = lambda _: ""

    async def redrive() -> None:
        if world.view(job).run == 1:
            await world.jobs.redrive(NS, job)

    await retry_in_new_lives(world, redrive, lambda: world.finished(job))
    view = world.view(job)
    assert (view.phase, view.run) == (_P.SUCCEEDED, 2)
    assert world.result(view) == CONTENT


async def is_deleted_while_it_runs(world: World) -> None:
    job = await job_of(world, itemsPerPart=5)
    directory = f"{NS}/{world.view(job).dashed}/"

    async def delete() -> None:
        if world.jobs.job(NS, job) is not None:
            await world.running(job, 1)
            await world.jobs.delete(NS, job)

    await retry_in_new_lives(world, delete)
    assert world.jobs.job(NS, job) is None

    async def swept() -> None:
        await world.until(
            lambda: not list(world.jobs.store.list(directory)), what="empty directory"
        )

    await retry_in_new_lives(world, swept)
    assert all(one.state.final for one in world.dispatcher.tasks.values())


async def loses_a_result_before_it_is_merged(world: World) -> None:
    job = await job_of(world, itemsPerPart=5)

    async def damage() -> None:
        await world.until(
            lambda: (
                (world.view(job).phase is _P.REDUCING and world.dispatcher.queued)
                or world.view(job).phase.final
            )
        )
        view = world.view(job)
        if view.run == 1 and not view.phase.final:
            world.directory_of(view).delete(["out/2-1-1.ndjson"])

    await retry_in_new_lives(world, damage, lambda: world.finished(job))
    view = world.view(job)
    assert view.phase is _P.SUCCEEDED, view.message
    assert world.result(view) == CONTENT


SCENARIOS: list[Scenario] = [
    maps_and_reduces,
    maps_one_small_part,
    is_cancelled_and_redriven,
    fails_and_is_redriven,
    is_deleted_while_it_runs,
    loses_a_result_before_it_is_merged,
]


async def play(directory: Path, scenario: Scenario, fuse: Fuse) -> None:
    world = World(directory, fuse=fuse)
    try:
        await world.start()
    except CrashedHere:
        await world.restart()
    try:
        await scenario(world)
    finally:
        await world.stop()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__)
async def test_service_may_be_killed_at_any_effect(memory_path: Path, scenario: Scenario) -> None:
    counted = Fuse()
    await play(memory_path / "whole", scenario, counted)
    assert counted.count > 10
    for number in range(counted.count):
        fuse = Fuse(after=number)
        try:
            await play(memory_path / str(number), scenario, fuse)
        except BaseException as error:
            error.add_note(f"killed at effect {number}: {fuse.blown}")
            raise


@pytest.mark.parametrize("seed", range(4))
async def test_service_may_be_killed_repeatedly(memory_path: Path, seed: int) -> None:
    print(f"seed {seed}")
    dice = random.Random(seed)
    for number, scenario in enumerate(SCENARIOS):
        world = World(memory_path / str(number), fuse=Fuse(dice.randrange(30)))
        world.hasty = dice
        left = [dice.randrange(1, 25) for _ in range(6)]
        original = world.restart

        async def restart(
            fuse: Fuse | None = None, left: list[int] = left, then: object = original
        ) -> None:
            await then(Fuse(left.pop()) if left else None)  # type: ignore[operator]

        world.restart = restart  # type: ignore[method-assign]
        try:
            await world.start()
        except CrashedHere:
            await world.restart()
        try:
            await scenario(world)
        finally:
            await world.stop()
