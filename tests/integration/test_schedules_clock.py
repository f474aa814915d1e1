"""Schedules under a changing wall clock: nothing runs twice, and missed runs follow their
policy.
"""

from collections.abc import AsyncIterator

import pytest

from kilnwork.kit import clock
from support import schedule_world, short_paths

HOUR = 3600
POLICIES = ("None", "Latest", "All")
EACH = 5
"""JobConfigs of each policy."""


@pytest.fixture
async def world() -> AsyncIterator[schedule_world.World]:
    async with schedule_world.running(short_paths.directory()) as made:
        made.clock.now = (made.clock.now // 60 + 1) * 60 + 30  # no tick is near
        yield made


async def configs(world: schedule_world.World) -> dict[str, dict[str, str]]:
    """Create JobConfigs of each policy whose ticks up to now have passed; return uids by name, by
    policy.
    """
    begin = clock.rfc3339(world.clock.wall())
    return {
        policy: {
            name: await world.config(
                name, lastUpdated=begin, missedRuns={"policy": policy, "maxRuns": 1000}
            )
            for name in (f"{policy.lower()}-{n}" for n in range(EACH))
        }
        for policy in POLICIES
    }


def ticks(begin: float, end: float) -> list[int]:
    """Return the minutes after `begin`, up to and including `end`."""
    return list(range(int(begin) // 60 * 60 + 60, int(end) + 1, 60))


async def wait_until_decided(
    world: schedule_world.World, made: dict[str, dict[str, str]], tick: int
) -> None:
    for uids in made.values():
        for uid in uids.values():
            await world.wait_until_settled(uid, tick)


async def wait_for_condition(
    world: schedule_world.World, made: dict[str, dict[str, str]], why: str
) -> None:
    """Wait until the condition of each JobConfig's schedule has this reason."""

    async def reached() -> bool:
        names = [name for uids in made.values() for name in uids]
        shown = [await world.read_config(name) for name in names]
        found = [{c.type: c.reason for c in one.status.conditions} for one in shown]
        return all(one.get("Scheduled") == why for one in found)

    await world.until(reached, f"all JobConfigs say {why}")


async def run_counts(
    world: schedule_world.World, made: dict[str, dict[str, str]], policy: str
) -> list[dict[int, int]]:
    return [await world.count_runs(uid) for uid in made[policy].values()]


async def test_clock_moved_forward_and_back_by_an_hour(world: schedule_world.World) -> None:
    made = await configs(world)
    await world.start()
    await wait_for_condition(world, made, "Scheduled")
    begin = world.clock.wall()
    world.set_clock(HOUR)
    missed = ticks(begin, begin + HOUR)
    await wait_until_decided(world, made, missed[-1])
    expected = {"None": [], "Latest": missed[-1:], "All": missed[-32:]}
    for policy in POLICIES:
        for row in made[policy].values():
            found = world.services.indexes.schedule(row)
            assert found is not None
            assert sorted(found.taken) == expected[policy]
            assert sum(found.dropped.values()) == {"None": 60, "Latest": 59, "All": 0}[policy]
    world.set_clock(-HOUR)
    await wait_for_condition(world, made, "ClockBehind")
    await world.restart()
    world.set_clock(HOUR - 60)
    await wait_for_condition(world, made, "ClockBehind")
    jobs = await world.jobs()
    assert len(jobs) == EACH * (0 + 1 + 60), "nothing runs twice, whatever was decided before"
    world.set_clock(95)  # 5 s after a tick: on time
    [following] = ticks(begin + HOUR, world.clock.wall())
    await wait_until_decided(world, made, following)
    assert await run_counts(world, made, "None") == [{following: 1}] * EACH
    assert await run_counts(world, made, "Latest") == [{missed[-1]: 1, following: 1}] * EACH
    assert len(await world.jobs()) == EACH * (1 + 2 + 61)


@pytest.mark.parametrize("wrong_s", [-HOUR, HOUR])
async def test_clock_wrong_at_boot(world: schedule_world.World, wrong_s: int) -> None:
    made = await configs(world)
    begin = world.clock.wall()
    world.set_clock(wrong_s)
    await world.start()
    if wrong_s > 0:
        await wait_until_decided(world, made, ticks(begin, begin + HOUR)[-1])
        world.set_clock(-wrong_s)
        await wait_for_condition(world, made, "ClockBehind")
        assert (
            await run_counts(world, made, "Latest") == [{ticks(begin, begin + HOUR)[-1]: 1}] * EACH
        )
        return
    await wait_for_condition(world, made, "Scheduled")  # as if its creation were still to come
    assert await world.jobs() == []
    world.set_clock(-wrong_s + 135)
    due = ticks(begin, begin + 135)
    await wait_until_decided(world, made, due[-1])
    assert await run_counts(world, made, "None") == [{}] * EACH
    assert await run_counts(world, made, "Latest") == [{due[-1]: 1}] * EACH
    assert await run_counts(world, made, "All") == [dict.fromkeys(due, 1)] * EACH
