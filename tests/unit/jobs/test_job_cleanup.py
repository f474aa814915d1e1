"""Expired jobs are deleted a few at a time, even if the disk is slow."""

import asyncio
import threading
from pathlib import Path

import pytest

from kilnwork.jobs import job_cleanup
from support.job_world import NS, Fuse, World


class Gate(Fuse):
    """Blocks all deletions until it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.open = threading.Event()

    def burn(self, what: str) -> None:
        super().burn(what)
        if what == "before delete":
            assert self.open.wait(20)


async def test_expired_jobs_are_deleted_in_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_cleanup, "MAX_DELETIONS", 2)
    gate = Gate()
    async with World(tmp_path, fuse=gate) as world:
        for _ in range(5):
            await world.finished((await world.create(b"1\n", ttlSecondsAfterFinished=10)).id)
        world.clock.advance(11)
        expiring = asyncio.create_task(world.jobs.upkeep.expire())
        while len(world.jobs.jobs(NS)[0]) > 3:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.3)
        assert len(world.jobs.jobs(NS)[0]) == 3
        gate.open.set()
        assert await expiring == 5
        assert world.jobs.jobs(NS)[0] == []
