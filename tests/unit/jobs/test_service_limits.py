"""Limits that end a job early, limits of parallelism, and jobs while no service runs."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kilnwork.api import filejobs
from kilnwork.data import local_blobs, part_commits
from kilnwork.data.stores import port, store_urls
from kilnwork.jobs import engine, errors, file_job_types, prepare_queue
from support.job_world import NS, Entry, World

_P = filejobs.FileJobPhase
_O = filejobs.PartOutcome
PARSED: dict[str, Any] = {"mapper": {"function": "support.mapper_functions:same"}}
OLD = 1_000_000_000.0
Work = filejobs.PartWork | filejobs.ReduceWork


def lines(number: int) -> bytes:
    return b"".join(b'{"n":%d}\n' % n for n in range(1, number + 1))


def half_bad(number: int) -> bytes:
    return b"".join(b"oops\n" if n % 2 else b'{"n":%d}\n' % n for n in range(1, number + 1))


def failing(*parts: int) -> Callable[[Work], str]:
    def why(work: Work) -> str:
        number = work.part.number if isinstance(work, filejobs.PartWork) else 0
        return f"part {number} cannot" if number in parts else ""

    return why


async def test_bad_records_are_counted_and_reported(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        view = await world.create(half_bad(20) + b"\n\n", itemsPerPart=5, **PARSED)
        done = await world.finished(view.id)
        assert done.phase is _P.SUCCEEDED
        assert done.progress.records == filejobs.Records(
            total=22, succeeded=10, failed=10, skipped=2
        )
        assert done.progress.errors is not None
        assert done.progress.errors.lines == 10


@pytest.mark.parametrize("tolerance", [{"maxFailedRecords": 4}, {"maxFailedPercent": 11.0}])
async def test_job_fails_beyond_tolerated_bad_records(
    tmp_path: Path, tolerance: dict[str, Any]
) -> None:
    async with World(tmp_path) as world:
        view = await world.create(half_bad(40), itemsPerPart=2, **PARSED, **tolerance)
        done = await world.finished(view.id)
        assert (done.phase, done.reason) == (_P.FAILED, "TooManyBadRecords")
        assert done.progress.records.failed == 5
        assert done.parts.cancelled + done.parts.succeeded == 20
        assert done.parts.succeeded == done.progress.records.failed
        with pytest.raises(errors.NotNow, match="nothing to pause"):
            await world.jobs.adjust(NS, view.id, file_job_types.Adjustment(suspend=True))
        change = file_job_types.Adjustment(max_failed_records=None, max_failed_percent=None)
        await world.jobs.adjust(NS, view.id, change)
        await world.jobs.redrive(NS, view.id)
        assert (await world.finished(view.id)).phase is _P.SUCCEEDED
        with pytest.raises(errors.NotNow, match="only ttlSecondsAfterFinished"):
            await world.jobs.adjust(NS, view.id, change)


async def test_tolerance_may_be_raised_while_job_runs(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        view = await world.create(half_bad(40), itemsPerPart=2, maxFailedRecords=4, **PARSED)
        await world.running(view.id, 2)
        await world.jobs.adjust(NS, view.id, file_job_types.Adjustment(max_failed_records=None))
        assert (await world.finished(view.id)).phase is _P.SUCCEEDED


async def test_bad_record_fails_job_with_policy_fail(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        world.dispatcher.slots = 1
        content = lines(4) + b"oops\n" + lines(80)
        view = await world.create(content, itemsPerPart=4, badRecords="fail", **PARSED)
        done = await world.finished(view.id)
        assert (done.phase, done.reason) == (_P.FAILED, "PartFailed")
        assert (done.parts.succeeded, done.parts.failed) == (1, 1)


async def test_any_failed_part_fails_job_with_policy_fail(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        world.dispatcher.slots = 1
        world.dispatcher.broken = failing(2)
        view = await world.create(lines(20), itemsPerPart=1, badRecords="fail")
        done = await world.finished(view.id)
        assert (done.phase, done.reason) == (_P.FAILED, "PartFailed")
        assert (done.parts.succeeded, done.parts.failed) == (1, 1)


async def test_always_failing_mapper_does_not_run_for_every_part(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        world.dispatcher.broken = failing(*range(1, 101))
        view = await world.create(lines(100), itemsPerPart=1, maxCrashes=3)
        done = await world.finished(view.id)
        assert (done.phase, done.reason) == (_P.FAILED, "MapperCrashes")
        assert len(world.dispatcher.ran) <= 3 + world.dispatcher.slots


async def test_circuit_breaker_is_off_after_one_success(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        world.dispatcher.broken = failing(*range(2, 21))
        view = await world.create(lines(20), itemsPerPart=1, maxCrashes=3)
        done = await world.finished(view.id)
        assert (done.reason, done.parts.failed) == ("PartsFailed", 19)


async def test_parallelism_can_be_changed_while_job_runs(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        world.dispatcher.slots = 8
        view = await world.create(lines(40), itemsPerPart=1, parallelism=2, maxCrashes=0)
        await world.until(lambda: len(world.dispatcher.queued) == 2, step=False)
        for entry in world.dispatcher.queued:
            world.dispatcher.begin(entry)
        await world.jobs.adjust(NS, view.id, file_job_types.Adjustment(parallelism=6))
        await world.until(lambda: len(world.dispatcher.queued) == 4, step=False)
        await world.jobs.adjust(NS, view.id, file_job_types.Adjustment(parallelism=3))
        await world.until(lambda: len(world.dispatcher.queued) == 1, step=False)
        done = await world.finished(view.id)
        assert world.result(done) == lines(40)
        with pytest.raises(errors.NotNow, match=r"Succeeded: only a job .* is run again"):
            await world.jobs.redrive(NS, view.id)


async def test_invalid_adjustment_is_refused_with_field(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        view = await world.create(lines(40), itemsPerPart=1, suspend=True)
        with pytest.raises(errors.InvalidJob, match="parallelism"):
            await world.jobs.adjust(NS, view.id, file_job_types.Adjustment(parallelism=0))
        with pytest.raises(errors.NotNow, match="Paused: only a job that failed or was cancelled"):
            await world.jobs.redrive(NS, view.id)
        with pytest.raises(errors.NoSuchJob):
            await world.jobs.cancel("elsewhere", view.id)
        manifest = world.jobs.manifest(NS, view.id)
        torn = msgspec.structs.replace(manifest, parts=manifest.parts[:-1])
        new = file_job_types.NewJob(
            id=world.jobs.new_id(), namespace=NS, spec=view.spec, manifest=torn, inline=lines(40)
        )
        with pytest.raises(errors.InvalidJob, match=r"^manifest: "):
            await world.jobs.create(new)
        assert [one.id for one in world.jobs.jobs(NS)[0]] == [view.id]


async def test_suspended_new_job_is_not_stored(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        view = await world.create(lines(5), inline=True, suspend=True)
        assert not list(world.jobs.store.list())
        await world.restart()
        assert world.view(view.id).phase is _P.PAUSED
        await world.jobs.resume(NS, view.id)
        assert world.result(await world.finished(view.id)) == lines(5)
        other = await world.create(lines(5), inline=True, suspend=True)
        await world.jobs.cancel(NS, other.id)
        assert (await world.finished(other.id)).phase is _P.CANCELLED
        await world.jobs.redrive(NS, other.id)
        assert world.result(await world.finished(other.id)) == lines(5)


async def test_expired_jobs_are_deleted(tmp_path: Path) -> None:
    async with World(tmp_path, ttl_s=100.0) as world:
        short = await world.create(lines(5), ttlSecondsAfterFinished=10)
        usual = await world.create(lines(5))
        for view in (short, usual):
            await world.finished(view.id)
        upkeep = world.jobs.upkeep
        assert await upkeep.expire() == 0
        world.clock.advance(11)
        assert await upkeep.expire() == 1
        assert world.jobs.job(NS, short.id) is None
        assert await world.jobs.wait_for_change(NS, short.id, version=0, timeout_s=1) is None
        world.clock.advance(90)
        assert await upkeep.expire() == 1
        await world.until(lambda: not list(world.jobs.store.list()), what="nothing left")
        await world.until(lambda: not world.jobs._engine.live)
        assert world.jobs._tables.list_jobs("unfinished_jobs", 0, 10) == []


async def test_clock_jump_does_not_expire_jobs(tmp_path: Path) -> None:
    """The clock jumps forward and back, or backward and forward."""
    async with World(tmp_path, ttl_s=3600.0) as world:
        upkeep, made = world.jobs.upkeep, []
        for jump in (7 * 86_400.0, -7 * 86_400.0, -7 * 86_400.0, 7 * 86_400.0):
            view = await world.create(lines(5))
            await world.finished(view.id)
            made.append(view.id)
            lost = world.jobs.new_id()
            world.jobs.store.put(f"{NS}/{lost.dashed}/input", b"x\n")
            assert await upkeep.expire() == 0
            world.clock.jump(jump)
            assert await upkeep.expire() == 0
            assert await upkeep.sweep() == 0
        world.clock.advance(3601)
        assert await upkeep.expire() >= len(made) - 1
        world.clock.advance(7 * 86_400)
        await upkeep.expire()
        await world.until(lambda: not any(world.jobs.job(NS, one) for one in made))


async def test_old_uploads_without_job_are_deleted(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        view = await world.create(lines(5))
        lost = world.jobs.new_id()
        world.jobs.store.put(f"{NS}/{lost.dashed}/input", b"x\n")
        await world.finished(view.id)
        upkeep = world.jobs.upkeep
        assert await upkeep.sweep() == 0
        world.clock.advance(10 * 365 * 86_400)
        assert await upkeep.sweep() == 1
        assert not list(world.jobs.store.list(f"{NS}/{lost.dashed}/"))
        assert world.result(world.view(view.id)) == lines(5)


async def test_empty_journal_is_filled_from_the_store(tmp_path: Path) -> None:
    world = await World(tmp_path).start()
    done = await world.create(lines(20), itemsPerPart=4)
    await world.finished(done.id)
    world.dispatcher.broken = failing(2)
    failed = await world.create(lines(20), itemsPerPart=4)
    await world.finished(failed.id)
    world.dispatcher.broken = failing()
    half = await world.create(lines(20), itemsPerPart=4)
    await world.running(half.id, 2)
    before = [world.view(one.id) for one in (done, failed)]
    await world.stop()
    for file in tmp_path.glob("journal.db*"):
        file.unlink()
    await world.restart()
    for old in before:
        new = world.view(old.id)
        assert (new.phase, new.parts, new.progress, new.created) == (
            old.phase, old.parts, old.progress, old.created,
        )  # fmt: skip
    finished = await world.finished(half.id)
    assert (finished.run, world.result(finished)) == (2, lines(20))
    await world.jobs.redrive(NS, failed.id)
    assert world.result(await world.finished(failed.id)) == lines(20)
    await world.stop()


async def test_open_parts_continue_in_new_run_after_journal_loss(tmp_path: Path) -> None:
    world = await World(tmp_path).start()
    view = await world.create(lines(20), itemsPerPart=4)
    await world.running(view.id, 2)
    zombie = next(one for one in world.dispatcher.tasks.values() if not one.state.final)
    await world.stop()
    world.dispatcher.tasks.clear()
    for file in tmp_path.glob("journal.db*"):
        file.unlink()
    await world.restart()
    await world.until(lambda: world.dispatcher.tasks, step=False)
    world.dispatcher.finish(zombie)
    done = await world.finished(view.id)
    assert (done.run, world.result(done)) == (2, lines(20))
    await world.stop()


async def test_task_success_without_commit_record_reopens_part(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        view = await world.create(lines(20), itemsPerPart=4)
        directory = world.directory_of(view)
        entry = await _first(world)
        world.dispatcher.begin(entry)
        entry.state = type(entry.state).SUCCESS
        world.dispatcher.tell(entry)
        done = await world.finished(view.id)
        assert world.result(done) == lines(20)
        assert done.run == 2
        assert part_commits.find(directory, 1, 1) is None
        assert part_commits.find(directory, 1, 2) is not None


async def _first(world: World) -> Entry:
    await world.until(lambda: world.dispatcher.queued, step=False)
    return world.dispatcher.queued[0]


async def test_wrong_record_counts_fail_the_part(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        view = await world.create(lines(20), itemsPerPart=4)
        lie = filejobs.Commit(
            part=2, run=1, attempt=1, outcome=_O.SUCCEEDED,
            records=filejobs.Records(total=3, succeeded=3),
        )  # fmt: skip
        part_commits.publish(world.directory_of(view), lie)
        done = await world.finished(view.id)
        assert (done.phase, done.parts.failed) == (_P.FAILED, 1)
        assert "4 records, but 3 succeeded" in done.message


async def test_jobs_beyond_memory_limit_wait_in_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "MAX_LIVE", 4)
    monkeypatch.setattr(prepare_queue, "MAX_PREPARED", 2)
    async with World(tmp_path) as world:
        views = [await world.create(lines(3), inline=True) for _ in range(12)]
        assert len(world.jobs._engine.live) <= 5
        await world.jobs.cancel(NS, views[-1].id)
        for view in views[:-1]:
            assert world.result(await world.finished(view.id)) == lines(3)
        assert (await world.finished(views[-1].id)).phase is _P.CANCELLED


async def test_shared_input_stays_when_job_is_deleted(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        first = await world.create(lines(20), itemsPerPart=4)
        await world.finished(first.id)
        world.jobs.store.put("_files/one", lines(20))
        new = file_job_types.NewJob(
            id=world.jobs.new_id(),
            namespace=NS,
            spec=first.spec,
            manifest=world.jobs.manifest(NS, first.id),
            source="_files/one",
        )
        view, made = await world.jobs.create(new)
        assert made
        assert world.result(await world.finished(view.id)) == lines(20)
        await world.jobs.delete(NS, view.id)
        await world.until(lambda: not list(world.jobs.store.list(f"{NS}/{view.dashed}/")))
        assert port.read_all(store_urls.open_store(world.jobs.store.url), "_files/one") == lines(20)


async def test_watch_returns_on_each_change_and_at_the_end(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        view = await world.create(lines(20), itemsPerPart=4)
        seen = [view]

        async def look() -> None:
            found = await world.jobs.wait_for_change(
                NS, view.id, version=seen[-1].version, timeout_s=0.001
            )
            assert found is not None
            if found.version > seen[-1].version:
                seen.append(found)

        while not seen[-1].phase.final:
            world.dispatcher.step()
            await look()
        assert [one.version for one in seen] == sorted({one.version for one in seen})
        assert len(seen) > 3
        await world.restart()
        assert world.view(view.id).version == seen[-1].version


async def test_mapper_blobs_are_renewed_while_job_may_run(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        kept = local_blobs.Blobs(tmp_path / "blobs" / NS, durable=False, time=world.clock)
        digests = [kept.put([content])[0] for content in (b"mapper", b"reducer")]
        code, environment = (local_blobs.text(digest) for digest in digests)
        view = await world.create(
            lines(5),
            suspend=True,
            mapper={"function": "m:f", "environment": environment},
            reducer={"function": "m:r", "code": code},
        )
        await world.create(lines(5))
        _age(kept, digests)
        await world.jobs.upkeep.renew()
        assert min(one.modified for one in kept.entries()) > OLD
        await world.jobs.delete(NS, view.id)
        _age(kept, digests)
        await world.jobs.upkeep.renew()
        assert {one.modified for one in kept.entries()} == {OLD}


def _age(kept: local_blobs.Blobs, digests: list[bytes]) -> None:
    for digest in digests:
        os.utime(kept.path(digest), (OLD, OLD))
