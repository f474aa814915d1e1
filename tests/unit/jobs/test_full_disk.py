"""If the journal cannot be written, new calls get an error and running jobs continue."""

import asyncio
from pathlib import Path

import apsw
import pytest

from kilnwork.jobs import errors
from support.job_world import NS, Fuse, World


class Full(Fuse):
    """A journal that fails as if the disk were full while `full` is set."""

    full = False

    def burn(self, what: str) -> None:
        super().burn(what)
        if self.full and what == "before commit":
            raise apsw.FullError("database or disk is full")


async def test_requests_fail_while_disk_is_full(tmp_path: Path) -> None:
    disk = Full()
    async with World(tmp_path, fuse=disk) as world:
        there = await world.create(b"1\n")
        disk.full = True
        begun = asyncio.create_task(world.create(b"2\n"))
        while world.dispatcher.refused is None:
            await asyncio.sleep(0.005)
        for late in (world.create(b"3\n"), world.jobs.cancel(NS, there.id)):
            with pytest.raises(errors.JobsStopped, match="disk is full; ask"):
                await late
        disk.full = False
        assert (await world.finished((await begun).id)).phase == "Succeeded"
        assert (await world.finished(there.id)).phase == "Succeeded"
        assert len(world.jobs.jobs(NS)[0]) == 2
