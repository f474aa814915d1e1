"""Many Jobs, large Jobs and their views, on a dispatcher that is controlled by the test."""

import uuid
from pathlib import Path
from typing import Any

import msgspec

from kilnwork.api import job as api_job
from kilnwork.api import json_limits
from kilnwork.api import task as api_task
from kilnwork.dispatch.hub import subscriptions
from kilnwork.jobs import (
    file_job_types,
    index_item_source,
    index_job_types,
    item_states,
    job_start_queue,
    live_job_state,
    step_planning,
    task_hub,
    transitions,
)
from support import index_job_world

_P, _T = api_job.Phase, api_task.State
CONFIG = str(uuid.UUID(int=7))
GROUP = job_start_queue.ConcurrencyGroup(
    config=CONFIG, name="c", policy=api_job.ConcurrencyPolicy.ENQUEUE, max_queued=10_000
)
ROOM = step_planning.TaskRoom(window=8, slots=2, prepare=True)


def new(
    number: int, *, group: job_start_queue.ConcurrencyGroup | None = None, **template: Any
) -> index_job_types.NewIndexJob:
    spec = {"template": {"taskTemplate": {"command": ["true"]}, **template}}
    return index_job_types.NewIndexJob(
        uid=str(uuid.UUID(int=number)),
        namespace="ns",
        name=f"job-{number}",
        spec=msgspec.convert(spec, api_job.JobSpec),
        created=0.0,
        group=group,
    )


async def over(world: index_job_world.IndexWorld, uid: str) -> index_job_types.IndexJobView:
    jobs = world.services.indexes

    def is_over() -> bool:
        view = jobs.view(uid)
        return view is not None and view.phase.final

    await world.until(is_over, what=f"the end of {uid}")
    found = jobs.view(uid)
    assert found is not None
    return found


async def test_waiting_jobs_are_not_in_memory(tmp_path: Path) -> None:
    async with index_job_world.IndexWorld(tmp_path) as world:
        jobs = world.services.indexes
        for number in range(1, 301):
            await jobs.put(new(number, group=GROUP))
        assert len(world.services.engine.live) == 1
        assert len(jobs.group(CONFIG).queued) == 299
        await world.restart()
        jobs = world.services.indexes
        assert len(world.services.engine.live) == 1
        assert jobs.group(CONFIG).queued == tuple(
            str(uuid.UUID(int=number)) for number in range(2, 301)
        )
        await over(world, str(uuid.UUID(int=300)))
        assert jobs.group(CONFIG) == index_job_types.GroupView(active=(), queued=())
        assert world.dispatcher.ran == [f"job-{number}-0" for number in range(1, 301)]
        _, views = await jobs.changes(0)
        assert {view.phase for view in views} == {_P.SUCCEEDED}


async def test_large_job_has_small_views(tmp_path: Path) -> None:
    async with index_job_world.IndexWorld(tmp_path) as world:
        jobs = world.services.indexes
        parallelism = {"withCount": 100_000, "completionStrategy": {"maxFailed": 100_000}}
        uid = (await jobs.put(new(1, parallelism=parallelism, finalizer=None))).uid
        live = world.services.engine.live[uuid.UUID(uid).bytes]
        for item in range(3, 90_000, 2):
            live.items.set(item, item_states.ItemState.FAILED, 1)
        live.counts.failed = 44_999
        await jobs.adjust(uid, max_in_flight=5)
        view = jobs.view(uid)
        assert view is not None
        assert view.failed_indexes.startswith("2,4,6,8,")
        assert len(view.failed_indexes) <= 4096
        assert len(msgspec.json.encode(view)) < 32 * 1024
        page = await jobs.indexes(uid, after=50_000, limit=200)
        assert [one.number for one in page] == list(range(50_001, 50_201))
        failed = await jobs.indexes(uid, state=index_job_types.IndexState.FAILED, limit=3)
        assert [one.number for one in failed] == [2, 4, 6]


def a_job(**template: Any) -> live_job_state.Job:
    made = new(1, **template)
    assert made.spec.template is not None
    source = index_item_source.IndexSources().new(
        index_item_source.IndexDefinition(name="job", template=made.spec.template)
    )
    job = live_job_state.Job(
        file_job_types.JobId(bytes(16), "job"),
        row=1,
        namespace="ns",
        spec=index_item_source.IndexSpec(name="job"),
        source=source,
        created=0.0,
    )
    job.fresh = job.waits = True
    return job


def test_calls_share_equal_task_specs() -> None:
    job = a_job(parallelism={"withCount": 3}, taskTemplate={"call": {"function": "m:f"}})
    first = job.source.work(job, 1)
    assert job.source.work(job, 2) is first
    job.items.set(3, item_states.ItemState.OPEN, 2)
    assert job.source.work(job, 3).spec.run == 2
    call = {"function": "m:f", "args": ["${task.index_num}"]}
    job = a_job(parallelism={"withCount": 3}, taskTemplate={"call": call})
    works = [job.source.work(job, item) for item in (1, 2, 1)]
    arguments = [one.arguments.data for one in works if one.arguments]
    assert arguments == [b"[[0],{}]", b"[[1],{}]", b"[[0],{}]"]
    assert works[0].spec is works[1].spec is works[2].spec
    job.spec = index_item_source.IndexSpec(name="job", priority=3)
    assert job.source.work(job, 1).spec.priority == 3


def change(
    job: live_job_state.Job, item: int, state: api_task.State, **more: Any
) -> subscriptions.Change:
    given = {"attempt": 1, "failures": 0, "losses": 0, "stopped": None, **more}
    return subscriptions.Change(
        task_hub.task_id(job.id.uuid, item), job.run_of(item), state, "", "why",
        given["attempt"], given["failures"], given["losses"], "w", None, False, given["stopped"],
    )  # fmt: skip


def phase(job: live_job_state.Job) -> api_job.Phase:
    found: api_job.Phase = job.source.detail(job).phase
    return found


def test_phase_follows_states_of_tasks() -> None:
    job = a_job(maxAttempts=3)
    assert phase(job) is _P.QUEUED
    transitions.admit(job, now=1.0)
    assert phase(job) is _P.STARTING
    step_planning.next_steps(job, ROOM, 1.0)
    assert phase(job) is _P.PENDING
    transitions.apply_task_change(job, 1, change(job, 1, _T.STAGING), now=2.0)
    assert (phase(job), job.started) == (_P.PENDING, None)
    transitions.apply_task_change(job, 1, change(job, 1, _T.RUNNING), now=3.0)
    assert (phase(job), job.started) == (_P.RUNNING, 3.0)
    transitions.apply_task_change(job, 1, change(job, 1, _T.PENDING, failures=1), now=4.0)
    assert phase(job) is _P.RETRY_BACKOFF
    transitions.apply_task_change(
        job, 1, change(job, 1, _T.STAGING, failures=1, attempt=2), now=5.0
    )
    assert phase(job) is _P.RETRYING
    transitions.kill(job, "Killed", "", now=6.0)
    step_planning.next_steps(job, ROOM, 6.0)
    assert phase(job) is _P.KILLING
    transitions.apply_task_change(
        job, 1, change(job, 1, _T.KILLED, failures=1, attempt=2, stopped=True), now=7.0
    )
    step_planning.next_steps(job, ROOM, 7.0)
    assert (phase(job), job.source.detail(job).stopped) == (_P.KILLED, True)


def test_end_without_proof_is_reported_in_view() -> None:
    job = a_job(parallelism={"withCount": 2})
    transitions.admit(job, now=1.0)
    step_planning.next_steps(job, ROOM, 1.0)
    transitions.kill(job, "Killed", "", now=2.0)
    step_planning.next_steps(job, ROOM, 2.0)
    transitions.apply_task_change(job, 1, change(job, 1, _T.KILLED, stopped=True), now=3.0)
    transitions.apply_task_change(job, 2, change(job, 2, _T.KILLED, stopped=False), now=3.0)
    step_planning.next_steps(job, ROOM, 3.0)
    assert phase(job) is _P.KILLED
    assert job.source.detail(job).stopped is False


async def test_killed_waiting_job_replaces_no_running_job(tmp_path: Path) -> None:
    group = job_start_queue.ConcurrencyGroup(
        config=CONFIG, name="c", policy=api_job.ConcurrencyPolicy.REPLACE
    )
    async with index_job_world.IndexWorld(tmp_path) as world:
        jobs = world.services.indexes
        held = job_start_queue.Hold(reason="Wait")
        first = new(1, group=group)
        second = msgspec.structs.replace(new(2, group=group), hold=held)
        await jobs.put(first)
        await jobs.put(second)
        await jobs.kill(second.uid)
        view = jobs.view(second.uid)
        assert view is not None
        assert (view.phase, view.started) == (_P.KILLED, None)
        assert (await over(world, first.uid)).phase is _P.SUCCEEDED


async def test_index_with_invalid_template_fails_alone(tmp_path: Path) -> None:
    async with index_job_world.IndexWorld(tmp_path) as world:
        jobs = world.services.indexes
        template = {
            "taskTemplate": {"command": ["echo", "${task.index_item}"]},
            "parallelism": {
                "withResultOf": {"task": "list"},
                "completionStrategy": {"maxFailed": 1},
            },
        }
        spec = msgspec.convert({"template": template}, api_job.JobSpec)
        job = msgspec.structs.replace(new(1), spec=spec)
        await jobs.put(job)
        await jobs.provide(job.uid, items=["one", "x" * (json_limits.MAX_SIZE + 1), "three"])
        view = await over(world, job.uid)
        assert (view.phase, view.counts.succeeded) == (_P.SUCCEEDED, 2)
        assert view.failed_indexes == "1"
