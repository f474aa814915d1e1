"""Files of killed attempts are deleted from the directory of a job, and no other files."""

import math
from pathlib import Path

from kilnwork.api import filejobs
from kilnwork.data.stores import local, store_urls
from kilnwork.jobs import job_directory
from support.job_world import NS, World

LINES = b"".join(b'{"n":%d}\n' % n for n in range(20))


def _first_fails(work: filejobs.PartWork | filejobs.ReduceWork) -> str:
    first = isinstance(work, filejobs.PartWork) and work.part.number == 1
    return "it cannot" if first else ""


async def test_files_of_killed_attempts_are_deleted(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        world.dispatcher.broken = _first_fails
        job = (await world.create(LINES, itemsPerPart=4)).id
        failed = await world.finished(job)
        directory = store_urls.open_store(
            store_urls.url_inside(world.jobs.store.url, *failed.directory.split("/"))
        )
        assert failed.finished is not None
        named = {facts.key for facts in directory.list()}
        for key in ("out/2-1-7.ndjson", "out/2-1-7.errors", "result/1-7.ndjson"):
            directory.put(key, b"x\n")
        assert job_directory.tidy(directory, after=0.0, before=failed.finished - 1) == 0
        assert job_directory.tidy(directory, after=failed.finished, before=math.inf) == 0
        assert job_directory.tidy(directory, after=0.0, before=math.inf) == 3
        assert {facts.key for facts in directory.list()} == named
        directory.put("out/1-2-1.ndjson", b"x\n")
        world.dispatcher.broken = lambda work: ""
        await world.jobs.redrive(NS, job)
        await world.until(lambda: world.dispatcher.queued, step=False, what="another run")
        assert job_directory.tidy(directory, after=0.0, before=math.inf) == 0
        assert world.result(await world.finished(job)) == LINES
        named = {facts.key for facts in directory.list()}
        directory.put("out/1-2-9.ndjson", b"x\n")
        await world.jobs.upkeep.sweep()
        assert directory.head("out/1-2-9.ndjson")
        world.clock.advance(10 * 365 * 86_400)
        await world.jobs.upkeep.sweep()
        assert {facts.key for facts in directory.list()} == named - {"out/1-2-1.ndjson"}


def test_purge_deletes_unfinished_files_too(tmp_path: Path) -> None:
    store = local.LocalStore(tmp_path)
    for key in ("job.json", "out/1-1-1.ndjson"):
        store.put(f"{NS}/one/{key}", b"x\n")
        store.put(f"{NS}/two/{key}", b"x\n")
    killed = store.writer(f"{NS}/one/out/2-1-1.ndjson")
    killed.write(b"x\n")
    del killed
    job_directory.purge(store, f"{NS}/one/")
    assert [path.name for path in (tmp_path / NS).iterdir() if path.is_dir()] == ["two"]
    assert len(list(store.list())) == 2
