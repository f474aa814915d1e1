"""Random flows give the same result in this process and on the engine, even if the engine is
killed."""

import contextlib
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import flow_validation
from kilnwork.jobs import errors
from kilnwork.jobs.flows import run_types
from kilnwork.testing import inline_flows as in_process
from support import flow_world, job_world

SEEDS = 40
KILLED_SEEDS = 30
LIVES = 12


def keep(**given: Any) -> dict[str, Any]:
    return given


def add(**given: Any) -> int:
    return sum(value for value in given.values() if isinstance(value, int))


def picky(s: Any) -> Any:
    if isinstance(s, int) and s % 5 == 4:
        raise ValueError(f"not {s}")
    return {"n": s}


def fail() -> None:
    raise RuntimeError("broken")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "f:keep": keep,
    "f:add": add,
    "f:picky": picky,
    "f:fail": fail,
    "f:count": lambda results: len([one for one in results if one is not None]),
    "f:next": lambda before: (before or 0) + 1,
}


class Maker:
    """Generates valid random flows."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"s{self.count}"

    def flow(self) -> dict[str, Any]:
        steps = self.steps([], self.dice.randint(1, 5), depth=2)
        found: dict[str, Any] = {"do": steps, "params": {"p": self.dice.randint(0, 9)}}
        if self.dice.random() < 0.4:
            found["catch"] = [
                {"do": [{self.name(): {"call": "f.keep", "with": {"e": "${ error.reason }"}}}]}
            ]
        if self.dice.random() < 0.4:
            found["finally"] = [{self.name(): {"call": "f.keep", "with": {"x": 1}}}]
        return found

    def steps(self, known: list[str], count: int, *, depth: int) -> list[dict[str, Any]]:
        known, found = list(known), []
        for _ in range(count):
            for name, step in self.some(known, depth=depth):
                found.append({name: step})
                if "each" not in step:
                    known.append(name)
        return found

    def some(self, known: list[str], *, depth: int) -> list[tuple[str, dict[str, Any]]]:
        kinds = ["work", "work", "each", "if"]
        if depth:
            kinds += ["fork", "until", "group"]
        kind = self.dice.choice(kinds)
        name = self.name()
        if kind == "each":
            tolerated = self.dice.choice([0, 1, "60%"])
            each = {"each": "s", "of": "data.d", "call": "f.picky", "allow": {"failed": tolerated}}
            join = {"join": name, "call": "f.count"}
            return [(name, each), (self.name(), join)]
        if kind == "if":
            condition = f"${{ params.p > {self.dice.randint(0, 9)} }}"
            step = {**self.work(known), "if": condition}
            if self.dice.random() < 0.5:
                step["else"] = self.work(known)
            return [(name, step)]
        if kind == "fork":
            branches = {self.name(): self.work(known) for _ in range(self.dice.randint(1, 3))}
            return [(name, {"fork": branches})]
        if kind == "until":
            inner = self.name()
            body = [
                *self.steps(known, 1, depth=0),
                {inner: {"call": "f.next", "with": {"before": f"${{ {name}.value }}"}}},
            ]
            rounds = self.dice.randint(1, 4)
            until = f"${{ {inner}.value >= {rounds} }}"
            return [(name, {"until": until, "max": self.dice.randint(2, 5), "do": body})]
        if kind == "group":
            return [(name, {"do": self.steps(known, 2, depth=depth - 1)})]
        return [(name, self.work(known))]

    def work(self, known: list[str]) -> dict[str, Any]:
        if self.dice.random() < 0.06:
            return {"call": "f.fail", "retry": {"maxAttempts": 2}}
        given: dict[str, Any] = {"a": self.dice.randint(0, 9)}
        if known:
            given["b"] = f"${{ {self.dice.choice(known)}.value }}"
        if self.dice.random() < 0.3:
            given["c"] = ["${ params.p + 1 }", {"set": "${ set.name }"}]
        return {"call": self.dice.choice(["f.keep", "f.add"]), "with": given}


def outcome(view: run_types.FlowRunView) -> Any:
    return view.phase, view.reason, view.value


def case(seed: int) -> tuple[dict[str, Any], dict[str, list[Any]], run_types.FlowRunView]:
    """Return a flow, its data and its result."""
    maker = Maker(seed)
    declared = maker.flow()
    data: dict[str, list[Any]] = {"d": list(range(maker.dice.randint(0, 7)))}
    return declared, data, in_process.run_flow(declared, data=data, functions=FUNCTIONS)


def test_generated_flows_differ() -> None:
    found = [case(seed) for seed in range(SEEDS)]
    assert {view.phase for _, _, view in found} == {
        run_types.FlowPhase.SUCCEEDED,
        run_types.FlowPhase.FAILED,
    }
    kinds = Counter(
        key
        for declared, _, _ in found
        for step in declared["do"]
        for one in step.values()
        for key in one
    )
    assert {"each", "join", "fork", "until", "if", "do"} <= set(kinds)
    for declared, _, _ in found:
        new = flow_world.new(declared)
        assert not flow_validation.problems(new.flow, snapshots=["d"], groups=["workers"])


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_engine_gives_same_result_as_model(seed: int, memory_path: Path) -> None:
    declared, data, here = case(seed)
    async with flow_world.FlowWorld(memory_path, FUNCTIONS) as world:
        world.flowing.dice = random.Random(seed)
        found = await world.run(flow_world.new(declared, data=data))
    assert outcome(found) == outcome(here)


@pytest.mark.parametrize("seed", range(KILLED_SEEDS))
async def test_repeatedly_killed_flow_gives_same_result_as_model(
    seed: int, memory_path: Path
) -> None:
    declared, data, here = case(seed)
    dice = random.Random(seed)
    new = flow_world.new(declared, data=data)
    world = flow_world.FlowWorld(memory_path, FUNCTIONS)
    world.flowing.dice = dice
    await world.start()
    try:
        for _ in range(LIVES):
            await world.restart(job_world.Fuse(dice.randint(0, 9)))
            with contextlib.suppress(job_world.CrashedHere, errors.JobsStopped):
                await world.run(new)
        await world.restart()
        found = await world.run(new)
    finally:
        await world.stop()
    assert outcome(found) == outcome(here)
    ran = zip(world.dispatcher.ran, world.flowing.calls, strict=True)
    counts = Counter(name for name, (function, _) in ran if function != "f:fail")
    assert not counts or max(counts.values()) == 1
