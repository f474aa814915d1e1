"""File jobs from creation to their end, with a dispatcher that is controlled by the test."""

from pathlib import Path

import pytest

from kilnwork.api import filejobs
from kilnwork.data import errors as data_errors
from kilnwork.jobs import errors, file_job_service, file_job_types
from support.job_world import NS, World

_P = filejobs.FileJobPhase
_O = filejobs.PartOutcome


def lines(number: int) -> bytes:
    return b"".join(b'{"n":%d}\n' % n for n in range(1, number + 1))


async def test_job_maps_parts_and_publishes_ordered_result(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        view = await world.create(lines(50), itemsPerPart=7)
        assert (view.phase, view.parts.total, view.progress.lines) == (_P.PENDING, 8, 50)
        done = await world.finished(view.id)
        assert done.phase is _P.SUCCEEDED
        assert world.result(done) == lines(50)
        assert done.progress.records == filejobs.Records(total=50, succeeded=50)
        assert done.expires is not None
        assert set(world.records(done)) == {(part, 1) for part in range(9)}
        assert len(world.dispatcher.ran) == 9


async def test_job_with_one_part_is_published_without_reduce_task(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        view = await world.create(lines(5), inline=True)
        done = await world.finished(view.id)
        assert (done.phase, world.result(done)) == (_P.SUCCEEDED, lines(5))
        assert len(world.dispatcher.ran) == 1
        assert world.directory_of(done).head("input").bytes == len(lines(5))


async def test_empty_input_has_no_parts_and_empty_result(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        view = await world.create(b"", inline=True)
        done = await world.finished(view.id)
        assert (done.phase, done.parts.total, world.result(done)) == (_P.SUCCEEDED, 0, b"")


async def test_idempotency_key_makes_one_job(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        first = await world.create(lines(5), key="k")
        again = await world.create(lines(5), key="k")
        assert again.id == first.id
        assert len(world.jobs.jobs(NS)[0]) == 1
        with pytest.raises(errors.KeyUsed) as caught:
            world.jobs.find_by_key(NS, file_job_types.IdempotencyKey("me", "k", b"another"))
        assert caught.value.job == first.id
        assert (
            world.jobs.find_by_key(NS, file_job_types.IdempotencyKey("you", "k", b"print")) is None
        )
        await world.jobs.delete(NS, first.id)
        assert (await world.create(lines(5), key="k")).id != first.id


async def test_failed_part_fails_job_after_others_are_done(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        world.dispatcher.broken = lambda work: (
            "it is broken" if isinstance(work, filejobs.PartWork) and work.part.number == 2 else ""
        )
        view = await world.create(lines(50), itemsPerPart=10)
        done = await world.finished(view.id)
        assert (done.phase, done.reason) == (_P.FAILED, "PartsFailed")
        assert done.message == "1 of 5 parts failed: part 2: it is broken"
        assert (done.parts.succeeded, done.parts.failed) == (4, 1)
        assert world.records(done)[0, 1] is _O.FAILED

        world.dispatcher.broken = lambda _: ""
        ran = len(world.dispatcher.ran)
        again = await world.jobs.redrive(NS, view.id)
        assert (again.phase, again.run, again.parts.failed) == (_P.RUNNING, 2, 0)
        done = await world.finished(view.id)
        assert (done.phase, world.result(done)) == (_P.SUCCEEDED, lines(50))
        assert [name.split("/")[1] for name in world.dispatcher.ran[ran:]] == ["2-2-1", "0-2-1"]


async def test_message_for_single_failed_part_has_no_count(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        world.dispatcher.broken = lambda _: "it is broken"
        done = await world.finished((await world.create(lines(5))).id)
        assert done.message == "its only part failed: part 1: it is broken"


@pytest.mark.parametrize("parts", [1, 5])
async def test_success_without_good_records_has_warning(tmp_path: Path, parts: int) -> None:
    async with World(tmp_path) as world:
        content = b"no\n\n" * 5
        mapper = {"builtin": "calculator"}
        view = await world.create(content, itemsPerPart=10 // parts, mapper=mapper)
        done = await world.finished(view.id)
        assert (done.phase, done.reason) == (_P.SUCCEEDED, "AllRecordsBad")
        assert done.message.startswith("all 5 records are bad, so the result is empty. ")
        assert world.jobs.job(NS, view.id) == done
        good = await world.finished((await world.create(b"{}\n" + content, mapper=mapper)).id)
        assert (good.reason, good.message) == ("", "")


async def test_cancel_keeps_committed_parts_and_stops_others(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        view = await world.create(lines(50), itemsPerPart=10)
        await world.running(view.id, 2)
        zombie = next(one for one in world.dispatcher.tasks.values() if one.state == "Pending")
        await world.jobs.cancel(NS, view.id)
        done = await world.finished(view.id)
        assert done.phase is _P.CANCELLED
        assert done.parts.succeeded + done.parts.cancelled == 5
        kept = await world.jobs.commits(NS, view.id)
        assert sum(one.outcome is _O.SUCCEEDED for one in kept) == done.parts.succeeded >= 2
        world.dispatcher.finish(zombie)
        number = zombie.work.part.number  # type: ignore[union-attr]
        assert world.records(done)[number, 1] is _O.CANCELLED
        again = await world.jobs.redrive(NS, view.id)
        assert again.run == 2
        assert world.result(await world.finished(view.id)) == lines(50)


async def test_part_lost_in_a_pause_waits_for_resume(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        view = await world.create(lines(60), itemsPerPart=5, parallelism=2)
        running = [one for one in world.dispatcher.tasks.values() if one.state == "Running"]
        while len(running) < 2:
            await world.until(world.dispatcher.step, what="a part that runs")
            running = [one for one in world.dispatcher.tasks.values() if one.state == "Running"]
        await world.jobs.pause(NS, view.id)
        await world.until(lambda: all(one.suspended for one in running), what="the pause")
        world.dispatcher.lose(running[0])
        await world.until(lambda: not world.dispatcher.step(), what="nothing to do")
        assert (running[0].state, running[1].state) == ("Pending", "Success")
        await world.jobs.resume(NS, view.id)
        assert world.result(await world.finished(view.id)) == lines(60)


async def test_pause_holds_back_parts_that_have_not_begun(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        view = await world.create(lines(60), itemsPerPart=5)
        await world.running(view.id, 2)
        paused = await world.jobs.pause(NS, view.id)
        assert paused.phase is _P.PAUSED
        await world.until(lambda: not world.dispatcher.step(), what="nothing to do")
        before = world.view(view.id).parts.succeeded
        assert 2 <= before < 12
        assert not world.dispatcher.queued
        await world.restart()
        assert world.view(view.id).phase is _P.PAUSED
        resumed = await world.jobs.resume(NS, view.id)
        assert resumed.phase is _P.RUNNING
        assert world.result(await world.finished(view.id)) == lines(60)


@pytest.mark.parametrize("size", [10, 100])
async def test_commit_record_lost_before_the_end_is_made_again(tmp_path: Path, size: int) -> None:
    async with World(tmp_path) as world:
        view = await world.create(lines(30), itemsPerPart=10)
        await world.until(lambda: world.view(view.id).phase is _P.REDUCING)
        await world.stop()
        world.directory_of(view).delete(["commits/1-1"])
        await world.restart()
        done = await world.finished(view.id)
        assert (done.phase, done.run, done.progress.records.total) == (_P.SUCCEEDED, 2, 30)
        assert world.result(done) == lines(30)


async def test_commit_record_lost_after_the_end_is_an_error(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        view = await world.create(lines(30), itemsPerPart=10)
        await world.finished(view.id)
        world.directory_of(view).delete(["commits/2-1"])
        await world.restart()
        shown = await world.jobs.parts(NS, view.id)
        assert [one.state for one in shown] == [file_job_types.PartState.SUCCEEDED] * 3
        assert [one.commit is None for one in shown] == [False, True, False]
        with pytest.raises(data_errors.ObjectMissing, match="commits/2-1"):
            await world.jobs.commits(NS, view.id)


async def test_job_is_found_by_short_id(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        first = await world.create(lines(5), inline=True)
        await world.create(lines(5), inline=True)
        short = filejobs.short_id(first.id)
        assert short == f"f-{first.id[8:16]}"
        for ref in (short, f"f-{first.id[8:]}"):
            found = world.jobs.job(NS, ref)
            assert found is not None
            assert found.id == first.id
        assert world.jobs.job("other", short) is None
        assert world.jobs.job(NS, "f-00000000") is None
        assert world.jobs.job(NS, short[:-1]) is None
        await world.jobs.delete(NS, short)
        assert world.jobs.job(NS, short) is None


async def test_ambiguous_short_id_lists_the_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = iter(b"\x11\x11\x11\x11\x11\x11\x11" + bytes([last]) for last in (1, 2))
    monkeypatch.setattr("kilnwork.kit.ids.new_task_id", lambda: bytes(8) + next(numbers))
    async with World(tmp_path) as world:
        first = await world.create(lines(5), inline=True)
        second = await world.create(lines(5), inline=True)
        with pytest.raises(errors.SeveralJobs, match=f"{first.id}, {second.id}"):
            world.jobs.job(NS, filejobs.short_id(first.id))
        whole = world.jobs.job(NS, f"f-{second.id[8:]}")
        assert whole is not None
        assert whole.id == second.id


@pytest.mark.parametrize(
    ("first", "last", "found"),
    [
        (0.0, 0.0, ["1969-12", "1970-01", "1970-02"]),
        (1_764_547_000.0, 1_767_226_000.0, ["2025-10", "2025-11", "2025-12", "2026-01", "2026-02"]),
    ],
)
def test_months_between_two_times(first: float, last: float, found: list[str]) -> None:
    assert file_job_service._months(first, last) == found
