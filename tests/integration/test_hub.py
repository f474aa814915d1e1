"""The hub over a real socket and a real journal, as its callers and workers see it."""

import asyncio
import contextlib
import os
import socket
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import cast

import msgspec
import pytest

from kilnwork.api import attempts, reasons
from kilnwork.api import task as api_task
from kilnwork.channel import messages
from kilnwork.dispatch import errors, model
from kilnwork.dispatch.hub import hub
from kilnwork.dispatch.journal import port, task_rows
from kilnwork.dispatch.journal.sqlite import journal
from kilnwork.dispatch.machine import memory, records
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids
from support import hubs, raw_worker, waiting

FAILED = attempts.Outcome(attempts.Ending.FAILED, "NonZeroExit", "exit 1", exit_code=1)
STOPPED = attempts.Outcome(attempts.Ending.STOPPED, "Killed", exit_code=143)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
async def dispatcher(directory: Path) -> AsyncIterator[hub.Hub]:
    async with hubs.running(directory) as started:
        yield started


def a_worker(directory: Path, name: str = "w-0", *, slots: int = 2) -> raw_worker.RawWorker:
    return raw_worker.RawWorker(directory / "run" / "channel.sock", name=name, slots=slots)


def a_task(name: str = "t", **spec: object) -> model.Submission:
    filled = api_task.TaskSpec(command=("true",), **spec)  # type: ignore[arg-type]
    return model.Submission(task=ids.new_task_id(), namespace="ns", name=name, spec=filled)


async def state_of(dispatcher: hub.Hub, task: ids.TaskId, wanted: api_task.State) -> model.TaskView:
    def look() -> model.TaskView | None:
        view = dispatcher.view(task)
        return view if view is not None and view.state is wanted else None

    view = await waiting.wait_until_async(look, what=f"state {wanted}")
    assert isinstance(view, model.TaskView)
    return view


async def test_task_runs_and_its_result_is_stored(dispatcher: hub.Hub, directory: Path) -> None:
    async with a_worker(directory) as worker:
        submission = a_task()
        view = await dispatcher.submit(submission)
        assert view.state in {api_task.State.PENDING, api_task.State.STAGING}
        run = await worker.expect(messages.Run)
        assert run.ref == attempts.AttemptRef(submission.task, 1, 1)
        assert run.spec == submission.spec
        worker.started(run.ref)
        await state_of(dispatcher, submission.task, api_task.State.RUNNING)
        await worker.wait_until_acknowledged(worker.succeed(run.ref, b'{"n": 1}'))
        done = hubs.view(dispatcher, submission.task)
        assert done.state is api_task.State.SUCCESS
        assert done.result == attempts.Payload("application/json", b'{"n": 1}')
        assert (done.worker, done.node, done.attempt, done.stopped) == ("w-0", "node-1", 1, True)


async def test_repeated_submit_changes_nothing(dispatcher: hub.Hub, directory: Path) -> None:
    submission = a_task()
    first = await asyncio.gather(*(dispatcher.submit(submission) for _ in range(5)))
    assert {view.created for view in first} == {first[0].created}
    async with a_worker(directory) as worker:
        run = await worker.expect(messages.Run)
        await worker.wait_until_acknowledged(worker.succeed(run.ref))
        assert (await dispatcher.submit(submission)).state is api_task.State.SUCCESS
        with pytest.raises(TimeoutError):
            await worker.expect(messages.Run, timeout_s=0.1)


async def test_running_a_success_again_needs_force(dispatcher: hub.Hub, directory: Path) -> None:
    submission = a_task()
    again = model.Submission(
        task=submission.task,
        namespace="ns",
        name="t",
        spec=api_task.TaskSpec(command=("true",), run=2),
    )
    async with a_worker(directory) as worker:
        await dispatcher.submit(submission)
        run = await worker.expect(messages.Run)
        await worker.wait_until_acknowledged(worker.succeed(run.ref))
        with pytest.raises(errors.RunRefused, match="needs force"):
            await dispatcher.submit(again)
        await dispatcher.submit(again, force=True)
        rerun = await worker.expect(messages.Run)
        assert rerun.ref == attempts.AttemptRef(submission.task, 2, 1)


async def test_failure_is_retried_within_its_budget(dispatcher: hub.Hub, directory: Path) -> None:
    retry = api_task.Retry(max_attempts=2, delay_seconds=0.05)
    submission = a_task(retry=retry)
    async with a_worker(directory) as worker:
        await dispatcher.submit(submission)
        for number in (1, 2):
            run = await worker.expect(messages.Run)
            assert run.ref.attempt == number
            worker.started(run.ref)
            worker.finished(run.ref, FAILED)
        view = await state_of(dispatcher, submission.task, api_task.State.FAILED)
        assert (view.failures, view.reason, view.exit_code) == (2, "NonZeroExit", 1)


async def test_late_report_is_acknowledged_and_refused(
    dispatcher: hub.Hub, directory: Path
) -> None:
    submission = a_task(retry=api_task.Retry(max_attempts=2, delay_seconds=0))
    async with a_worker(directory) as worker:
        await dispatcher.submit(submission)
        run = await worker.expect(messages.Run)
        worker.started(run.ref)
        worker.finished(run.ref, FAILED)
        newer = await worker.expect(messages.Run)
        assert newer.ref.attempt == 2
        await worker.wait_until_acknowledged(worker.succeed(run.ref))
        view = hubs.view(dispatcher, submission.task)
        assert not view.state.final


async def test_pending_task_is_killed_at_once(dispatcher: hub.Hub) -> None:
    submission = a_task()
    await dispatcher.submit(submission)
    await dispatcher.kill(submission.task, reason=reasons.Reason.KILLED)
    view = hubs.view(dispatcher, submission.task)
    assert (view.state, view.reason, view.stopped) == (api_task.State.KILLED, "Killed", True)


async def test_running_task_is_killed_with_proof(dispatcher: hub.Hub, directory: Path) -> None:
    submission = a_task()
    async with a_worker(directory) as worker:
        await dispatcher.submit(submission)
        run = await worker.expect(messages.Run)
        worker.started(run.ref)
        await dispatcher.kill(submission.task, reason=reasons.Reason.KILLED)
        stop = await worker.expect(messages.Stop)
        assert (stop.ref, stop.grace_s) == (run.ref, 30.0)
        view = hubs.view(dispatcher, submission.task)
        assert view.state is api_task.State.KILLING
        worker.finished(run.ref, STOPPED)
        killed = await state_of(dispatcher, submission.task, api_task.State.KILLED)
        assert killed.stopped is True


async def test_changes_are_published_in_order_and_once(
    dispatcher: hub.Hub, directory: Path
) -> None:
    since, views = await dispatcher.changes(0)
    assert views == []
    waiter = asyncio.ensure_future(dispatcher.changes(since))
    submission = a_task()
    await dispatcher.submit(submission)
    since, (view,) = await waiter
    assert view.task == submission.task
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(dispatcher.changes(since), 0.1)
    _, everything = await dispatcher.changes(0)
    assert [known.task for known in everything] == [submission.task]


@pytest.mark.parametrize("later", [1, 2])
async def test_number_of_an_earlier_dispatcher_is_followed_by_all_tasks(
    directory: Path, later: int
) -> None:
    async with hubs.running(directory) as dispatcher:
        await dispatcher.submit(a_task("before"))
        since, _ = await dispatcher.changes(0)
        clusters_since, _ = await dispatcher.clusters_changed(0)
    async with hubs.running(directory) as dispatcher, asyncio.timeout(10):
        names = [f"later-{number}" for number in range(later)]
        for name in names:
            await dispatcher.submit(a_task(name))
        _, views = await dispatcher.changes(since)
        assert sorted(view.name for view in views) == ["before", *names]
        assert (await dispatcher.clusters_changed(clusters_since))[1] == {("ns", "default")}


async def test_waiting_task_shows_its_reason(dispatcher: hub.Hub, directory: Path) -> None:
    first, second = a_task("first"), a_task("second")
    assert (await dispatcher.submit(first)).reason == "NoWorker"
    await dispatcher.submit(second)
    since, _ = await dispatcher.changes(0)
    async with a_worker(directory, slots=1) as worker:
        await worker.expect(messages.Run)
        since, changed = await dispatcher.changes(since)
        assert second.task in {view.task for view in changed}
        view = hubs.view(dispatcher, second.task)
        assert view.reason == "NoFreeSlot"
        assert "taken by first" in view.message


async def test_higher_priority_goes_first(dispatcher: hub.Hub, directory: Path) -> None:
    names = [("low", -1), ("one", 0), ("two", 0), ("high", 5)]
    for name, priority in names:
        await dispatcher.submit(a_task(name, priority=priority))
    async with a_worker(directory, slots=1) as worker:
        order = []
        for _ in names:
            run = await worker.expect(messages.Run)
            order.append(run.name)
            worker.succeed(run.ref)
    assert order == ["high", "one", "two", "low"]


def spawn(
    parent: attempts.AttemptRef, serial: int, *, ordinal: int = 1, key: str | None = None,
    command: str = "true", name: str | None = None,
) -> messages.Spawn:  # fmt: skip
    spec = api_task.TaskSpec(command=(command,))
    return messages.Spawn(serial, parent, ordinal, key, name, spec, None)


async def test_child_is_created_once_and_can_be_queried(
    dispatcher: hub.Hub, directory: Path
) -> None:
    async with a_worker(directory) as worker:
        submission = a_task()
        await dispatcher.submit(submission)
        parent = (await worker.expect(messages.Run)).ref
        worker.started(parent)
        running = await state_of(dispatcher, submission.task, api_task.State.RUNNING)
        assert running.children == api_task.ChildCounts()
        worker.say(spawn(parent, 10), spawn(parent, 11))
        made = await worker.expect(messages.Response)
        found = await worker.expect(messages.Response)
        view = hubs.view(dispatcher, submission.task)
        assert view.children == api_task.ChildCounts(total=1, running=1)
        assert (made.serial, made.status) == (10, 201)
        assert (found.serial, found.status, found.body) == (11, 200, made.body)
        child = await worker.expect(messages.Run)
        assert child.name == ids.task_text(child.ref.task)
        worker.say(messages.GetTask(12, parent, child.ref.task, 5.0))
        worker.succeed(child.ref, b"[1]")
        response = await worker.expect(messages.Response)
        assert response.status == 200
        assert b'"state":"Success"' in response.body
        assert b'"result":[1]' in response.body
        view = hubs.view(dispatcher, submission.task)
        assert view.children == api_task.ChildCounts(total=1, succeeded=1)
        worker.say(spawn(parent, 13))
        after = await worker.expect(messages.Response)
        assert (after.status, after.body) == (200, made.body)


async def test_next_attempt_finds_the_children(dispatcher: hub.Hub, directory: Path) -> None:
    retry = api_task.Retry(max_attempts=2, delay_seconds=0)
    async with a_worker(directory, slots=9) as worker:
        submission = a_task(retry=retry)
        await dispatcher.submit(submission)
        parent = (await worker.expect(messages.Run)).ref
        worker.started(parent)
        worker.say(spawn(parent, 10, key="same"), spawn(parent, 11, key="other"))
        worker.say(spawn(parent, 12, key="dropped"))
        first = [await worker.expect(messages.Response) for _ in range(3)]
        children = {run.ref.task: run.ref for run in
                    [await worker.expect(messages.Run) for _ in range(3)]}  # fmt: skip
        for ref in children.values():
            worker.started(ref)
        worker.finished(parent, FAILED)
        again = (await worker.expect(messages.Run)).ref
        assert again.attempt == 2
        worker.started(again)
        worker.say(spawn(again, 13, key="same"))
        assert await worker.expect(messages.Response) == messages.Response(13, 200, first[0].body)
        worker.say(spawn(again, 14, key="other", command="false"))
        other = await worker.expect(messages.Response)
        assert other.status == 201
        assert other.body != first[1].body
        stopped = await worker.expect(messages.Stop)
        assert ids.task_text(stopped.ref.task) in first[1].body.decode()
        view = hubs.view(dispatcher, submission.task)
        assert view.reason == "NonDeterministicRetry"
        worker.succeed(again)
        dropped = await worker.expect(messages.Stop)
        assert ids.task_text(dropped.ref.task) in first[2].body.decode()


async def test_kill_ends_descendants(dispatcher: hub.Hub, directory: Path) -> None:
    async with a_worker(directory, slots=9) as worker:
        submission = a_task()
        await dispatcher.submit(submission)
        refs = []
        for depth in range(3):
            ref = (await worker.expect(messages.Run)).ref
            refs.append(ref)
            worker.started(ref)
            if depth < 2:
                worker.say(spawn(ref, 100 + depth))
                assert (await worker.expect(messages.Response)).status == 201
        await worker.wait_until_acknowledged(worker.serial)
        await dispatcher.kill(submission.task, reason=reasons.Reason.KILLED)
        stops = {(await worker.expect(messages.Stop)).ref for _ in range(3)}
        assert stops == set(refs)


async def test_spawned_task_cannot_use_fields_of_task_objects(
    dispatcher: hub.Hub, directory: Path
) -> None:
    async with a_worker(directory) as worker:
        await dispatcher.submit(a_task())
        parent = (await worker.expect(messages.Run)).ref
        worker.started(parent)
        spec = api_task.TaskSpec(command=("true",), input_object="x")
        worker.say(messages.Spawn(5, parent, 1, None, None, spec, None))
        response = await worker.expect(messages.Response)
        assert response.status == 422
        assert b"inputObject" in response.body


async def test_image_of_a_child_is_used_or_refused(directory: Path) -> None:
    asked = []

    def rule(namespace: str, spec: api_task.TaskSpec) -> model.ImageUse:
        asked.append((namespace, spec.image))
        other = msgspec.structs.replace(spec, image="", command=("other",))
        if spec.image == "label":
            return model.ImageUse(spec, warning="it is a label")
        return model.ImageUse(other, refusal="not now" if spec.image == "none" else "", status=503)

    async with (
        hubs.running(directory, options=hub.HubOptions(images=rule)) as dispatcher,
        a_worker(directory, slots=4) as worker,
    ):
        await dispatcher.submit(a_task())
        parent = (await worker.expect(messages.Run)).ref
        worker.started(parent)
        for serial, image in enumerate(["", "mine", "mine", "label", "none"], 10):
            spec = api_task.TaskSpec(command=("true",), image=image)
            key = image or "plain"
            worker.say(messages.Spawn(serial, parent, 0, key, None, spec, None))
        responses = [await worker.expect(messages.Response) for _ in range(5)]
        responses.sort(key=lambda response: response.serial)  # a refusal is not stored first
        assert [response.status for response in responses] == [201, 201, 200, 201, 503]
        assert responses[1].body == responses[2].body
        bodies = [msgspec.json.decode(response.body) for response in responses]
        assert [body.get("warnings") for body in bodies] == [
            None,
            None,
            None,
            ["it is a label"],
            None,
        ]
        assert bodies[4] == {"message": "not now"}
        runs = [await worker.expect(messages.Run) for _ in range(3)]
        assert {run.spec.command for run in runs} == {("true",), ("other",)}
        assert asked == [("ns", image) for image in ("mine", "mine", "label", "none")]


async def test_reconnect_keeps_running_attempts(dispatcher: hub.Hub, directory: Path) -> None:
    submission = a_task()
    worker = a_worker(directory)
    async with worker:
        await dispatcher.submit(submission)
        run = await worker.start_next_run()
        worker.say(messages.Log(run.ref, 0, b"hello\n"))
        assert (await worker.expect(messages.LogKept)).offset == 6
    stranger = attempts.AttemptRef(ids.new_task_id(), 1, 1)
    worker.running = [run.ref, stranger]
    await worker.connect()
    welcome = await worker.expect(messages.Welcome)
    assert set(welcome.decisions) == {
        messages.Decision(run.ref, messages.Verdict.KEEP, 6),
        messages.Decision(stranger, messages.Verdict.UNKNOWN, 0),
    }
    await worker.wait_until_acknowledged(worker.succeed(run.ref))
    view = hubs.view(dispatcher, submission.task)
    assert (view.state, view.attempt) == (api_task.State.SUCCESS, 1)
    await worker.disconnect()


async def test_unread_run_is_sent_again(dispatcher: hub.Hub, directory: Path) -> None:
    worker = a_worker(directory)
    async with worker:
        await dispatcher.submit(a_task())
        run = await worker.expect(messages.Run)
    await worker.connect()
    assert (await worker.expect(messages.Run)).ref == run.ref
    await worker.disconnect()


async def test_restarted_container_loses_its_attempts_at_once(
    dispatcher: hub.Hub, directory: Path
) -> None:
    submission = a_task()
    async with a_worker(directory) as worker:
        await dispatcher.submit(submission)
        await worker.start_next_run()
    async with a_worker(directory) as reborn:
        again = await reborn.expect(messages.Run)
        assert again.ref.attempt == 2
        view = hubs.view(dispatcher, submission.task)
        assert (view.losses, view.failures) == (1, 0)
        assert view.loss.startswith("WorkerLost: ")


async def test_deleted_pod_loses_its_attempts_at_once(dispatcher: hub.Hub, directory: Path) -> None:
    async with a_worker(directory) as worker:
        await dispatcher.submit(a_task())
        first = await worker.expect(messages.Run)
        async with a_worker(directory, "w-1") as other:
            await dispatcher.worker_gone("uid-w-0")
            second = await other.expect(messages.Run)
            assert second.ref.attempt == first.ref.attempt + 1
            await worker.closed()


async def test_container_that_ended_loses_its_attempts_but_no_later_ones(
    dispatcher: hub.Hub, directory: Path
) -> None:
    async with a_worker(directory) as worker:
        submission = a_task()
        await dispatcher.submit(submission)
        await worker.start_next_run()
        began = ids.session_began(worker.session)
        assert began is not None
        await dispatcher.worker_gone("uid-w-0", ended=began + 60)
        view = hubs.view(dispatcher, submission.task)
        assert view.state is api_task.State.RUNNING, "its link stands"
    await waiting.wait_until_async(
        lambda: not ready(dispatcher), what="the dispatcher knows that its link is gone"
    )
    await dispatcher.worker_gone("uid-w-0", ended=began - 60)
    view = hubs.view(dispatcher, submission.task)
    assert view.state is api_task.State.RUNNING, "it was another container"
    await dispatcher.worker_gone("uid-w-0", why="OOMKilled", ended=began + 60)
    view = await state_of(dispatcher, submission.task, api_task.State.PENDING)
    assert view.loss == "WorkerLost: the container of worker w-0 has ended: OOMKilled"


def ready(dispatcher: hub.Hub) -> bool:
    seen = dispatcher.cluster("ns", "default")
    return seen is not None and any(worker.ready for worker in seen.workers)


async def test_expired_lease_fences_the_worker(directory: Path) -> None:
    clock = clocks.ManualClock()
    async with hubs.running(directory, clock=clock) as dispatcher:
        submission = a_task()
        async with a_worker(directory) as worker:
            await dispatcher.submit(submission)
            await worker.start_next_run()
            for _ in range(12):
                clock.advance(1.0)
                dispatcher.tick()
            await worker.closed()
        view = await state_of(dispatcher, submission.task, api_task.State.PENDING)
        assert (view.losses, view.stopped) == (1, False)


async def test_after_a_stall_every_lease_gets_a_full_term(directory: Path) -> None:
    clock = clocks.ManualClock()
    async with hubs.running(directory, clock=clock) as dispatcher, a_worker(directory) as worker:
        submission = a_task()
        await dispatcher.submit(submission)
        await worker.start_next_run()
        clock.advance(3600.0)
        dispatcher.tick()
        worker.say(messages.Renew(1))
        await worker.expect(messages.Renewed)
        view = hubs.view(dispatcher, submission.task)
        assert view.state is api_task.State.RUNNING


async def test_dispatcher_ends_when_a_deadline_cannot_be_handled(directory: Path) -> None:
    clock, failures = clocks.ManualClock(), list[BaseException]()
    options = hub.HubOptions(on_failure=failures.append)
    async with hubs.running(directory, clock=clock, options=options) as dispatcher:
        submission = a_task(timeouts=api_task.Timeouts(pending_seconds=1))
        await dispatcher.submit(submission)
        broken = cast(records.Task, None)
        dispatcher._core.machine.memory.set_timer(1.0, memory.Timer.RETRY, broken)
        clock.advance(1.0)
        dispatcher.tick()
        assert [type(error) for error in failures] == [AttributeError]
        with pytest.raises(errors.HubStopped, match="failed"):
            await dispatcher.submit(a_task())
    # The next one meets the deadline, which the failed tick took from memory.
    async with hubs.running(directory) as dispatcher:
        await state_of(dispatcher, submission.task, api_task.State.FAILED)


async def test_attempt_that_runs_too_long_is_stopped_and_retried(directory: Path) -> None:
    clock = clocks.ManualClock()
    timeouts = api_task.Timeouts(running_seconds=5.0)
    retry = api_task.Retry(max_attempts=2, delay_seconds=0, on=("timeout",))
    async with hubs.running(directory, clock=clock) as dispatcher, a_worker(directory) as worker:
        submission = a_task(timeouts=timeouts, retry=retry)
        await dispatcher.submit(submission)
        run = await worker.expect(messages.Run)
        worker.started(run.ref, at=clock.wall())
        await worker.wait_until_acknowledged(1)
        for _ in range(6):
            clock.advance(1.0)
            dispatcher.tick()
        stop = await worker.expect(messages.Stop)
        assert stop.reason == "TimedOut"
        view = hubs.view(dispatcher, submission.task)
        assert (view.state, view.reason) == (api_task.State.RUNNING, "TimedOut")
        worker.finished(run.ref, STOPPED)
        assert (await worker.expect(messages.Run)).ref.attempt == 2


async def test_deleted_cluster_fails_its_tasks(dispatcher: hub.Hub, directory: Path) -> None:
    waits = a_task("waits", cluster_name="other")
    await dispatcher.submit(waits)
    async with a_worker(directory) as worker:
        runs = a_task("runs")
        await dispatcher.submit(runs)
        run = await worker.expect(messages.Run)
        worker.started(run.ref)
        await dispatcher.close_cluster("ns", "other")
        await dispatcher.close_cluster("ns", "default")
        await worker.expect(messages.Stop)
        worker.finished(run.ref, STOPPED)
        for task in (waits, runs):
            view = await state_of(dispatcher, task.task, api_task.State.FAILED)
            assert view.reason == "ClusterDeleted"


async def test_clusters_show_workers_and_queue(dispatcher: hub.Hub, directory: Path) -> None:
    since, clusters = await dispatcher.clusters_changed(0)
    assert clusters == set()
    async with a_worker(directory, slots=1):
        since, clusters = await dispatcher.clusters_changed(since)
        assert clusters == {("ns", "default")}
        await dispatcher.submit(a_task())
        await dispatcher.submit(a_task())
        view = dispatcher.cluster("ns", "default")
        assert view is not None
        assert (view.slots, view.busy, view.queued) == (1, 1, 1)


@pytest.mark.parametrize(
    "rubbish",
    [b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\x03abc", b"GET / HTTP/1.1\r\n\r\n"],
    ids=["giant", "empty", "noise", "http"],
)
async def test_malformed_frames_close_only_their_link(
    dispatcher: hub.Hub, directory: Path, rubbish: bytes
) -> None:
    async with a_worker(directory) as good:
        bad = a_worker(directory, "bad")
        await bad.dial()
        bad.send(rubbish)
        refused = await bad.expect(messages.Refused)
        assert refused.reason == "Malformed"
        await bad.closed()
        await bad.disconnect()
        late = a_worker(directory, "late")
        async with late:
            late.send(rubbish)
            await late.closed()
        good.say(messages.Renew(7))
        assert (await good.expect(messages.Renewed)).number == 7


async def test_random_bytes_harm_no_other_link(dispatcher: hub.Hub, directory: Path) -> None:
    async with a_worker(directory) as good:
        for _ in range(50):
            bad = a_worker(directory, "bad")
            await bad.dial()
            bad.send(os.urandom(64))
            await bad.disconnect()
        good.say(messages.Renew(1))
        await good.expect(messages.Renewed)


Change = Callable[[raw_worker.RawWorker], None]


@pytest.mark.parametrize(
    ("attribute", "value", "reason"),
    [
        ("credential", "wrong", "Credential"),
        ("session", b"short", "Malformed"),
        ("slots", -1, "Malformed"),
        ("epoch", 99, "Epoch"),
    ],
)
async def test_unauthenticated_peer_gets_the_reason(
    dispatcher: hub.Hub, directory: Path, attribute: str, value: object, reason: str
) -> None:
    worker = a_worker(directory)
    setattr(worker, attribute, value)
    await worker.connect()
    assert (await worker.expect(messages.Refused)).reason == reason
    await worker.closed()
    await worker.disconnect()
    assert dispatcher.cluster("ns", "default") is None


async def test_restart_restores_all_tasks(directory: Path) -> None:
    waits, runs, done = a_task("waits"), a_task("runs"), a_task("done")
    worker = a_worker(directory, slots=1)
    async with hubs.running(directory) as dispatcher, worker:
        await dispatcher.submit(done)
        ended = await worker.expect(messages.Run)
        await worker.wait_until_acknowledged(worker.succeed(ended.ref, b"5"))
        await dispatcher.submit(runs)
        run = await worker.expect(messages.Run)
        worker.started(run.ref)
        await worker.wait_until_acknowledged(worker.serial)
        await dispatcher.submit(waits)
        epoch = dispatcher.epoch
    async with hubs.running(directory) as dispatcher:
        assert dispatcher.epoch == epoch + 1
        _, views = await dispatcher.changes(0)
        states = {view.name: view.state.value for view in views}
        assert states == {"waits": "Pending", "runs": "Running", "done": "Success"}
        worker.running = [run.ref]
        await worker.connect()
        welcome = await worker.expect(messages.Welcome)
        assert [d.verdict for d in welcome.decisions] == [messages.Verdict.KEEP]
        worker.succeed(run.ref)
        assert (await worker.expect(messages.Run)).name == "waits"
        await worker.disconnect()


async def test_restart_keeps_the_order_of_submission(directory: Path) -> None:
    names = ["c", "a", "b"]
    async with hubs.running(directory) as first:
        for name in names:
            await first.submit(a_task(name))
    async with hubs.running(directory), a_worker(directory, slots=1) as worker:
        for name in names:
            run = await worker.expect(messages.Run)
            assert run.name == name
            worker.succeed(run.ref)


async def test_workers_without_attempts_leave_no_row(directory: Path) -> None:
    async with hubs.running(directory) as running:
        async with a_worker(directory) as worker:
            submission = a_task()
            await running.submit(submission)
            worker.succeed((await worker.expect(messages.Run)).ref)
            await state_of(running, submission.task, api_task.State.SUCCESS)
        for _ in range(3):
            async with a_worker(directory):
                pass
    count = "SELECT count(*) FROM worker"
    with contextlib.closing(sqlite3.connect(directory / "journal.db")) as journal, journal:
        assert journal.execute(count).fetchone() == (1,)
        old = [(row, b"", "", "", "", "", "") for row in range(10, 10_100)]
        journal.executemany("INSERT INTO worker VALUES (?, ?, ?, ?, ?, ?, ?)", old)
    async with hubs.running(directory):
        pass
    with contextlib.closing(sqlite3.connect(directory / "journal.db")) as journal:
        assert journal.execute(count).fetchone() == (1,)


async def test_suspended_tasks_stay_suspended_after_restart(directory: Path) -> None:
    submission = a_task()
    async with hubs.running(directory) as first:
        await first.submit(submission)
        held = await first.suspend(submission.task, suspended=True)
        assert held is not None
        assert (held.state, held.reason, held.suspended) == ("Pending", "Suspended", True)
    async with hubs.running(directory) as second, a_worker(directory) as worker:
        with pytest.raises(TimeoutError):
            await worker.expect(messages.Run, timeout_s=0.1)
        await second.suspend(submission.task, suspended=False)
        await worker.expect(messages.Run)


async def test_waiting_time_counts_across_a_restart(directory: Path) -> None:
    clock = clocks.ManualClock()
    limits = api_task.Timeouts(pending_seconds=10)
    submission = msgspec.structs.replace(a_task(timeouts=limits), pending_since=clock.wall() - 4)
    async with hubs.running(directory, clock=clock) as first:
        await first.submit(submission)
    clock.advance(5)
    async with hubs.running(directory, clock=clock) as second:
        clock.advance(1.5)
        second.tick()
        view = await state_of(second, submission.task, api_task.State.FAILED)
        assert view.reason == reasons.Reason.PENDING_TIMED_OUT


async def test_loss_while_the_dispatcher_was_away_is_not_counted(directory: Path) -> None:
    submission = a_task(retry=api_task.Retry(max_losses=0))
    async with hubs.running(directory) as dispatcher, a_worker(directory) as worker:
        await dispatcher.submit(submission)
        await worker.start_next_run()
    async with hubs.running(directory) as dispatcher, a_worker(directory) as reborn:
        assert (await reborn.expect(messages.Run)).ref.attempt == 2
        view = hubs.view(dispatcher, submission.task)
        assert (view.losses, view.failures) == (1, 0)


def pass_seconds(clock: clocks.ManualClock, dispatcher: hub.Hub, seconds: int) -> None:
    """Renew one lease at a time, so that no worker seems to have been away."""
    for _ in range(seconds):
        clock.advance(1.0)
        dispatcher.tick()


async def test_shorter_lease_setting_ends_no_granted_lease(directory: Path) -> None:
    submission = a_task(retry=api_task.Retry(max_losses=0))
    longer = hub.HubOptions(lease_s=90.0)
    async with hubs.running(directory, options=longer) as dispatcher, a_worker(directory) as worker:
        await dispatcher.submit(submission)
        await worker.start_next_run()
    clock = clocks.ManualClock()
    async with hubs.running(directory, clock=clock) as dispatcher:
        pass_seconds(clock, dispatcher, 88)
        view = hubs.view(dispatcher, submission.task)
        assert view.state is api_task.State.RUNNING
        pass_seconds(clock, dispatcher, 3)
        view = await state_of(dispatcher, submission.task, api_task.State.PENDING)
        assert view.losses == 1
        assert "did not come back within 90 s" in view.loss


class SlowJournal(journal.Journal):
    """A journal that takes a minute to read."""

    def __init__(self, path: Path, clock: clocks.ManualClock) -> None:
        super().__init__(path)
        self._clock = clock

    def open(self, *, lease_s: float = 0.0) -> port.Opened:
        opened = super().open(lease_s=lease_s)
        assert opened.saved is not None
        rows = list(opened.saved.unfinished())

        def unfinished() -> Iterator[task_rows.TaskRow]:
            self._clock.advance(60.0)
            yield from rows

        opened.saved.unfinished = unfinished  # type: ignore[method-assign]
        return opened


async def test_leases_count_from_the_end_of_a_long_restore(directory: Path) -> None:
    runs, killed = a_task("runs"), a_task("killed")
    async with hubs.running(directory) as dispatcher, a_worker(directory) as worker:
        for submission in (runs, killed):
            await dispatcher.submit(submission)
            await worker.start_next_run()
        await dispatcher.kill(killed.task, reason=reasons.Reason.KILLED)
    clock = clocks.ManualClock()
    slow = SlowJournal(directory / "journal.db", clock)
    async with hubs.running(directory, kept=slow, clock=clock) as dispatcher:
        pass_seconds(clock, dispatcher, 9)
        await dispatcher.submit(a_task("later"))
        assert hubs.view(dispatcher, runs.task).state is api_task.State.RUNNING
        assert hubs.view(dispatcher, killed.task).state is api_task.State.KILLING
        pass_seconds(clock, dispatcher, 2)
        view = await state_of(dispatcher, runs.task, api_task.State.PENDING)
        assert "did not come back within 10 s" in view.loss


async def test_loss_of_a_worker_that_could_not_renew_is_not_counted(
    dispatcher: hub.Hub, directory: Path
) -> None:
    retry = api_task.Retry(max_losses=0)
    async with a_worker(directory) as worker:
        await dispatcher.submit(a_task(retry=retry))
        run = await worker.expect(messages.Run)
        worker.started(run.ref)
        ended = attempts.Outcome(attempts.Ending.LOST, reasons.Reason.WORKER_LOST, "lease")
        worker.finished(run.ref, ended)
        again = await worker.expect(messages.Run)
        assert (again.ref.task, again.ref.attempt) == (run.ref.task, 2)
        view = await state_of(dispatcher, run.ref.task, api_task.State.STAGING)
        assert (view.losses, view.failures) == (1, 0)
        assert view.loss == "DispatcherAway: lease"


async def test_two_dispatchers_cannot_share_a_journal(dispatcher: hub.Hub, directory: Path) -> None:
    with pytest.raises(errors.JournalLocked, match=f"process {os.getpid()}"):
        async with hubs.running(directory):
            pass
    assert (await dispatcher.submit(a_task())).state is api_task.State.PENDING


async def test_stopped_hub_raises(directory: Path) -> None:
    async with hubs.running(directory) as dispatcher:
        since, _ = await dispatcher.changes(0)
        waiter = asyncio.ensure_future(dispatcher.changes(since))
        await asyncio.sleep(0)
    with pytest.raises(errors.HubStopped):
        await waiter
    with pytest.raises(errors.HubStopped):
        await dispatcher.submit(a_task())


async def test_task_too_large_for_the_channel_is_refused(dispatcher: hub.Hub) -> None:
    with pytest.raises(errors.TaskTooLarge, match="at most"):
        await dispatcher.submit(a_task(args=("x" * 800_000,)))


async def test_child_is_created_before_its_parent_is_reported_as_started(
    dispatcher: hub.Hub, directory: Path
) -> None:
    """The API server observes starts of containers of a worker, and may be slower than they are."""
    async with a_worker(directory) as worker:
        submission = a_task()
        await dispatcher.submit(submission)
        parent = (await worker.expect(messages.Run)).ref
        worker.say(spawn(parent, 10))
        assert (await worker.expect(messages.Response)).status == 201
        view = await state_of(dispatcher, submission.task, api_task.State.RUNNING)
        assert view.started is not None
        worker.started(parent)
        await worker.wait_until_acknowledged(worker.succeed(parent))


@pytest.mark.parametrize("accepted", ["before the stop", "after it"])
async def test_connection_accepted_during_stop_is_closed(
    dispatcher: hub.Hub, accepted: str
) -> None:
    link = dispatcher.new_link() if accepted == "before the stop" else None
    await dispatcher.stop()
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.settimeout(5)
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: link or dispatcher.new_link(), ours
        )
        assert await asyncio.to_thread(theirs.recv, 1) == b""
