"""Index jobs on a real dispatcher with a real worker: started, followed, killed, run again."""

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
from kilnwork.jobs import errors, file_job_types, index_job_types, job_start_queue
from support import index_job_server, waiting

_P, _S, _T = api_job.Phase, index_job_types.IndexState, api_task.State


def many(count: int, **fields: Any) -> dict[str, Any]:
    return {"parallelism": {"withCount": count, **fields}}


def returned(view: index_job_types.IndexJobView) -> Any:
    assert view.result is not None
    return msgspec.json.decode(view.result.data)


async def test_job_runs_all_its_indexes(tmp_path: Path) -> None:
    async with index_job_server.running(tmp_path) as world:
        uid = await world.put(template=world.template(**many(30)))
        done = await world.wait_until_finished(uid)
        assert (done.phase, done.counts.succeeded, done.counts.created) == (_P.SUCCEEDED, 30, 30)
        assert sorted(world.calls) == list(range(30))
        assert done.stopped is True
        page = await world.jobs.indexes(uid, after=4, limit=3)
        assert [(one.number, one.name) for one in page] == [
            (5, "job-5"),
            (6, "job-6"),
            (7, "job-7"),
        ]
        assert {one.state for one in page} == {_S.SUCCEEDED}
        _, views = await world.jobs.changes(0)
        assert [view.uid for view in views] == [uid]


async def test_job_without_parallelism_has_the_result_of_its_task(tmp_path: Path) -> None:
    async with index_job_server.running(tmp_path) as world:
        uid = await world.put()
        done = await world.wait_until_finished(uid)
        assert (done.phase, returned(done)) == (_P.SUCCEEDED, 0)
        await world.restart()
        again = world.view(uid)
        assert (again.phase, again.result, again.counts) == (done.phase, done.result, done.counts)
        assert (again.newest, again.stopped) == (done.newest, True)


async def test_changes_of_a_job_are_published_without_reading_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, read = list[str](), queries.Queries._all

    def noted(self: queries.Queries, name: str, arguments: tuple[Any, ...]) -> Iterator[Any]:
        names.append(name)
        return read(self, name, arguments)

    monkeypatch.setattr(queries.Queries, "_all", noted)
    async with index_job_server.running(tmp_path) as world:
        since, _ = await world.jobs.changes(0)
        names.clear()
        put = view = await world.jobs.put(world.new())
        while not view.phase.final:
            since, changed = await world.jobs.changes(since)
            view = changed[-1]
        assert (put.phase.final, names) == (False, [])
        assert (view.phase, returned(view), view.newest[0].attempt) == (_P.SUCCEEDED, 0, 1)
        await world.restart()
        again = world.view(view.uid)
        assert (again.newest, again.result) == (view.newest, view.result)
        assert "newest_run" in names


async def test_job_is_shown_as_succeeded_only_with_its_result(tmp_path: Path) -> None:
    """Its row is on disk a moment before its end is published; so is that of its task."""
    async with index_job_server.running(tmp_path) as world:
        template = world.template(finalizer={"taskTemplate": world.call("combine", str(tmp_path))})
        for _ in range(30):
            uid = await world.put(template=template)
            while not (view := world.view(uid)).phase.final:
                await asyncio.sleep(0)
            assert (view.phase, returned(view)) == (_P.SUCCEEDED, {"results": [0]})


async def test_repeated_put_returns_the_same_job(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    async with index_job_server.running(tmp_path) as world:
        new = world.new(run=3)
        first = await world.jobs.put(new)
        await world.restart()
        again = await world.jobs.put(new)
        assert (again.uid, again.created) == (first.uid, first.created)
        await world.release_hold()
        done = await world.wait_until_finished(new.uid)
        assert world.calls == [0]
        assert (done.run, [one.run for one in done.newest], returned(done)) == (3, [3], 0)
        assert (await world.jobs.put(new)).phase is _P.SUCCEEDED


async def test_kill_ends_running_indexes(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    async with index_job_server.running(tmp_path) as world:
        uid = await world.put(template=world.template(**many(50, maxInFlight=2)))
        await world.until(uid, lambda view: view.counts.running == 2)
        await world.wait_for_calls(2)
        await world.jobs.kill(uid, message="no longer wanted")
        done = await world.wait_until_finished(uid)
        assert (done.phase, done.reason, done.message) == (_P.KILLED, "Killed", "no longer wanted")
        assert (done.stopped, done.counts.cancelled) == (True, 50)
        assert len(world.calls) == 2
        await world.release_hold()
        await world.jobs.rerun(uid, 2)
        done = await world.wait_until_finished(uid)
        assert (done.phase, done.run, done.counts.succeeded) == (_P.SUCCEEDED, 2, 50)


async def test_first_failure_ends_a_job_and_a_rerun_completes_it(tmp_path: Path) -> None:
    (tmp_path / "fail-3").touch()
    (tmp_path / "once-1").touch()
    async with index_job_server.running(tmp_path) as world:
        template = world.template(**many(8, maxInFlight=1), maxAttempts=2)
        uid = await world.put(template=template)
        done = await world.wait_until_finished(uid)
        assert (done.phase, done.reason) == (_P.FAILED, "IndexesFailed")
        assert "index 3: " in done.message
        assert (done.counts.succeeded, done.counts.failed, done.counts.cancelled) == (3, 1, 4)
        assert (done.failed_indexes, done.counts.retries) == ("3", 2)
        [failed] = await world.jobs.indexes(uid, state=_S.FAILED)
        assert (failed.number, failed.attempt, failed.name) == (3, 2, "job-3")
        (tmp_path / "fail-3").unlink()
        (tmp_path / "calls").unlink()
        await world.jobs.rerun(uid, 1)
        assert world.view(uid).phase is _P.FAILED
        await world.jobs.rerun(uid, 4)
        done = await world.until(uid, lambda view: view.run == 4 and view.phase.final)
        assert (done.phase, done.counts.succeeded, done.failed_indexes) == (_P.SUCCEEDED, 8, "")
        assert sorted(world.calls) == [3, 4, 5, 6, 7]


async def test_rerun_starts_only_the_requested_indexes(tmp_path: Path) -> None:
    (tmp_path / "fail-0").touch()
    async with index_job_server.running(tmp_path) as world:
        uid = await world.put(template=world.template(**many(3, maxInFlight=1)))
        await world.wait_until_finished(uid)
        assert world.calls == [0]
        (tmp_path / "fail-0").unlink()
        await world.jobs.rerun(uid, 2, killed="its time has come")
        done = await world.until(uid, lambda view: view.run == 2 and view.phase.final)
        assert (done.phase, done.message) == (_P.KILLED, "its time has come")
        assert (done.started, done.counts.cancelled, done.stopped) == (None, 3, True)
        await world.jobs.rerun(uid, 3, suspended=True, max_in_flight=2, priority=7)
        held = world.view(uid)
        assert held.waiting_for is not None
        assert (held.run, held.phase, held.waiting_for.reason) == (3, _P.QUEUED, "Suspended")
        await world.restart()
        held = world.view(uid)
        assert (held.suspended, held.max_in_flight, held.priority) == (True, 2, 7)
        assert world.calls == [0]
        await world.jobs.suspend(uid, suspended=False)
        done = await world.wait_until_finished(uid)
        assert (done.phase, done.run, done.counts.succeeded) == (_P.SUCCEEDED, 3, 3)
        assert sorted(world.calls) == [0, 0, 1, 2]


async def test_rerun_killed_before_its_start_replaces_no_job(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    async with index_job_server.running(tmp_path) as world:
        group = world.group("Replace")
        old = await world.put("old", group=group)
        await world.jobs.kill(old)
        await world.wait_until_finished(old)
        new = await world.put("new", group=group)
        await world.until(new, lambda view: view.counts.running == 1)
        await world.jobs.rerun(old, 2, killed="its time has come")
        done = await world.until(old, lambda view: view.run == 2 and view.phase.final)
        assert done.phase is _P.KILLED
        assert world.view(new).phase is _P.RUNNING
        assert world.jobs.group(group.config).active == (new,)
        await world.release_hold()
        assert (await world.wait_until_finished(new)).phase is _P.SUCCEEDED
        await world.jobs.rerun(old, 3)
        done = await world.until(old, lambda view: view.run == 3 and view.phase.final)
        assert done.phase is _P.SUCCEEDED


async def test_job_goes_on_below_its_failure_limit(tmp_path: Path) -> None:
    for failing in (1, 4):
        (tmp_path / f"fail-{failing}").touch()
    async with index_job_server.running(tmp_path) as world:
        some = await world.put(
            "some", template=world.template(**many(6, completionStrategy={"maxFailed": 2}))
        )
        few = await world.put(
            "few",
            template=world.template(
                **many(6, maxInFlight=1, completionStrategy={"maxFailed": "20%"})
            ),
        )
        done = await world.wait_until_finished(some)
        assert (done.phase, done.counts.failed, done.failed_indexes) == (_P.SUCCEEDED, 2, "1,4")
        done = await world.wait_until_finished(few)
        assert (done.phase, done.counts.failed, done.counts.succeeded) == (_P.FAILED, 2, 3)


async def test_success_limit_ends_a_job_and_kills_the_rest(tmp_path: Path) -> None:
    for held in (0, 2):
        (tmp_path / f"hold-{held}").touch()
    async with index_job_server.running(tmp_path) as world:
        strategy = {"minSuccessful": 1}
        template = world.template(**many(40, maxInFlight=3, completionStrategy=strategy))
        uid = await world.put(template=template)
        done = await world.wait_until_finished(uid)
        assert (done.phase, done.stopped) == (_P.SUCCEEDED, True)
        assert done.counts.succeeded >= 1
        assert done.counts.failed == 0
        assert done.counts.succeeded + done.counts.cancelled == 40
        assert not {0, 2} & set(range(2)) or world.task(uid, 1).state is _T.KILLED
        assert world.services.engine.tasks == {}


async def test_finalizer_gets_the_results_in_order(tmp_path: Path) -> None:
    (tmp_path / "fail-2").touch()
    async with index_job_server.running(tmp_path, kept_tasks=0) as world:
        template = world.template(
            **many(5, completionStrategy={"maxFailed": 1}),
            finalizer={"taskTemplate": world.call("combine", str(tmp_path))},
        )
        uid = await world.put(template=template)
        done = await world.wait_until_finished(uid)
        assert (done.phase, returned(done)) == (_P.SUCCEEDED, {"results": [0, 1, None, 9, 16]})
        assert world.task(uid, 0).name == "job-finalizer"


async def test_failed_finalizer_fails_the_job(tmp_path: Path) -> None:
    (tmp_path / "fail-combine").touch()
    async with index_job_server.running(tmp_path) as world:
        finalizer = {"taskTemplate": world.call("combine", str(tmp_path))}
        uid = await world.put(template=world.template(**many(3), finalizer=finalizer))
        done = await world.wait_until_finished(uid)
        assert (done.phase, done.reason, done.result) == (_P.FAILED, "FinalizerFailed", None)
        assert done.counts.succeeded == 3
        (tmp_path / "fail-combine").unlink()
        await world.jobs.rerun(uid, 2)
        done = await world.until(uid, lambda view: view.run == 2 and view.phase.final)
        assert (done.phase, returned(done)) == (_P.SUCCEEDED, {"results": [0, 1, 4]})
        assert len(world.calls) == 3


def measuring(
    world: index_job_server.World, count: int, kilobytes: int, **finalizer: Any
) -> dict[str, Any]:
    """Return a template whose indexes return so much each, which the finalizer measures."""
    call = world.call("larger", "${task.index_num}")
    call["call"]["args"] = ["${task.index_num}", kilobytes]
    what = finalizer or world.call("measure", "${task.name}")
    return {"taskTemplate": call, "finalizer": {"taskTemplate": what}, **many(count)}


@pytest.mark.parametrize("kilobytes", [1, 100, 400])
async def test_finalizer_gets_results_of_any_size(tmp_path: Path, kilobytes: int) -> None:
    """Results in the journal, in blobs that fit into one frame together, and in blobs that do
    not.
    """
    async with index_job_server.running(tmp_path, kept_tasks=0) as world:
        uid = await world.put(template=measuring(world, 4, kilobytes))
        done = await world.wait_until_finished(uid)
        assert done.phase is _P.SUCCEEDED, done.message
        expected = [[kilobytes * 1024, f"{number};"] for number in range(4)]
        assert returned(done) == {"what": "job-finalizer", "results": expected}


async def test_finalizer_gets_many_small_results(tmp_path: Path) -> None:
    async with index_job_server.running(tmp_path) as world:
        uid = await world.put(template=measuring(world, 80, 8))
        done = await world.wait_until_finished(uid)
        assert done.phase is _P.SUCCEEDED, done.message
        assert len(returned(done)["results"]) == 80


async def test_command_finalizer_gets_results_up_to_one_frame(tmp_path: Path) -> None:
    async with index_job_server.running(tmp_path) as world:
        count = ["sh", "-c", "wc -c < $KILN_INPUT > $KILN_OUTPUT"]
        command = {"clusterName": "counter", "command": count}
        fits = await world.wait_until_finished(
            await world.put(template=measuring(world, 2, 100, **command))
        )
        assert fits.phase is _P.SUCCEEDED, fits.message
        uid = await world.put("more", template=measuring(world, 6, 100, **command))
        done = await world.wait_until_finished(uid)
        assert (done.phase, done.reason) == (_P.FAILED, "FinalizerFailed")
        assert "524288" in done.message
        assert "make it a call" in done.message


async def test_missing_results_fail_the_finalizer(tmp_path: Path) -> None:
    (tmp_path / "fail-combine").touch()
    async with index_job_server.running(tmp_path) as world:
        combine = world.call("combine", str(tmp_path))
        uid = await world.put(template=measuring(world, 2, 100, **combine))
        await world.wait_until_finished(uid)
        (tmp_path / "fail-combine").unlink()
        for path in (tmp_path / "blobs").rglob("*"):
            if path.is_file():
                path.unlink()
        await world.jobs.rerun(uid, 2)
        done = await world.until(uid, lambda view: view.run == 2 and view.phase.final)
        assert (done.phase, done.reason) == (_P.FAILED, "FinalizerFailed")
        assert done.message.startswith("the result of index 0: ")


async def test_hooks_run_once_per_phase_and_run(tmp_path: Path) -> None:
    (tmp_path / "fail-1").touch()
    async with index_job_server.running(tmp_path) as world:
        hooks = [
            {"on": [event], "taskTemplate": world.call("note", event, str(tmp_path))}
            for event in ("Running", "Succeeded", "Failed", "Killed")
        ]
        uid = await world.put(template=world.template(**many(2, maxInFlight=1), hooks=hooks))
        await world.wait_until_finished(uid)
        assert sorted(await world.wait_for_notes(2)) == ["Failed", "Running"]
        await world.restart()
        (tmp_path / "fail-1").unlink()
        await world.jobs.rerun(uid, 2)
        await world.until(uid, lambda view: view.run == 2 and view.phase.final)
        await world.wait_for_notes(4)
        other = await world.put(
            "other", hold=job_start_queue.Hold(reason="Wait"), template=world.template(hooks=hooks)
        )
        await world.jobs.kill(other)
        assert (await world.wait_until_finished(other)).phase is _P.KILLED
        assert sorted(await world.wait_for_notes(5)) == [
            "Failed",
            "Killed",
            "Running",
            "Running",
            "Succeeded",
        ]


async def test_suspended_job_starts_nothing_across_a_restart(tmp_path: Path) -> None:
    async with index_job_server.running(tmp_path) as world:
        for name in ("hold-20", "hold-21"):
            (tmp_path / name).touch()
        uid = await world.put(template=world.template(**many(40, maxInFlight=2)))
        await world.until(uid, lambda view: view.counts.succeeded >= 5)
        await world.jobs.suspend(uid, suspended=True)
        for name in ("hold-20", "hold-21"):  # however slow we are, it has not got further
            await world.release_hold(name)
        await world.restart()
        assert world.view(uid).suspended
        await world.until(uid, lambda view: view.counts.running == 0)
        before = len(world.calls)
        await world.jobs.adjust(uid, max_in_flight=5)
        await world.jobs.suspend(uid, suspended=False)
        done = await world.wait_until_finished(uid)
        assert (done.phase, done.counts.succeeded, done.max_in_flight) == (_P.SUCCEEDED, 40, 5)
        assert before < 40
        assert sorted(world.calls) == list(range(40))


async def test_job_fails_at_its_deadline(tmp_path: Path) -> None:
    """The time counts on while the dispatcher is away."""
    (tmp_path / "hold").touch()
    async with index_job_server.running(tmp_path) as world:
        short = await world.put("short", template=world.template(timeouts={"jobSeconds": 0.2}))
        longer = await world.put("longer", template=world.template(timeouts={"jobSeconds": 1.5}))
        endless = await world.put("endless")
        done = await world.wait_until_finished(short)
        assert (done.phase, done.reason, done.stopped) == (_P.FAILED, "JobTimedOut", True)
        await world.restart()
        done = await world.wait_until_finished(longer)
        assert (done.phase, done.reason) == (_P.FAILED, "JobTimedOut")
        assert not world.view(endless).phase.final
        await world.release_hold()
        assert (await world.wait_until_finished(endless)).phase is _P.SUCCEEDED


async def test_index_set_can_be_supplied_later(tmp_path: Path) -> None:
    async with index_job_server.running(tmp_path) as world:
        template = world.template(parallelism={"withResultOf": {"task": "list"}})
        uid = await world.put(template=template)
        waits = world.view(uid)
        assert (waits.phase, waits.reason) == (_P.QUEUED, "WaitingForResult")
        await world.restart()
        await world.jobs.provide(uid, items=["a", "b", "c"])
        done = await world.wait_until_finished(uid)
        assert (done.phase, done.counts.total, done.counts.succeeded) == (_P.SUCCEEDED, 3, 3)
        await world.restart()
        await world.jobs.provide(uid, items=["d"])
        assert len(await world.jobs.indexes(uid)) == 3
        empty = await world.put("empty", template=template)
        await world.jobs.provide(empty, items=[])
        assert (await world.wait_until_finished(empty)).phase is _P.SUCCEEDED
        assert len(world.calls) == 3


async def test_job_starts_when_its_hold_is_cleared_and_its_time_has_come(tmp_path: Path) -> None:
    async with index_job_server.running(tmp_path) as world:
        soon = world.time.wall() + 0.3
        hold = job_start_queue.Hold(reason="WaitingForDependency", message="Job load is not over")
        uid = await world.put(start_after=soon, hold=hold)
        view = world.view(uid)
        assert (view.phase, view.reason, view.message) == (_P.QUEUED, hold.reason, hold.message)
        await world.restart()
        assert world.view(uid).waiting_for == hold
        await world.jobs.set_hold(uid, None)
        done = await world.wait_until_finished(uid)
        assert done.started is not None
        assert done.started >= soon
        lost = await world.put("lost", hold=hold)
        await world.jobs.fail(lost, "DependencyFailed", "Job load failed")
        done = await world.wait_until_finished(lost)
        assert (done.phase, done.reason) == (_P.FAILED, "DependencyFailed")


async def test_waiting_reason_is_published_when_it_changes(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    async with index_job_server.running(tmp_path) as world:
        hold = job_start_queue.Hold(
            reason="WaitingForDependency", message="Job load does not exist"
        )
        uid = await world.put(hold=hold)
        seen = world.view(uid)
        for message in ("Job load is not over yet", "Job more is not over yet"):
            await world.jobs.set_hold(
                uid, job_start_queue.Hold(reason=hold.reason, message=message)
            )
            now = world.view(uid)
            assert now.version > seen.version
            assert now.message == message
            seen = now
        one = await world.put("one", group=world.group("Enqueue"), locks=[{"name": "warehouse"}])
        two = await world.put(
            "two", group=world.group("Enqueue", config=index_job_server.new_uid())
        )
        group = world.group("Enqueue", config=world.view(two).group)
        three = await world.put("three", group=group, locks=[{"name": "warehouse"}])
        seen = world.view(three)
        assert seen.reason == "Queued"
        await world.jobs.kill(two)
        now = await world.until(three, lambda view: view.version > seen.version)
        assert now.reason == "WaitingForLock"
        await world.release_hold()
        for done in (one, three):
            assert (await world.wait_until_finished(done)).phase is _P.SUCCEEDED


async def test_job_shows_the_waiting_reason_of_its_executor(tmp_path: Path) -> None:
    async with index_job_server.running(tmp_path) as world:
        template = {"taskTemplate": {"external": {"executor": "missing"}}}
        uid = await world.put(template=template)
        view = await world.until(uid, lambda view: view.reason == "ExecutorUnavailable")
        assert view.phase is _P.PENDING
        assert view.message.startswith("no program claims tasks of executor missing")
        await world.jobs.suspend(uid, suspended=True)
        view = await world.until(uid, lambda view: view.reason == "Suspended")
        await world.jobs.kill(uid)


async def test_index_number_is_the_one_shown_to_users(tmp_path: Path) -> None:
    async with index_job_server.running(tmp_path) as world:
        template = {
            "taskTemplate": {"clusterName": "counter", "command": ["false"]},
            "retry": {"maxAttempts": 2, "delaySeconds": 3600, "maxDelaySeconds": 3600},
        }
        uid = await world.put(template=template)
        view = await world.until(uid, lambda view: view.reason == "Retrying")
        assert view.message.startswith("index 0 is tried again: ")
        await world.jobs.suspend(uid, suspended=True)
        view = await world.until(uid, lambda view: view.reason == "Suspended")
        assert view.message == "resume it, and indexes start again"
        await world.jobs.kill(uid)


async def test_group_limits_hold_after_a_restart(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    async with index_job_server.running(tmp_path) as world:
        first = await world.put("first", group=world.group("Forbid"))
        refused = await world.jobs.put(world.new("refused", group=world.group("Forbid")))
        assert (refused.phase, refused.reason) == (_P.ADMISSION_ERROR, "Forbidden")
        second = await world.put("second", group=world.group("Enqueue", queued=2))
        third = await world.put("third", group=world.group("Enqueue", queued=2), priority=1)
        full = await world.jobs.put(world.new("full", group=world.group("Enqueue", queued=2)))
        assert (full.phase, full.reason) == (_P.ADMISSION_ERROR, "QueueFull")
        await world.restart()
        group = world.jobs.group(index_job_server.CONFIG)
        assert (group.active, group.queued) == ((first,), (third, second))
        assert world.view(second).reason == "Queued"
        again = await world.jobs.put(world.new("again", group=world.group("Forbid")))
        assert again.phase is _P.ADMISSION_ERROR
        await world.release_hold()
        for uid in (first, second, third):
            assert (await world.wait_until_finished(uid)).phase is _P.SUCCEEDED
        starts = [world.view(uid).started or 0 for uid in (first, third, second)]
        assert starts == sorted(starts)
        assert world.jobs.group(index_job_server.CONFIG).active == ()


async def test_refused_job_is_decided_again_in_a_rerun(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    async with index_job_server.running(tmp_path) as world:
        first = await world.put("first", group=world.group("Forbid"))
        refused = await world.put("refused", group=world.group("Forbid"))
        await world.jobs.rerun(refused, 2)
        view = world.view(refused)
        assert (view.run, view.phase, view.reason) == (2, _P.ADMISSION_ERROR, "Forbidden")
        await world.release_hold()
        await world.wait_until_finished(first)
        await world.restart()
        await world.jobs.rerun(refused, 3)
        assert world.view(refused).run == 3
        assert (await world.wait_until_finished(refused)).phase is _P.SUCCEEDED


async def test_undecided_tick_is_refused_in_each_run(tmp_path: Path) -> None:
    async with index_job_server.running(tmp_path) as world:
        early = await world.put("early", group=world.group("Allow"), tick=100)
        await world.restart()
        await world.jobs.rerun(early, 2)
        await world.restart()
        view = world.view(early)
        assert (view.run, view.phase, view.reason) == (2, _P.ADMISSION_ERROR, "TickNotDecided")
        assert "make another Job" in view.message
        assert world.calls == []


async def test_replacing_job_kills_earlier_jobs(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    async with index_job_server.running(tmp_path) as world:
        old = await world.put("old", group=world.group("Replace"))
        await world.wait_for_calls(1)
        new = await world.put("new", group=world.group("Replace"))
        ended = await world.wait_until_finished(old)
        assert (ended.phase, ended.reason, ended.stopped) == (_P.KILLED, "Replaced", True)
        view = await world.until(new, lambda view: view.started)
        assert (view.started or 0) >= (ended.finished or 0)
        await world.release_hold()
        assert (await world.wait_until_finished(new)).phase is _P.SUCCEEDED


async def test_lock_is_held_by_one_job(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    async with index_job_server.running(tmp_path) as world:
        locks = [{"name": "warehouse"}]
        one = await world.put("one", locks=locks)
        two = await world.put("two", locks=[{"name": "warehouse", "mode": "Shared"}])
        await world.wait_for_calls(1)
        await world.restart()
        assert world.view(two).reason == "WaitingForLock"
        assert world.calls == [0]
        await world.release_hold()
        await world.wait_until_finished(one)
        await world.wait_until_finished(two)
        assert (world.view(two).started or 0) >= (world.view(one).finished or 0)


async def test_tick_creates_one_job(tmp_path: Path) -> None:
    async with index_job_server.running(tmp_path) as world:
        group = world.group("Allow")
        decision = index_job_types.TickDecision(
            config=index_job_server.CONFIG,
            namespace=index_job_server.NS,
            name="nightly",
            tick=200,
            run=(100, 200),
            dropped={"TooLate": 2},
            latest_dropped=50,
            latest_reason="TooLate",
        )
        early = await world.jobs.put(world.new("early", group=group, tick=100))
        assert (early.phase, early.reason) == (_P.ADMISSION_ERROR, "TickNotDecided")
        await world.jobs.decide(decision)
        with pytest.raises(errors.TickDecided):
            await world.jobs.decide(decision)
        new = world.new("nightly-100", group=group, tick=100)
        await world.jobs.put(new)
        await world.restart()
        row = world.jobs.schedule(index_job_server.CONFIG)
        assert row is not None
        assert (row.tick, row.pending, row.taken) == (200, (200,), {100: new.uid})
        assert (row.dropped, row.latest_dropped) == ({"TooLate": 2}, 50)
        assert (await world.wait_until_finished(new.uid)).phase is _P.SUCCEEDED
        refused = index_job_types.TickDecision(
            config=index_job_server.CONFIG,
            namespace="default",
            name="nightly",
            tick=200,
            abandon=(100,),
            dropped={"Refused": 1},
        )
        await world.jobs.decide(refused)
        await world.restart()
        row = world.jobs.schedule(index_job_server.CONFIG)
        assert row is not None
        assert (row.pending, row.taken, row.refused) == ((200,), {100: new.uid}, (100,))
        assert row.dropped == {"TooLate": 2, "Refused": 1}
        await world.jobs.release(new.uid)
        other = await world.jobs.put(world.new("nightly-100", group=group, tick=100))
        assert other.phase is _P.ADMISSION_ERROR
        unknown = await world.jobs.put(world.new("nightly-150", group=group, tick=150))
        assert unknown.phase is _P.ADMISSION_ERROR
        await world.jobs.forget_schedule(index_job_server.CONFIG)
        await world.restart()
        assert world.jobs.schedule(index_job_server.CONFIG) is None


async def test_released_job_is_removed_with_its_running_tasks(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    async with index_job_server.running(tmp_path) as world:
        uid = await world.put()
        await world.wait_for_calls(1)
        await world.jobs.release(uid)
        assert world.jobs.view(uid) is None
        await waiting.wait_until_async(
            lambda: world.task(uid, 1).state is _T.KILLED, what="its end", timeout_s=60.0
        )
        await world.jobs.release(uid)
        await waiting.wait_until_async(
            lambda: world.hub.participation.select("job_by_uuid", uuid.UUID(uid).bytes) == [],
            what="its row",
            timeout_s=60.0,
        )
        with contextlib.closing(apsw.Connection(str(tmp_path / "journal.db"))) as found:
            for table in ("job", "job_input", "job_page", "job_claim"):
                assert found.execute(f"SELECT * FROM {table}").fetchall() == []  # noqa: S608
        with pytest.raises(errors.NoSuchJob):
            await world.jobs.indexes(uid)


async def test_file_job_lists_leave_out_index_jobs(tmp_path: Path) -> None:
    async with index_job_server.running(tmp_path) as world:
        uid = await world.put("named")
        await world.wait_until_finished(uid)
        files = world.services.files
        assert files.jobs(index_job_server.NS) == ([], None)
        assert files.jobs(None) == ([], None)
        assert files.jobs(None, wanted=_named("named")) == ([], None)
        assert files.counts() == []
        assert files.job(index_job_server.NS, "named") is None
        assert files.job(index_job_server.NS, uid) is None


def _named(name: str) -> Any:
    return file_job_types.JobQuery(name=name)
