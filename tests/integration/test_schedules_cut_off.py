"""Schedules whose manager is cut off at each of its writes: no run is lost or repeated."""

from collections.abc import AsyncIterator

import pytest

from support import schedule_world, short_paths

MINUTES = 2
LIVES = 24
"""More writes than a manager makes until the Jobs of two ticks are taken up (see below)."""

ALL = {"missedRuns": {"policy": "All", "maxRuns": 1000}}


@pytest.fixture
async def world() -> AsyncIterator[schedule_world.World]:
    async with schedule_world.running(short_paths.directory()) as made:
        yield made


async def config_with_due_ticks(world: schedule_world.World) -> tuple[str, list[int]]:
    """Create a JobConfig two of whose ticks have passed when the manager starts; return its uid and
    these ticks.
    """
    uid = await world.config("nightly", **ALL)
    begin = int(world.clock.wall())
    first = (begin // 60 + 1) * 60
    world.clock.now = first + 60 * (MINUTES - 1) + 1
    return uid, [first + 60 * n for n in range(MINUTES)]


async def wait_until_cut_off(world: schedule_world.World, uid: str, tick: int) -> None:
    """Wait until the manager was cut off, or has nothing left to do."""
    await world.until(lambda: world.fuse.blown or world.is_settled(uid, tick), "this life is over")


@pytest.mark.parametrize("cut_at", range(LIVES))
async def test_each_tick_runs_once(world: schedule_world.World, cut_at: int) -> None:
    uid, ticks = await config_with_due_ticks(world)
    await world.start(cut_at=cut_at)
    await wait_until_cut_off(world, uid, ticks[-1])
    await world.restart()
    await world.wait_until_settled(uid, ticks[-1])
    assert await world.count_runs(uid) == dict.fromkeys(ticks, 1)


async def test_every_write_of_a_run_can_be_cut_off(world: schedule_world.World) -> None:
    uid, ticks = await config_with_due_ticks(world)
    await world.start()
    await world.wait_until_settled(uid, ticks[-1])
    steps = world.fuse.steps
    assert len(steps) <= LIVES
    for step in ("decide", "POST namespaces/default/jobs", "put"):
        assert f"before {step}" in steps
        assert f"after {step}" in steps


async def test_restarting_manager_creates_each_job_once(
    world: schedule_world.World,
) -> None:
    uid, ticks = await config_with_due_ticks(world)
    for cut_at in (1, 3, 5, 7):
        await world.start(cut_at=cut_at)
        await wait_until_cut_off(world, uid, ticks[-1])
        await world.end()
    await world.start()
    await world.wait_until_settled(uid, ticks[-1])
    assert await world.count_runs(uid) == dict.fromkeys(ticks, 1)
