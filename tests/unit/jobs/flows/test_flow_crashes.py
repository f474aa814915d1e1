"""A flow that is killed before or after any write continues, gives the same result and repeats
nothing."""

from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kilnwork.jobs.flows import run_types
from kilnwork.testing import inline_flows as in_process
from support import flow_world, job_world

_P = run_types.FlowPhase
_S = run_types.InstanceState

Story = Callable[[flow_world.FlowWorld], Awaitable[None]]


def price(s: int) -> int:
    if s == 3:
        raise ValueError("no price")
    return s * 10


BROKEN: set[str] = set()
"""What does not work before a user mends it."""


def quote(s: int) -> int:
    """As `price`, but a user can repair it."""
    return price(s) if "price" in BROKEN else s * 10


def check() -> bool:
    """Fail until a user repairs it."""
    if "check" in BROKEN:
        raise ValueError("it does not add up")
    return True


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "f:load": lambda: {"rate": 3},
    "f:price": price,
    "f:quote": quote,
    "f:check": check,
    "f:sum": lambda results: sum(one or 0 for one in results),
    "f:fail": lambda: 1 // 0,
    "f:echo": lambda **given: given,
    "f:step": lambda before: (before or 0) + 1,
}

DATA = {"trades": [1, 2, 3, 4]}

EVERYTHING = {
    "do": [
        {"load": {"call": "f.load"}},
        {"price": {"each": "s", "of": "data.trades", "call": "f.price", "parallel": 2}},
        {"total": {"join": "price", "call": "f.sum", "allow": {"failed": 1}}},
        {"checks": {"fork": {"one": {"call": "f.load"}, "two": {"call": "f.load"}}}},
        {
            "solve": {
                "until": "${ iterate.value >= 2 }",
                "max": 3,
                "do": [{"iterate": {"call": "f.step", "with": {"before": "${ solve.value }"}}}],
            }
        },
        {"skipped": {"if": "${ total.value > 1000 }", "call": "f.fail"}},
    ],
    "result": "${ {'total': total.value, 'solved': solve.value} }",
    "finally": [{"clean": {"call": "f.echo", "with": {"t": "${ total.value }"}}}],
}

FAILING = {
    "do": [{"bad": {"fork": {"one": {"call": "f.fail"}, "two": {"call": "f.load"}}}}],
    "catch": [{"do": [{"page": {"call": "f.echo", "with": {"why": "${ error.reason }"}}}]}],
    "finally": [{"clean": {"call": "f.load"}}],
}


async def everything(world: flow_world.FlowWorld) -> None:
    """A flow with each construct, in which one shard fails and is tolerated."""
    new = flow_world.new(EVERYTHING, data=DATA)
    await job_world.retry_in_new_lives(
        world, lambda: world.flows.start(new), lambda: world.over(new.key)
    )
    found = world.flows.view(new.key)
    here = in_process.run_flow(EVERYTHING, data=DATA, functions=FUNCTIONS)
    assert found.value == here.value == {"total": 70, "solved": 2}
    assert (found.phase, found.steps) == (here.phase, here.steps)
    assert Counter(world.dispatcher.ran) == Counter(
        [
            "flow-g1-load",
            *(f"flow-g1-price-{number}" for number in range(4)),
            "flow-g1-total",
            "flow-g1-checks-one",
            "flow-g1-checks-two",
            "flow-g1-solve-0-iterate",
            "flow-g1-solve-1-iterate",
            "flow-g1-finally-clean",
        ]
    )


async def failing(world: flow_world.FlowWorld) -> None:
    """A flow in which a branch fails, the other is stopped, and the failure is caught."""
    world.dispatcher.slots = 1
    new = flow_world.new(FAILING)
    await job_world.retry_in_new_lives(
        world, lambda: world.flows.start(new), lambda: world.over(new.key)
    )
    found = world.flows.view(new.key)
    assert (found.phase, found.reason) == (_P.FAILED, "Raised")
    assert Counter(world.dispatcher.ran) == Counter(
        ["flow-g1-bad-one", "flow-g1-catch-0-page", "flow-g1-finally-clean"]
    )


async def killed_and_forgotten(world: flow_world.FlowWorld) -> None:
    """A run is killed while its shards run, and then dropped from memory."""
    new = flow_world.new(EVERYTHING, data={"trades": list(range(10, 40))})

    async def some() -> None:
        await world.until(lambda: len(world.dispatcher.ran) >= 4, what="some tasks")

    async def gone() -> None:
        await world.until(
            lambda: (
                not world.dispatcher.select("flow_runs", 0, 9)
                and not world.dispatcher.select("job_ends", 0, 9)
            ),
            what="that nothing is left",
        )

    await job_world.retry_in_new_lives(
        world,
        lambda: world.flows.start(new),
        some,
        lambda: world.flows.kill(new.key),
        lambda: world.over(new.key),
    )
    found = world.flows.view(new.key)
    assert (found.phase, found.reason) == (_P.KILLED, "Killed")
    assert found.steps["finally.clean"].state is _S.SKIPPED
    assert max(Counter(world.dispatcher.ran).values()) == 1
    await job_world.retry_in_new_lives(world, lambda: world.flows.forget(new.key), gone)
    assert world.flows.view(new.key) is None
    assert all(entry.state.final for entry in world.dispatcher.tasks.values())


async def paused(world: flow_world.FlowWorld) -> None:
    """A run is suspended after its first step, checked, and resumed."""
    new = flow_world.new(EVERYTHING, data=DATA)

    async def first() -> None:
        await world.until(lambda: world.dispatcher.ran, what="the first step")

    async def quiet() -> None:
        before = len(world.dispatcher.ran)
        for _ in range(20):
            await world.until(lambda: True)
            world.dispatcher.step()
        assert len(world.dispatcher.ran) <= before + world.dispatcher.slots

    await job_world.retry_in_new_lives(
        world,
        lambda: world.flows.start(new),
        first,
        lambda: world.flows.suspend(new.key, suspended=True),
        quiet,
        lambda: world.flows.suspend(new.key, suspended=False),
        lambda: world.over(new.key),
    )
    assert world.flows.view(new.key).phase is _P.SUCCEEDED
    assert max(Counter(world.dispatcher.ran).values()) == 1


async def replayed(world: flow_world.FlowWorld) -> None:
    """A second generation uses the deterministic results of the first one."""
    declared = {
        "do": [
            {"load": {"call": "f.load"}},
            {
                "price": {
                    "each": "s",
                    "of": "data.trades",
                    "call": "f.price",
                    "deterministic": True,
                    "allow": {"failed": 1},
                }
            },
            {"total": {"join": "price", "call": "f.sum"}},
        ]
    }
    runs = [flow_world.new(declared, data=DATA, generation=number) for number in (1, 2)]
    for new in runs:
        await job_world.retry_in_new_lives(
            world,
            lambda new=new: world.flows.start(new),  # type: ignore[misc]
            lambda new=new: world.over(new.key),  # type: ignore[misc]
        )
    first, second = (world.flows.view(new.key) for new in runs)
    assert first.value == second.value == 70
    assert (first.steps["price"].reused, second.steps["price"].reused) == (0, 3)
    priced = [name for name in world.dispatcher.ran if name.startswith("flow-g2-price")]
    assert priced == ["flow-g2-price-2"]


RETRIED = {
    "do": [
        {"load": {"call": "f.load"}},
        {"price": {"each": "s", "of": "data.trades", "call": "f.quote"}},
        {"none": {"if": "${ load.value.rate > 3 }", "call": "f.fail"}},
        {"total": {"join": "price", "call": "f.sum"}},
        {"checks": {"fork": {"one": {"call": "f.check"}, "two": {"call": "f.load"}}}},
        {"last": {"call": "f.load"}},
    ],
    "result": "${ total.value }",
    "catch": [{"do": [{"page": {"call": "f.load"}}]}],
    "finally": [{"clean": {"call": "f.load"}}],
}


async def retried(world: flow_world.FlowWorld) -> None:
    """A shard fails, then a branch; each time the failed step and all later steps run again."""
    world.dispatcher.slots = 1
    BROKEN.update({"price", "check"})
    new = flow_world.new(RETRIED, data={"trades": [1, 2, 4, 3]})
    await job_world.retry_in_new_lives(
        world, lambda: world.flows.start(new), lambda: world.over(new.key)
    )

    async def again(run: int) -> tuple[run_types.FlowRunView, Counter[str]]:
        before = Counter(world.dispatcher.ran)
        for _ in range(2):  # asked for twice, it happens once
            await job_world.retry_in_new_lives(world, lambda: world.flows.retry(new.key, run=run))
        await job_world.retry_in_new_lives(world, lambda: world.over(new.key))
        return world.flows.view(new.key), Counter(world.dispatcher.ran) - before

    found = world.flows.view(new.key)
    assert (found.phase, found.run, found.steps["price"].succeeded) == (_P.FAILED, 1, 3)
    BROKEN.remove("price")
    found, ran = await again(2)
    assert (found.phase, found.reason, found.run) == (_P.FAILED, "Raised", 2)
    ends = ["flow-g1-catch-0-page", "flow-g1-finally-clean"]
    assert ran == Counter(["flow-g1-price-3", "flow-g1-total", "flow-g1-checks-one", *ends])
    BROKEN.remove("check")
    found, ran = await again(3)
    assert (found.phase, found.reason, found.run, found.value) == (_P.SUCCEEDED, "", 3, 100)
    checks = ["flow-g1-checks-one", "flow-g1-checks-two", "flow-g1-last"]
    assert ran == Counter([*checks, "flow-g1-finally-clean"])
    assert found.steps["price"] == run_types.StepView(total=4, succeeded=4, state=_S.SUCCEEDED)
    assert found.steps["catch[0].page"].state is _S.WAITING
    assert await again(4) == (found, Counter())  # nothing of it failed


STORIES = [everything, failing, killed_and_forgotten, paused, replayed, retried]


@pytest.mark.parametrize("story", STORIES)
async def test_flow_without_crash_gives_expected_result(story: Story, tmp_path: Path) -> None:
    async with flow_world.FlowWorld(tmp_path, FUNCTIONS) as world:
        await story(world)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("story", STORIES)
async def test_flow_survives_kill_at_any_write(story: Story, memory_path: Path) -> None:
    async with flow_world.FlowWorld(memory_path / "whole", FUNCTIONS) as world:
        await story(world)
        count = world.fuse.count
    assert count > 10
    for after in range(count):
        fuse = job_world.Fuse(after)
        world = flow_world.FlowWorld(memory_path / str(after), FUNCTIONS, fuse=fuse)
        while True:
            try:
                await world.start()
                break
            except job_world.CrashedHere:
                await world.stop()
                world.dispatcher.fuse = world.fuse = job_world.Fuse()
        try:
            await story(world)
        finally:
            await world.stop()
