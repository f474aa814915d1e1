"""Jobs on a real dispatcher with a real worker: taken up, followed, killed, run again."""

import asyncio
import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from kilnwork.api import job as api_job
from kilnwork.api import task as api_task
from kilnwork.dispatch.journal.sqlite import queries
from kilnwork.jobs import errors, index_model, model, start_queue
from support import index_jobs_world as world
from support import waiting

_P, _S, _T = api_job.Phase, index_model.IndexState, api_task.State


def many(count: int, **fields: Any) -> dict[str, Any]:
    return {"parallelism": {"withCount": count, **fields}}


def returned(view: index_model.IndexJobView) -> Any:
    assert view.result is not None
    return msgspec.json.decode(view.result.data)


async def test_a_job_runs_all_its_indexes(tmp_path: Path) -> None:
    async with world.house_in(tmp_path) as house:
        uid = await house.put(template=house.template(**many(30)))
        done = await house.finished(uid)
        assert (done.phase, done.counts.succeeded, done.counts.created) == (_P.SUCCEEDED, 30, 30)
        assert sorted(house.calls) == list(range(30))
        assert done.stopped is True
        page = await house.jobs.indexes(uid, after=4, limit=3)
        assert [(one.number, one.name) for one in page] == [
            (5, "job-5"),
            (6, "job-6"),
            (7, "job-7"),
        ]
        assert {one.state for one in page} == {_S.SUCCEEDED}
        _, views = await house.jobs.changes(0)
        assert [view.uid for view in views] == [uid]


async def test_a_job_without_parallelism_has_the_result_of_its_task(tmp_path: Path) -> None:
    async with world.house_in(tmp_path) as house:
        uid = await house.put()
        done = await house.finished(uid)
        assert (done.phase, returned(done)) == (_P.SUCCEEDED, 0)
        await house.restart()
        again = house.view(uid)
        assert (again.phase, again.result, again.counts) == (done.phase, done.result, done.counts)
        assert (again.newest, again.stopped) == (done.newest, True)


async def test_what_becomes_of_a_job_is_told_without_reading_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, read = list[str](), queries.Queries._all

    def noted(self: queries.Queries, name: str, arguments: tuple[Any, ...]) -> Iterator[Any]:
        names.append(name)
        return read(self, name, arguments)

    monkeypatch.setattr(queries.Queries, "_all", noted)
    async with world.house_in(tmp_path) as house:
        since, _ = await house.jobs.changes(0)
        names.clear()
        put = view = await house.jobs.put(house.new())
        while not view.phase.final:
            since, changed = await house.jobs.changes(since)
            view = changed[-1]
        assert (put.phase.final, names) == (False, [])
        assert (view.phase, returned(view), view.newest[0].attempt) == (_P.SUCCEEDED, 0, 1)
        await house.restart()
        again = house.view(view.uid)
        assert (again.newest, again.result) == (view.newest, view.result)
        assert "newest_run" in names


async def test_a_job_has_succeeded_with_its_result_or_not_yet(tmp_path: Path) -> None:
    """Its row is on disk a moment before it is known that it is; so is that of its task."""
    async with world.house_in(tmp_path) as house:
        template = house.template(finalizer={"taskTemplate": house.call("combine", str(tmp_path))})
        for _ in range(30):
            uid = await house.put(template=template)
            while not (view := house.view(uid)).phase.final:
                await asyncio.sleep(0)
            assert (view.phase, returned(view)) == (_P.SUCCEEDED, {"results": [0]})


async def test_a_job_that_is_put_again_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    async with world.house_in(tmp_path) as house:
        new = house.new(run=3)
        first = await house.jobs.put(new)
        await house.restart()
        again = await house.jobs.put(new)
        assert (again.uid, again.created) == (first.uid, first.created)
        await house.free()
        done = await house.finished(new.uid)
        assert house.calls == [0]
        assert (done.run, [one.run for one in done.newest], returned(done)) == (3, [3], 0)
        assert (await house.jobs.put(new)).phase is _P.SUCCEEDED


async def test_a_kill_ends_what_runs(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    async with world.house_in(tmp_path) as house:
        uid = await house.put(template=house.template(**many(50, maxInFlight=2)))
        await house.until(uid, lambda view: view.counts.running == 2)
        await house.called(2)
        await house.jobs.kill(uid, message="nobody wants it")
        done = await house.finished(uid)
        assert (done.phase, done.reason, done.message) == (_P.KILLED, "Killed", "nobody wants it")
        assert (done.stopped, done.counts.cancelled) == (True, 50)
        assert len(house.calls) == 2
        await house.free()
        await house.jobs.rerun(uid, 2)
        done = await house.finished(uid)
        assert (done.phase, done.run, done.counts.succeeded) == (_P.SUCCEEDED, 2, 50)


async def test_the_first_failure_ends_a_job_and_a_higher_run_does_the_rest(tmp_path: Path) -> None:
    (tmp_path / "fail-3").touch()
    (tmp_path / "once-1").touch()
    async with world.house_in(tmp_path) as house:
        template = house.template(**many(8, maxInFlight=1), maxAttempts=2)
        uid = await house.put(template=template)
        done = await house.finished(uid)
        assert (done.phase, done.reason) == (_P.FAILED, "IndexesFailed")
        assert "index 3: " in done.message
        assert (done.counts.succeeded, done.counts.failed, done.counts.cancelled) == (3, 1, 4)
        assert (done.failed_indexes, done.counts.retries) == ("3", 2)
        [failed] = await house.jobs.indexes(uid, state=_S.FAILED)
        assert (failed.number, failed.attempt, failed.name) == (3, 2, "job-3")
        (tmp_path / "fail-3").unlink()
        (tmp_path / "calls").unlink()
        await house.jobs.rerun(uid, 1)
        assert house.view(uid).phase is _P.FAILED
        await house.jobs.rerun(uid, 4)
        done = await house.until(uid, lambda view: view.run == 4 and view.phase.final)
        assert (done.phase, done.counts.succeeded, done.failed_indexes) == (_P.SUCCEEDED, 8, "")
        assert sorted(house.calls) == [3, 4, 5, 6, 7]


async def test_a_higher_run_starts_nothing_that_is_not_asked_for(tmp_path: Path) -> None:
    (tmp_path / "fail-0").touch()
    async with world.house_in(tmp_path) as house:
        uid = await house.put(template=house.template(**many(3, maxInFlight=1)))
        await house.finished(uid)
        assert house.calls == [0]
        (tmp_path / "fail-0").unlink()
        await house.jobs.rerun(uid, 2, killed="its time has come")
        done = await house.until(uid, lambda view: view.run == 2 and view.phase.final)
        assert (done.phase, done.message) == (_P.KILLED, "its time has come")
        assert (done.started, done.counts.cancelled, done.stopped) == (None, 3, True)
        await house.jobs.rerun(uid, 3, suspended=True, max_in_flight=2, priority=7)
        held = house.view(uid)
        assert held.waiting_for is not None
        assert (held.run, held.phase, held.waiting_for.reason) == (3, _P.QUEUED, "Suspended")
        await house.restart()
        held = house.view(uid)
        assert (held.suspended, held.max_in_flight, held.priority) == (True, 2, 7)
        assert house.calls == [0]
        await house.jobs.suspend(uid, suspended=False)
        done = await house.finished(uid)
        assert (done.phase, done.run, done.counts.succeeded) == (_P.SUCCEEDED, 3, 3)
        assert sorted(house.calls) == [0, 0, 1, 2]


async def test_a_run_that_is_killed_first_replaces_no_job(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    async with world.house_in(tmp_path) as house:
        group = house.group("Replace")
        old = await house.put("old", group=group)
        await house.jobs.kill(old)
        await house.finished(old)
        new = await house.put("new", group=group)
        await house.until(new, lambda view: view.counts.running == 1)
        await house.jobs.rerun(old, 2, killed="its time has come")
        done = await house.until(old, lambda view: view.run == 2 and view.phase.final)
        assert done.phase is _P.KILLED
        assert house.view(new).phase is _P.RUNNING
        assert house.jobs.group(group.config).active == (new,)
        await house.free()
        assert (await house.finished(new)).phase is _P.SUCCEEDED
        await house.jobs.rerun(old, 3)
        done = await house.until(old, lambda view: view.run == 3 and view.phase.final)
        assert done.phase is _P.SUCCEEDED


async def test_a_job_goes_on_while_not_too_many_fail(tmp_path: Path) -> None:
    for failing in (1, 4):
        (tmp_path / f"fail-{failing}").touch()
    async with world.house_in(tmp_path) as house:
        some = await house.put(
            "some", template=house.template(**many(6, completionStrategy={"maxFailed": 2}))
        )
        few = await house.put(
            "few",
            template=house.template(
                **many(6, maxInFlight=1, completionStrategy={"maxFailed": "20%"})
            ),
        )
        done = await house.finished(some)
        assert (done.phase, done.counts.failed, done.failed_indexes) == (_P.SUCCEEDED, 2, "1,4")
        done = await house.finished(few)
        assert (done.phase, done.counts.failed, done.counts.succeeded) == (_P.FAILED, 2, 3)


async def test_enough_successes_end_a_job_and_kill_the_rest(tmp_path: Path) -> None:
    for held in (0, 2):
        (tmp_path / f"hold-{held}").touch()
    async with world.house_in(tmp_path) as house:
        strategy = {"minSuccessful": 1}
        template = house.template(**many(40, maxInFlight=3, completionStrategy=strategy))
        uid = await house.put(template=template)
        done = await house.finished(uid)
        assert (done.phase, done.stopped) == (_P.SUCCEEDED, True)
        assert done.counts.succeeded >= 1
        assert done.counts.failed == 0
        assert done.counts.succeeded + done.counts.cancelled == 40
        assert not {0, 2} & set(range(2)) or house.task(uid, 1).state is _T.KILLED
        assert house.services.engine.tasks == {}


async def test_a_finalizer_gets_the_results_in_order(tmp_path: Path) -> None:
    (tmp_path / "fail-2").touch()
    async with world.house_in(tmp_path, kept_tasks=0) as house:
        template = house.template(
            **many(5, completionStrategy={"maxFailed": 1}),
            finalizer={"taskTemplate": house.call("combine", str(tmp_path))},
        )
        uid = await house.put(template=template)
        done = await house.finished(uid)
        assert (done.phase, returned(done)) == (_P.SUCCEEDED, {"results": [0, 1, None, 9, 16]})
        assert house.task(uid, 0).name == "job-finalizer"


async def test_a_job_fails_with_its_finalizer(tmp_path: Path) -> None:
    (tmp_path / "fail-combine").touch()
    async with world.house_in(tmp_path) as house:
        finalizer = {"taskTemplate": house.call("combine", str(tmp_path))}
        uid = await house.put(template=house.template(**many(3), finalizer=finalizer))
        done = await house.finished(uid)
        assert (done.phase, done.reason, done.result) == (_P.FAILED, "FinalizerFailed", None)
        assert done.counts.succeeded == 3
        (tmp_path / "fail-combine").unlink()
        await house.jobs.rerun(uid, 2)
        done = await house.until(uid, lambda view: view.run == 2 and view.phase.final)
        assert (done.phase, returned(done)) == (_P.SUCCEEDED, {"results": [0, 1, 4]})
        assert len(house.calls) == 3


def measuring(house: world.House, count: int, kilobytes: int, **finalizer: Any) -> dict[str, Any]:
    """A template whose indexes return so much each, which the finalizer measures."""
    call = house.call("larger", "${task.index_num}")
    call["call"]["args"] = ["${task.index_num}", kilobytes]
    what = finalizer or house.call("measure", "${task.name}")
    return {"taskTemplate": call, "finalizer": {"taskTemplate": what}, **many(count)}


@pytest.mark.parametrize("kilobytes", [1, 100, 400])
async def test_a_finalizer_gets_results_of_any_size(tmp_path: Path, kilobytes: int) -> None:
    """In the journal; in blobs, which fit into one frame together; in blobs that do not."""
    async with world.house_in(tmp_path, kept_tasks=0) as house:
        uid = await house.put(template=measuring(house, 4, kilobytes))
        done = await house.finished(uid)
        assert done.phase is _P.SUCCEEDED, done.message
        expected = [[kilobytes * 1024, f"{number};"] for number in range(4)]
        assert returned(done) == {"what": "job-finalizer", "results": expected}


async def test_many_small_results_are_as_good_as_large_ones(tmp_path: Path) -> None:
    async with world.house_in(tmp_path) as house:
        uid = await house.put(template=measuring(house, 80, 8))
        done = await house.finished(uid)
        assert done.phase is _P.SUCCEEDED, done.message
        assert len(returned(done)["results"]) == 80


async def test_a_finalizer_that_is_no_call_gets_what_fits_into_a_frame(tmp_path: Path) -> None:
    async with world.house_in(tmp_path) as house:
        count = ["sh", "-c", "wc -c < $KILN_INPUT > $KILN_OUTPUT"]
        command = {"clusterName": "counter", "command": count}
        fits = await house.finished(await house.put(template=measuring(house, 2, 100, **command)))
        assert fits.phase is _P.SUCCEEDED, fits.message
        uid = await house.put("more", template=measuring(house, 6, 100, **command))
        done = await house.finished(uid)
        assert (done.phase, done.reason) == (_P.FAILED, "FinalizerFailed")
        assert "524288" in done.message
        assert "make it a call" in done.message


async def test_results_that_are_gone_fail_the_finalizer(tmp_path: Path) -> None:
    (tmp_path / "fail-combine").touch()
    async with world.house_in(tmp_path) as house:
        combine = house.call("combine", str(tmp_path))
        uid = await house.put(template=measuring(house, 2, 100, **combine))
        await house.finished(uid)
        (tmp_path / "fail-combine").unlink()
        for path in (tmp_path / "blobs").rglob("*"):
            if path.is_file():
                path.unlink()
        await house.jobs.rerun(uid, 2)
        done = await house.until(uid, lambda view: view.run == 2 and view.phase.final)
        assert (done.phase, done.reason) == (_P.FAILED, "FinalizerFailed")
        assert done.message.startswith("the result of index 0: ")


async def test_hooks_follow_phases_once_in_a_run(tmp_path: Path) -> None:
    (tmp_path / "fail-1").touch()
    async with world.house_in(tmp_path) as house:
        hooks = [
            {"on": [event], "taskTemplate": house.call("note", event, str(tmp_path))}
            for event in ("Running", "Succeeded", "Failed", "Killed")
        ]
        uid = await house.put(template=house.template(**many(2, maxInFlight=1), hooks=hooks))
        await house.finished(uid)
        assert sorted(await house.noted(2)) == ["Failed", "Running"]
        await house.restart()
        (tmp_path / "fail-1").unlink()
        await house.jobs.rerun(uid, 2)
        await house.until(uid, lambda view: view.run == 2 and view.phase.final)
        await house.noted(4)
        other = await house.put(
            "other", hold=start_queue.Hold(reason="Wait"), template=house.template(hooks=hooks)
        )
        await house.jobs.kill(other)
        assert (await house.finished(other)).phase is _P.KILLED
        assert sorted(await house.noted(5)) == [
            "Failed",
            "Killed",
            "Running",
            "Running",
            "Succeeded",
        ]


async def test_a_pause_lets_nothing_start_also_over_a_restart(tmp_path: Path) -> None:
    async with world.house_in(tmp_path) as house:
        for name in ("hold-20", "hold-21"):
            (tmp_path / name).touch()
        uid = await house.put(template=house.template(**many(40, maxInFlight=2)))
        await house.until(uid, lambda view: view.counts.succeeded >= 5)
        await house.jobs.suspend(uid, suspended=True)
        for name in ("hold-20", "hold-21"):  # however slow we are, it has not got further
            await house.free(name)
        await house.restart()
        assert house.view(uid).suspended
        await house.until(uid, lambda view: view.counts.running == 0)
        before = len(house.calls)
        await house.jobs.adjust(uid, max_in_flight=5)
        await house.jobs.suspend(uid, suspended=False)
        done = await house.finished(uid)
        assert (done.phase, done.counts.succeeded, done.max_in_flight) == (_P.SUCCEEDED, 40, 5)
        assert before < 40
        assert sorted(house.calls) == list(range(40))


async def test_a_job_has_only_so_much_time(tmp_path: Path) -> None:
    """Its time goes on while the dispatcher is away."""
    (tmp_path / "hold").touch()
    async with world.house_in(tmp_path) as house:
        short = await house.put("short", template=house.template(timeouts={"jobSeconds": 0.2}))
        longer = await house.put("longer", template=house.template(timeouts={"jobSeconds": 1.5}))
        endless = await house.put("endless")
        done = await house.finished(short)
        assert (done.phase, done.reason, done.stopped) == (_P.FAILED, "JobTimedOut", True)
        await house.restart()
        done = await house.finished(longer)
        assert (done.phase, done.reason) == (_P.FAILED, "JobTimedOut")
        assert not house.view(endless).phase.final
        await house.free()
        assert (await house.finished(endless)).phase is _P.SUCCEEDED


async def test_a_list_that_comes_later_is_the_index_set(tmp_path: Path) -> None:
    async with world.house_in(tmp_path) as house:
        template = house.template(parallelism={"withResultOf": {"task": "list"}})
        uid = await house.put(template=template)
        waits = house.view(uid)
        assert (waits.phase, waits.reason) == (_P.QUEUED, "WaitingForResult")
        await house.restart()
        await house.jobs.provide(uid, items=["a", "b", "c"])
        done = await house.finished(uid)
        assert (done.phase, done.counts.total, done.counts.succeeded) == (_P.SUCCEEDED, 3, 3)
        await house.restart()
        await house.jobs.provide(uid, items=["d"])
        assert len(await house.jobs.indexes(uid)) == 3
        empty = await house.put("empty", template=template)
        await house.jobs.provide(empty, items=[])
        assert (await house.finished(empty)).phase is _P.SUCCEEDED
        assert len(house.calls) == 3


async def test_a_job_is_held_until_it_is_let_go_and_its_time_has_come(tmp_path: Path) -> None:
    async with world.house_in(tmp_path) as house:
        soon = house.time.wall() + 0.3
        hold = start_queue.Hold(reason="WaitingForDependency", message="Job load is not over")
        uid = await house.put(start_after=soon, hold=hold)
        view = house.view(uid)
        assert (view.phase, view.reason, view.message) == (_P.QUEUED, hold.reason, hold.message)
        await house.restart()
        assert house.view(uid).waiting_for == hold
        await house.jobs.set_hold(uid, None)
        done = await house.finished(uid)
        assert done.started is not None
        assert done.started >= soon
        lost = await house.put("lost", hold=hold)
        await house.jobs.fail(lost, "DependencyFailed", "Job load failed")
        done = await house.finished(lost)
        assert (done.phase, done.reason) == (_P.FAILED, "DependencyFailed")


async def test_what_a_job_waits_for_is_told_when_it_changes(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    async with world.house_in(tmp_path) as house:
        hold = start_queue.Hold(reason="WaitingForDependency", message="Job load does not exist")
        uid = await house.put(hold=hold)
        seen = house.view(uid)
        for message in ("Job load is not over yet", "Job more is not over yet"):
            await house.jobs.set_hold(uid, start_queue.Hold(reason=hold.reason, message=message))
            now = house.view(uid)
            assert now.version > seen.version
            assert now.message == message
            seen = now
        one = await house.put("one", group=house.group("Enqueue"), locks=[{"name": "warehouse"}])
        two = await house.put("two", group=house.group("Enqueue", config=world.new_uid()))
        group = house.group("Enqueue", config=house.view(two).group)
        three = await house.put("three", group=group, locks=[{"name": "warehouse"}])
        seen = house.view(three)
        assert seen.reason == "Queued"
        await house.jobs.kill(two)
        now = await house.until(three, lambda view: view.version > seen.version)
        assert now.reason == "WaitingForLock"
        await house.free()
        for done in (one, three):
            assert (await house.finished(done)).phase is _P.SUCCEEDED


async def test_a_job_says_what_its_executor_waits_for(tmp_path: Path) -> None:
    async with world.house_in(tmp_path) as house:
        template = {"taskTemplate": {"external": {"executor": "nobody"}}}
        uid = await house.put(template=template)
        view = await house.until(uid, lambda view: view.reason == "ExecutorUnavailable")
        assert view.phase is _P.PENDING
        assert view.message.startswith("no program claims tasks of executor nobody")
        await house.jobs.suspend(uid, suspended=True)
        view = await house.until(uid, lambda view: view.reason == "Suspended")
        await house.jobs.kill(uid)


async def test_the_number_of_an_index_is_that_of_users(tmp_path: Path) -> None:
    async with world.house_in(tmp_path) as house:
        template = {
            "taskTemplate": {"clusterName": "counter", "command": ["false"]},
            "retry": {"maxAttempts": 2, "delaySeconds": 3600, "maxDelaySeconds": 3600},
        }
        uid = await house.put(template=template)
        view = await house.until(uid, lambda view: view.reason == "Retrying")
        assert view.message.startswith("index 0 is tried again: ")
        await house.jobs.suspend(uid, suspended=True)
        view = await house.until(uid, lambda view: view.reason == "Suspended")
        assert view.message == "resume it, and indexes start again"
        await house.jobs.kill(uid)


async def test_a_group_refuses_and_queues_and_counts_after_a_restart(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    async with world.house_in(tmp_path) as house:
        first = await house.put("first", group=house.group("Forbid"))
        refused = await house.jobs.put(house.new("refused", group=house.group("Forbid")))
        assert (refused.phase, refused.reason) == (_P.ADMISSION_ERROR, "Forbidden")
        second = await house.put("second", group=house.group("Enqueue", queued=2))
        third = await house.put("third", group=house.group("Enqueue", queued=2), priority=1)
        full = await house.jobs.put(house.new("full", group=house.group("Enqueue", queued=2)))
        assert (full.phase, full.reason) == (_P.ADMISSION_ERROR, "QueueFull")
        await house.restart()
        group = house.jobs.group(world.CONFIG)
        assert (group.active, group.queued) == ((first,), (third, second))
        assert house.view(second).reason == "Queued"
        again = await house.jobs.put(house.new("again", group=house.group("Forbid")))
        assert again.phase is _P.ADMISSION_ERROR
        await house.free()
        for uid in (first, second, third):
            assert (await house.finished(uid)).phase is _P.SUCCEEDED
        starts = [house.view(uid).started or 0 for uid in (first, third, second)]
        assert starts == sorted(starts)
        assert house.jobs.group(world.CONFIG).active == ()


async def test_a_job_that_was_refused_is_looked_at_anew_in_a_higher_run(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    async with world.house_in(tmp_path) as house:
        first = await house.put("first", group=house.group("Forbid"))
        refused = await house.put("refused", group=house.group("Forbid"))
        await house.jobs.rerun(refused, 2)
        view = house.view(refused)
        assert (view.run, view.phase, view.reason) == (2, _P.ADMISSION_ERROR, "Forbidden")
        await house.free()
        await house.finished(first)
        await house.restart()
        await house.jobs.rerun(refused, 3)
        assert house.view(refused).run == 3
        assert (await house.finished(refused)).phase is _P.SUCCEEDED


async def test_a_tick_that_was_not_decided_is_refused_in_each_run(tmp_path: Path) -> None:
    async with world.house_in(tmp_path) as house:
        early = await house.put("early", group=house.group("Allow"), tick=100)
        await house.restart()
        await house.jobs.rerun(early, 2)
        await house.restart()
        view = house.view(early)
        assert (view.run, view.phase, view.reason) == (2, _P.ADMISSION_ERROR, "TickNotDecided")
        assert "make another Job" in view.message
        assert house.calls == []


async def test_a_job_takes_the_place_of_those_before(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    async with world.house_in(tmp_path) as house:
        old = await house.put("old", group=house.group("Replace"))
        await house.called(1)
        new = await house.put("new", group=house.group("Replace"))
        ended = await house.finished(old)
        assert (ended.phase, ended.reason, ended.stopped) == (_P.KILLED, "Replaced", True)
        view = await house.until(new, lambda view: view.started)
        assert (view.started or 0) >= (ended.finished or 0)
        await house.free()
        assert (await house.finished(new)).phase is _P.SUCCEEDED


async def test_a_lock_is_held_by_one_job(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    async with world.house_in(tmp_path) as house:
        locks = [{"name": "warehouse"}]
        one = await house.put("one", locks=locks)
        two = await house.put("two", locks=[{"name": "warehouse", "mode": "Shared"}])
        await house.called(1)
        await house.restart()
        assert house.view(two).reason == "WaitingForLock"
        assert house.calls == [0]
        await house.free()
        await house.finished(one)
        await house.finished(two)
        assert (house.view(two).started or 0) >= (house.view(one).finished or 0)


async def test_a_tick_makes_one_job(tmp_path: Path) -> None:
    async with world.house_in(tmp_path) as house:
        group = house.group("Allow")
        decision = index_model.TickDecision(
            config=world.CONFIG,
            namespace=world.NS,
            name="nightly",
            tick=200,
            run=(100, 200),
            dropped={"TooLate": 2},
            latest_dropped=50,
            latest_reason="TooLate",
        )
        early = await house.jobs.put(house.new("early", group=group, tick=100))
        assert (early.phase, early.reason) == (_P.ADMISSION_ERROR, "TickNotDecided")
        await house.jobs.decide(decision)
        with pytest.raises(errors.TickDecided):
            await house.jobs.decide(decision)
        new = house.new("nightly-100", group=group, tick=100)
        await house.jobs.put(new)
        await house.restart()
        row = house.jobs.schedule(world.CONFIG)
        assert row is not None
        assert (row.tick, row.pending, row.taken) == (200, (200,), {100: new.uid})
        assert (row.dropped, row.latest_dropped) == ({"TooLate": 2}, 50)
        assert (await house.finished(new.uid)).phase is _P.SUCCEEDED
        refused = index_model.TickDecision(
            config=world.CONFIG,
            namespace="default",
            name="nightly",
            tick=200,
            abandon=(100,),
            dropped={"Refused": 1},
        )
        await house.jobs.decide(refused)
        await house.restart()
        row = house.jobs.schedule(world.CONFIG)
        assert row is not None
        assert (row.pending, row.taken, row.refused) == ((200,), {100: new.uid}, (100,))
        assert row.dropped == {"TooLate": 2, "Refused": 1}
        await house.jobs.release(new.uid)
        other = await house.jobs.put(house.new("nightly-100", group=group, tick=100))
        assert other.phase is _P.ADMISSION_ERROR
        unknown = await house.jobs.put(house.new("nightly-150", group=group, tick=150))
        assert unknown.phase is _P.ADMISSION_ERROR
        await house.jobs.forget_schedule(world.CONFIG)
        await house.restart()
        assert house.jobs.schedule(world.CONFIG) is None


async def test_a_job_that_is_released_is_gone_with_what_runs(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    async with world.house_in(tmp_path) as house:
        uid = await house.put()
        await house.called(1)
        await house.jobs.release(uid)
        assert house.jobs.view(uid) is None
        await waiting.wait_until_async(
            lambda: house.task(uid, 1).state is _T.KILLED, what="its end", timeout_s=60.0
        )
        await house.jobs.release(uid)
        await waiting.wait_until_async(
            lambda: house.hub.participation.select("job_by_uuid", uuid.UUID(uid).bytes) == [],
            what="its row",
            timeout_s=60.0,
        )
        with contextlib.closing(apsw.Connection(str(tmp_path / "journal.db"))) as found:
            for table in ("job", "job_input", "job_page", "job_claim"):
                assert found.execute(f"SELECT * FROM {table}").fetchall() == []  # noqa: S608
        with pytest.raises(errors.NoSuchJob):
            await house.jobs.indexes(uid)


async def test_lists_of_files_have_no_jobs_of_indexes(tmp_path: Path) -> None:
    async with world.house_in(tmp_path) as house:
        uid = await house.put("named")
        await house.finished(uid)
        files = house.services.files
        assert files.jobs(world.NS) == ([], None)
        assert files.jobs(None) == ([], None)
        assert files.jobs(None, wanted=_named("named")) == ([], None)
        assert files.counts() == []
        assert files.job(world.NS, "named") is None
        assert files.job(world.NS, uid) is None


def _named(name: str) -> Any:
    return model.JobQuery(name=name)
