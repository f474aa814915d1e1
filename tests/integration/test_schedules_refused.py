"""Ticks whose Jobs are refused, or deleted at once: all are counted, none waits for ever, none runs
twice.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kilnwork.api import api_resources, kinds, meta
from kilnwork.kit import clock
from support import schedule_world, short_paths

WHY = 'spec.type: Unsupported value: "Scheduled"'
NS = schedule_world.NS


@pytest.fixture
async def world() -> AsyncIterator[schedule_world.World]:
    async with schedule_world.running(short_paths.directory()) as made:
        made.clock.now = (made.clock.now // 60 + 1) * 60 + 30  # no tick is near
        yield made


async def start_with_due_tick(world: schedule_world.World, **missed: object) -> tuple[str, int]:
    """Start a manager with a JobConfig that has one due tick; return uid and tick."""
    up_to_now = clock.rfc3339(world.clock.wall())
    uid = await world.config("nightly", lastUpdated=up_to_now, missedRuns=missed)
    await world.start()
    await world.until(lambda: world.services.indexes.schedule(uid), "its schedule has begun")
    world.set_clock(31)  # 1 s after the tick
    return uid, int(world.clock.wall()) // 60 * 60


async def scheduled(world: schedule_world.World) -> meta.Condition | None:
    shown = await world.read_config("nightly")
    return next((c for c in shown.status.conditions if c.type == "Scheduled"), None)


async def until_refused(world: schedule_world.World, tick: int) -> meta.Condition:
    """Wait until the JobConfig reports that a Job cannot be created; return the condition."""

    async def refused() -> meta.Condition | None:
        found = await scheduled(world)
        return found if found is not None and found.reason == "JobNotMade" else None

    await world.until(refused, "the condition says so")
    found = await refused()
    assert found is not None
    assert f"nightly-{tick}" in found.message
    return found


async def until_missed(world: schedule_world.World, reasons: dict[str, int]) -> None:
    async def missed() -> bool:
        found = (await world.read_config("nightly")).status.missed
        return found is not None and found.reasons == reasons

    await world.until(missed, f"missed are {reasons}")


async def event_messages(world: schedule_world.World, reason: str) -> list[str]:
    listed = await world.kube.list(api_resources.EVENTS, NS, type=dict[str, Any])
    return [one["message"] for one in listed.items if one["reason"] == reason]


async def test_refused_job_is_created_when_allowed(world: schedule_world.World) -> None:
    await world.refuse_jobs()
    uid, tick = await start_with_due_tick(world)
    condition = await until_refused(world, tick)
    assert condition.status == "False"
    assert WHY in condition.message
    await world.refuse_jobs(refuse=False)
    await world.wait_until_settled(uid, tick)
    assert await world.count_runs(uid) == {tick: 1}

    async def well() -> bool:
        found = await scheduled(world)
        return found is not None and found.status == "True"

    await world.until(well, "the condition is gone")
    assert (await world.read_config("nightly")).status.missed is None


async def test_job_refused_for_too_long_is_missed(world: schedule_world.World) -> None:
    await world.refuse_jobs()
    uid, tick = await start_with_due_tick(world, withinSeconds=1)
    await until_missed(world, {"JobNotMade": 1})
    await world.refuse_jobs(refuse=False)
    world.set_clock(60)
    await world.wait_until_settled(uid, tick + 60)
    assert await world.count_runs(uid) == {tick + 60: 1}, "a dropped tick does not run later"

    async def reported() -> bool:
        messages = await event_messages(world, "JobNotMade")
        return all(any(text in one for one in messages) for text in (WHY, "makes no Job"))

    await world.until(reported, "kube events say so too")  # written beside the status


async def test_disabled_schedule_drops_waiting_ticks(world: schedule_world.World) -> None:
    await world.refuse_jobs()
    uid, tick = await start_with_due_tick(world)
    await until_refused(world, tick)
    await world.kube.merge_patch(
        kinds.JOB_CONFIGS, "nightly", {"spec": {"schedule": {"disabled": True}}}, NS
    )
    await until_missed(world, {"Disabled": 1})
    row = world.services.indexes.schedule(uid)
    assert row is not None
    assert row.pending == ()
    await world.refuse_jobs(refuse=False)
    await world.kube.merge_patch(
        kinds.JOB_CONFIGS, "nightly", {"spec": {"schedule": {"disabled": False}}}, NS
    )

    async def enabled() -> bool:
        return (await world.read_config("nightly")).status.state == "ReadyEnabled"

    await world.until(enabled, "it is enabled")
    world.set_clock(60)
    await world.wait_until_settled(uid, tick + 60)
    assert await world.count_runs(uid) == {tick + 60: 1}


async def test_deleted_config_drops_waiting_ticks(world: schedule_world.World) -> None:
    await world.refuse_jobs()
    uid, tick = await start_with_due_tick(world)
    await until_refused(world, tick)
    await world.kube.delete(kinds.JOB_CONFIGS, "nightly", NS)
    await world.until(lambda: world.services.indexes.schedule(uid) is None, "it is forgotten")
    await world.refuse_jobs(refuse=False)
    again = await world.config("nightly", lastUpdated=clock.rfc3339(world.clock.wall()))
    await world.until(lambda: world.services.indexes.schedule(again), "the new one has begun")
    world.set_clock(60)
    await world.wait_until_settled(again, tick + 60)
    assert await world.count_runs(again) == {tick + 60: 1}


async def test_job_deleted_before_the_engine_has_it_is_counted(world: schedule_world.World) -> None:
    world.jobs_accepted.clear()
    uid, tick = await start_with_due_tick(world)

    async def made() -> bool:
        return bool(await world.jobs())

    await world.until(made, "the Job is made")
    await world.kube.delete(kinds.JOBS, f"nightly-{tick}", NS)
    await until_missed(world, {"JobDeleted": 1})
    world.jobs_accepted.set()
    world.set_clock(60)
    await world.wait_until_settled(uid, tick + 60)
    assert await world.count_runs(uid) == {tick + 60: 1}, "it was made once"
