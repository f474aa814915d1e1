"""A job that waits says what for."""

from pathlib import Path

from kilnwork.api import filejobs
from support.job_world import NS, World


async def test_a_part_that_is_lost_again_and_again_is_no_lack_of_slots(tmp_path: Path) -> None:
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


async def test_a_pause_holds_parts_and_is_no_reason_once_they_are_done(tmp_path: Path) -> None:
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
