"""Jobs in a store are found again if the journal is older than the store or missing."""

from pathlib import Path

from support.job_world import NS, World


def lines(count: int) -> bytes:
    return b"".join(b'{"n":%d}\n' % n for n in range(count))


async def test_jobs_missing_in_restored_journal_are_adopted(tmp_path: Path) -> None:
    world = await World(tmp_path).start()
    before = await world.finished((await world.create(lines(8), itemsPerPart=4)).id)
    await world.stop()
    backup = (tmp_path / "journal.db").read_bytes()
    await world.restart()
    done = await world.finished((await world.create(lines(20), itemsPerPart=4)).id)
    half = await world.create(lines(20), itemsPerPart=4)
    await world.running(half.id, 2)
    await world.stop()
    (tmp_path / "journal.db").write_bytes(backup)
    await world.restart()
    assert world.jobs.job(NS, done.id) is None
    for _ in range(2):
        assert await world.jobs.upkeep.sweep() == 0
    new = world.view(done.id)
    assert (new.phase, new.parts, new.progress, new.created) == (
        done.phase, done.parts, done.progress, done.created,
    )  # fmt: skip
    assert world.result(await world.finished(half.id)) == lines(20)
    listed, _ = world.jobs.jobs(NS)
    assert {one.id for one in listed} == {before.id, done.id, half.id}
    await world.restart()
    assert world.result(world.view(done.id)) == lines(20)
    await world.stop()


async def test_job_rebuilt_from_store_expires(tmp_path: Path) -> None:
    world = await World(tmp_path).start()
    done = await world.finished((await world.create(lines(8), itemsPerPart=4)).id)
    await world.stop()
    for file in tmp_path.glob("journal.db*"):
        file.unlink()
    await world.restart()
    again = world.view(done.id)
    assert again.expires is not None
    assert again.finished is not None
    assert again.expires - again.finished == 7 * 86_400
    await world.stop()
