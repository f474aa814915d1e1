"""A waiting job has a reason in words."""

from pathlib import Path

from kilnwork.api import filejobs
from support.job_world import NS, World


async def test_repeatedly_lost_part_is_shown_as_retrying(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        job = (await world.create(b"1\n2\n", itemsPerPart=1)).id
        await world.until(lambda: len(world.dispatcher.queued) == 2, step=False, what="tasks")
        assert world.view(job).reason == "WaitingForSlot"
        entry = world.dispatcher.queued[0]
        world.dispatcher.begin(entry)
        entry.message = "attempt 1 ended with ProcessKilled"
        world.dispatcher.lose(entry)
        await world.until(lambda: world.view(job).reason == "Retrying", step=False, what="shown")
        assert (
            world.view(job).message == "part 1 is tried again: attempt 1 ended with ProcessKilled"
        )
        assert (await world.finished(job)).reason == ""


async def test_suspended_job_with_finished_parts_is_reducing(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        job = (await world.create(b"1\n2\n", itemsPerPart=1)).id
        await world.jobs.pause(NS, job)
        assert world.view(job).reason == "Suspended"
        await world.jobs.resume(NS, job)
        await world.until(lambda: world.view(job).phase is filejobs.FileJobPhase.REDUCING)
        await world.jobs.pause(NS, job)
        assert (world.view(job).phase, world.view(job).reason) == (
            filejobs.FileJobPhase.REDUCING,
            "",
        )
        assert (await world.finished(job)).phase is filejobs.FileJobPhase.SUCCEEDED
