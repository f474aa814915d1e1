"""Time limits of steps and flows, pauses, kills, and listings of a run."""

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import task as api_task
from kilnwork.jobs import errors
from kilnwork.jobs.flows import run_planning, run_types
from support import flow_world, job_world

_P = run_types.FlowPhase
_S = run_types.InstanceState

FUNCTIONS: dict[str, Any] = {
    "f:load": lambda: 1,
    "f:price": lambda s: s,
    "f:echo": lambda **given: given,
}


def running(world: flow_world.FlowWorld) -> list[job_world.Entry]:
    tasks = world.dispatcher.tasks.values()
    return [one for one in tasks if one.state is api_task.State.RUNNING]


async def begin(world: flow_world.FlowWorld, new: run_types.NewFlowRun, count: int = 1) -> None:
    """Start a run and start its tasks, but end none of them."""
    await world.flows.start(new)
    await world.until(lambda: len(world.dispatcher.queued) >= count, step=False)
    for entry in world.dispatcher.queued[:count]:
        world.dispatcher.begin(entry)


async def pass_time(world: flow_world.FlowWorld, seconds: float) -> None:
    world.clock.advance(seconds)
    world.flows._on_timer()


async def test_step_beyond_its_timeout_fails(tmp_path: Path) -> None:
    declared = {
        "do": [{"slow": {"call": "f.load", "timeoutSeconds": 10}}],
        "catch": [{"causes": ["StepTimedOut"], "do": [{"page": {"call": "f.load"}}]}],
    }
    async with flow_world.FlowWorld(tmp_path, FUNCTIONS) as world:
        new = flow_world.new(declared)
        await begin(world, new)
        await pass_time(world, 9)
        assert world.flows.view(new.key).steps["slow"].state is _S.RUNNING
        await pass_time(world, 2)
        found = await world.over(new.key)
    assert (found.phase, found.reason) == (_P.FAILED, "StepTimedOut")
    assert found.message == "step slow: it has taken 10 s, timeoutSeconds"
    assert found.steps["catch[0].page"].state is _S.SUCCEEDED


async def test_timeout_of_group_stops_steps_inside(tmp_path: Path) -> None:
    inner = {"one": {"call": "f.load", "timeoutSeconds": 100}}
    group = {"do": [{"outer": {"fork": inner, "timeoutSeconds": 5}}], "timeoutSeconds": 50}
    async with flow_world.FlowWorld(tmp_path, FUNCTIONS) as world:
        new = flow_world.new(group)
        await begin(world, new)
        await pass_time(world, 6)
        found = await world.over(new.key)
    assert (found.reason, found.steps["outer.one"].state) == ("StepTimedOut", _S.KILLED)


async def test_flow_timeout_continues_across_restarts(tmp_path: Path) -> None:
    declared = {
        "do": [{"slow": {"call": "f.load"}}],
        "finally": [{"clean": {"call": "f.load"}}],
        "timeoutSeconds": 60,
    }
    async with flow_world.FlowWorld(tmp_path, FUNCTIONS) as world:
        new = flow_world.new(declared)
        await begin(world, new)
        await pass_time(world, 40)
        await world.restart()
        await pass_time(world, 19)
        assert world.flows.view(new.key).steps["slow"].state is _S.RUNNING
        await pass_time(world, 2)
        found = await world.over(new.key)
    assert (found.phase, found.reason) == (_P.FAILED, "FlowTimedOut")
    assert found.steps["finally.clean"].state is _S.SUCCEEDED


async def test_finally_beyond_its_timeout_fails_the_run(tmp_path: Path) -> None:
    declared = {"do": [{"one": {"call": "f.load"}}], "finally": [{"clean": {"call": "f.load"}}]}
    async with flow_world.FlowWorld(tmp_path, FUNCTIONS) as world:
        new = flow_world.new(declared)
        await begin(world, new)
        await world.until(lambda: len(world.dispatcher.ran) == 1)
        await world.until(lambda: world.dispatcher.queued, step=False)
        world.dispatcher.begin(world.dispatcher.queued[0])
        await pass_time(world, run_planning.FINALLY_S + 1)
        found = await world.over(new.key)
    assert (found.phase, found.reason) == (_P.FAILED, "FinallyTimedOut")


async def test_run_is_unfinished_until_its_jobs_have_ended(tmp_path: Path) -> None:
    fork = {"fork": {"one": {"call": "f.load"}, "two": {"call": "f.load"}}, "wait": "any"}
    async with flow_world.FlowWorld(tmp_path, FUNCTIONS) as world:
        world.dispatcher.kill_now = lambda *a, **k: None  # type: ignore[method-assign]
        new = flow_world.new({"do": [{"either": fork}]})
        await begin(world, new, 2)
        first, second = running(world)
        world.dispatcher.finish(first)
        await world.until(
            lambda: world.flows.view(new.key).steps["either"].state is _S.SUCCEEDED, step=False
        )
        assert world.flows.view(new.key).phase is _P.RUNNING
        world.dispatcher._kill(second)
        world.dispatcher.tell(second)
        await world.until(lambda: world.flows.view(new.key).phase.final, step=False)
    assert second.state is api_task.State.KILLED


async def test_no_step_begins_while_run_is_suspended(tmp_path: Path) -> None:
    declared = {"do": [{"one": {"call": "f.load"}}, {"two": {"call": "f.load"}}]}
    async with flow_world.FlowWorld(tmp_path, FUNCTIONS) as world:
        new = flow_world.new(declared)
        await begin(world, new)
        await world.flows.suspend(new.key, suspended=True)
        await world.until(lambda: world.flows.view(new.key).steps["one"].state is _S.SUCCEEDED)
        assert world.flows.view(new.key).suspended
        assert world.flows.view(new.key).steps["two"].state is _S.WAITING
        await world.restart()
        assert not world.dispatcher.queued
        await world.flows.suspend(new.key, suspended=False)
        assert (await world.over(new.key)).phase is _P.SUCCEEDED


@pytest.mark.parametrize("how", ["kill", "late"])
async def test_suspended_run_that_is_killed_runs_finally(how: str, tmp_path: Path) -> None:
    declared = {
        "do": [{"one": {"call": "f.load"}}, {"two": {"call": "f.load"}}],
        "finally": [{"clean": {"call": "f.load"}}],
        "timeoutSeconds": 30,
    }
    async with flow_world.FlowWorld(tmp_path, FUNCTIONS) as world:
        new = flow_world.new(declared)
        await begin(world, new)
        await world.flows.suspend(new.key, suspended=True)
        if how == "kill":
            await world.flows.kill(new.key)
        else:
            await pass_time(world, 31)
        found = await world.over(new.key)
    assert found.reason == ("Killed" if how == "kill" else "FlowTimedOut")
    assert (found.suspended, found.steps["finally.clean"].state) == (False, _S.SUCCEEDED)


async def test_suspended_step_shows_its_counts(tmp_path: Path) -> None:
    declared = {"do": [{"price": {"each": "s", "of": "data.d", "call": "f.price", "parallel": 2}}]}
    async with flow_world.FlowWorld(tmp_path, FUNCTIONS) as world:
        new = flow_world.new(declared, data={"d": [1, 2, 3, 4, 5, 6]})
        await begin(world, new, 2)
        await world.flows.suspend(new.key, suspended=True)
        await world.until(lambda: len(world.dispatcher.ran) == 2)
        await world.until(lambda: not world.services.engine.tasks, step=False)
        step = world.flows.view(new.key).steps["price"]
        assert (step.total, step.succeeded, step.state) == (6, 2, _S.RUNNING)
        await world.flows.suspend(new.key, suspended=False)
        assert (await world.over(new.key)).value == [1, 2, 3, 4, 5, 6]


async def test_results_are_kept_until_last_generation_using_them_is_deleted(tmp_path: Path) -> None:
    each = {"each": "s", "of": "data.d", "call": "f.price", "deterministic": True}
    runs = [
        flow_world.new({"do": [{"price": each}]}, data={"d": [1, 2]}, generation=number)
        for number in (1, 2, 3, 4)
    ]

    async def reused(new: run_types.NewFlowRun) -> int:
        found = await world.run(new)
        assert found.value == [1, 2]
        return found.steps["price"].reused

    async with flow_world.FlowWorld(tmp_path, FUNCTIONS) as world:
        assert [await reused(new) for new in runs[:2]] == [0, 2]
        listed = await world.flows.steps(runs[1].key)
        assert [(one.reused, one.task) for one in listed] == [(True, "")] * 2
        await world.flows.forget(runs[0].key)
        assert await reused(runs[2]) == 2
        for new in runs[1:3]:
            await world.flows.forget(new.key)
        assert await reused(runs[3]) == 0


async def test_concurrent_runs_are_independent(tmp_path: Path) -> None:
    declared = {
        "do": [
            {"price": {"each": "s", "of": "data.d", "call": "f.price"}},
            {"all": {"call": "f.echo", "with": {"got": "${ price.results }"}}},
        ]
    }
    runs = [flow_world.new(declared, data={"d": [n, n + 1]}, generation=n) for n in range(1, 25)]
    async with flow_world.FlowWorld(tmp_path, FUNCTIONS) as world:
        await asyncio.gather(*(world.flows.start(new) for new in runs))
        half = runs[::2]
        await asyncio.gather(*(world.flows.forget(new.key) for new in half))
        for new in runs[1::2]:
            found = await world.over(new.key)
            assert found.value == {"got": [new.generation, new.generation + 1]}
        await world.restart()
        _, views = await world.flows.changes(0)
        assert [view.generation for view in views] == list(range(2, 25, 2))
        assert all(view.phase is _P.SUCCEEDED for view in views)
        await world.until(lambda: len(world.dispatcher.select("job_ends", 0, 100)) == 24)


async def test_instances_and_shards_are_listed_in_pages(tmp_path: Path) -> None:
    declared = {
        "do": [
            {"price": {"each": "s", "of": "data.trades", "call": "f.price"}},
            {
                "solve": {
                    "until": "${ solve.iteration == 1 }",
                    "max": 2,
                    "do": [{"go": {"call": "f.load"}}],
                }
            },
        ]
    }
    async with flow_world.FlowWorld(tmp_path, FUNCTIONS) as world:
        new = flow_world.new(declared, data={"trades": [1, 2, 3]})
        await world.run(new)
        listed = await world.flows.steps(new.key)
        assert [one.key for one in listed] == [
            *(f"price[{number}]" for number in range(3)),
            *("solve", "solve[0].go", "solve[1].go"),
        ]
        assert {one.state for one in listed} == {_S.SUCCEEDED}
        assert [one.task_name for one in listed[:2]] == ["flow-g1-price-0", "flow-g1-price-1"]
        tasks = {str(uuid.UUID(bytes=task)) for task in world.dispatcher.tasks}
        assert {one.task for one in listed if one.task} == tasks
        page = await world.flows.steps(new.key, after="price[1]", limit=2)
        assert [one.key for one in page] == ["price[2]", "solve"]
        rounds = await world.flows.steps(new.key, step="solve.go")
        assert [one.key for one in rounds] == ["solve[0].go", "solve[1].go"]
        with pytest.raises(errors.NoSuchJob):
            await world.flows.steps(run_types.FlowKey(new.uid, 2))


async def test_run_is_started_once_and_can_be_read(tmp_path: Path) -> None:
    new = flow_world.new({"do": [{"one": {"call": "f.load"}}], "params": {"a": 0}}, params={"a": 1})
    async with flow_world.FlowWorld(tmp_path, FUNCTIONS) as world:
        await world.run(new)
        again = await world.flows.start(new)
        assert (again.phase, world.dispatcher.ran) == (_P.SUCCEEDED, ["flow-g1-one"])
        assert world.flows.stored(new.key) == new
        _, changed = await world.flows.changes(0)
        assert [view.key for view in changed] == [new.key]
        await world.flows.forget(new.key)
        assert (world.flows.view(new.key), world.flows.stored(new.key)) == (None, None)
        await world.run(new)
        assert world.dispatcher.ran == ["flow-g1-one"] * 2


async def test_code_digests_are_listed_while_run_is_in_journal(tmp_path: Path) -> None:
    call = {"function": "f:load", "code": f"sha256:{'ab' * 32}"}
    new = flow_world.new({"do": [{"one": {"taskTemplate": {"call": call}}}]})
    async with flow_world.FlowWorld(tmp_path, FUNCTIONS) as world:
        assert world.flows.code() == {}
        await world.run(new)
        assert world.flows.code() == {"ns": {bytes.fromhex("ab" * 32)}}
        await world.flows.forget(new.key)
        assert world.flows.code() == {}


async def test_next_step_is_written_in_commit_that_ends_previous_step(tmp_path: Path) -> None:
    """A reader of the journal never sees a finished step without the next one."""
    steps: list[Any] = [{name: {"call": "f.load"}} for name in ("one", "two", "three")]
    steps[1]["two"]["with"] = {"x": "${ one.value }"}
    async with flow_world.FlowWorld(tmp_path, {"f:load": lambda **given: 1}) as world:
        new = flow_world.new({"do": steps})
        await world.flows.start(new)
        seen: set[tuple[int, int]] = set()

        def look() -> bool:
            jobs = world.dispatcher.select("job_ends", 0, 9)
            over = sum(finished is not None for _, _, finished in jobs)
            seen.add((over, len(jobs)))
            return over == 3

        await world.until(look)
    assert seen == {(0, 1), (1, 2), (2, 3), (3, 3)}


async def test_invalid_run_is_refused_with_field_path(tmp_path: Path) -> None:
    async with flow_world.FlowWorld(tmp_path, FUNCTIONS) as world:
        new = flow_world.new({"do": [{"one": {"call": "f.load", "with": {"x": "${ two.value }"}}}]})
        with pytest.raises(errors.InvalidJob, match=r"spec.flow.do\[0\].one.with.x: names two"):
            await world.flows.start(new)
        assert world.flows.view(new.key) is None
