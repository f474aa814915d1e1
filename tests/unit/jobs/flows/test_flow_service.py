"""Flows on the engine: the effect of each construct, and the views of a run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kilnwork.jobs.flows import run_types
from kilnwork.testing import inline_flows as in_process
from support import flow_world

_S = run_types.InstanceState
_P = run_types.FlowPhase


def price(s: int, market: int = 0) -> int:
    if s < 0:
        raise ValueError(f"no price for {s}")
    return s * 10 + market


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "f:load": lambda: {"rate": 3},
    "f:price": price,
    "f:sum": lambda results: sum(one or 0 for one in results),
    "f:fail": lambda: 1 // 0,
    "f:echo": lambda **given: given,
    "f:step": lambda before: (before or 0) + 1,
}


async def both(
    tmp_path: Path, declared: dict[str, Any], data: dict[str, list[Any]] | None = None, **more: Any
) -> run_types.FlowRunView:
    """Run a flow on the engine and in this process, and check that the results are equal."""
    here = in_process.run_flow(declared, data=data, functions=FUNCTIONS, **more)
    async with flow_world.FlowWorld(tmp_path, FUNCTIONS) as world:
        found = await world.run(flow_world.new(declared, data=data, **more))
        assert await world.flows.steps(found.key, limit=1000) is not None
    assert outcome(found) == outcome(here)
    return found


def outcome(view: run_types.FlowRunView) -> Any:
    return view.phase, view.reason, view.message, view.value, view.steps


HEADLINE = {
    "do": [
        {"load": {"call": "f.load"}},
        {
            "price": {
                "each": "s",
                "of": "data.trades",
                "call": "f.price",
                "with": {"s": "${ s }", "market": "${ load.value.rate }"},
            }
        },
        {"total": {"join": "price", "call": "f.sum"}},
    ]
}


async def test_steps_run_in_sequence_and_pass_values(tmp_path: Path) -> None:
    found = await both(tmp_path, HEADLINE, {"trades": [1, 2, 3]})
    assert (found.phase, found.value) == (_P.SUCCEEDED, 13 + 23 + 33)
    assert found.steps["price"] == run_types.StepView(total=3, succeeded=3, state=_S.SUCCEEDED)


async def test_failed_shard_fails_the_flow(tmp_path: Path) -> None:
    found = await both(tmp_path, HEADLINE, {"trades": [1, -2]})
    assert (found.phase, found.reason) == (_P.FAILED, "ShardsFailed")
    assert "shard 1: ValueError: no price for -2" in found.message
    assert found.steps["total"].state is _S.WAITING


async def test_step_tolerates_allowed_number_of_failed_shards(tmp_path: Path) -> None:
    total = {"join": "price", "call": "f.sum", "allow": {"failed": "50%"}}
    found = await both(
        tmp_path, {"do": [*HEADLINE["do"][:2], {"total": total}]}, {"trades": [1, -2]}
    )
    assert (found.phase, found.value) == (_P.SUCCEEDED, 13)
    assert found.steps["price"].failed == 1


def chain(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"do": list(steps), **more}


async def test_fork_runs_branches_and_returns_object(tmp_path: Path) -> None:
    fork = {"fork": {"one": {"call": "f.load"}, "two": {"call": "f.echo", "with": {"x": 1}}}}
    found = await both(tmp_path, chain({"checks": fork}))
    assert found.value == {"one": {"rate": 3}, "two": {"x": 1}}
    assert found.steps["checks.one"].succeeded == 1


async def test_failed_branch_fails_the_fork(tmp_path: Path) -> None:
    fork = {"fork": {"one": {"call": "f.fail"}, "two": {"call": "f.load"}}}
    async with flow_world.FlowWorld(tmp_path, FUNCTIONS) as world:
        found = await world.run(flow_world.new(chain({"checks": fork})))
    assert (found.phase, found.reason) == (_P.FAILED, "Raised")
    assert found.steps["checks"].message.startswith("step checks.one: ZeroDivisionError")


async def test_first_successful_branch_stops_others_of_any_fork(tmp_path: Path) -> None:
    fork = {"fork": {name: {"call": "f.load"} for name in ("one", "two", "three")}, "wait": "any"}
    async with flow_world.FlowWorld(tmp_path, FUNCTIONS) as world:
        world.dispatcher.slots = 1
        found = await world.run(flow_world.new(chain({"checks": fork})))
        states = [found.steps[f"checks.{name}"].state for name in ("one", "two", "three")]
        assert states == [_S.SUCCEEDED, _S.KILLED, _S.KILLED]
        assert found.value == {"one": {"rate": 3}, "two": None, "three": None}
        assert len(world.dispatcher.ran) == 1


async def test_fork_needs_minimum_of_successful_branches(tmp_path: Path) -> None:
    branches = {"bad": {"call": "f.fail"}, "one": {"call": "f.load"}, "two": {"call": "f.load"}}
    found = await both(tmp_path, chain({"checks": {"fork": branches, "wait": 2}}))
    assert found.phase is _P.SUCCEEDED
    (tmp_path / "again").mkdir()
    few = {"fork": {"bad": {"call": "f.fail"}, "one": {"call": "f.load"}}, "wait": 2}
    found = await both(tmp_path / "again", chain({"checks": few}))
    assert (found.phase, found.reason) == (_P.FAILED, "Raised")


async def test_if_condition_chooses_step_or_else(tmp_path: Path) -> None:
    step = {
        "if": "${ load.value.rate > 5 }",
        "call": "f.fail",
        "else": {"call": "f.echo", "with": {"was": "${ load.value.rate }"}},
    }
    found = await both(tmp_path, chain({"load": {"call": "f.load"}}, {"report": step}))
    assert found.value == {"was": 3}


async def test_step_that_needs_skipped_step_is_skipped(tmp_path: Path) -> None:
    found = await both(
        tmp_path,
        chain(
            {"maybe": {"if": "${ params.go }", "call": "f.load"}},
            {"after": {"call": "f.echo", "with": {"x": "${ maybe.value }"}}},
            {"last": {"call": "f.echo", "with": {"state": "${ maybe.state }"}}},
            params={"go": False},
        ),
    )
    assert found.steps["after"].state is _S.SKIPPED
    assert found.value == {"state": "Skipped"}


async def test_loop_ends_when_until_is_true(tmp_path: Path) -> None:
    step = {"call": "f.step", "with": {"before": "${ solve.value }"}}
    loop = {"until": "${ iterate.value >= 4 }", "max": 9, "do": [{"iterate": step}]}
    found = await both(tmp_path, chain({"solve": loop}))
    assert found.value == 4
    assert found.steps["solve.iterate"].total == 4


async def test_loop_fails_after_maximum_rounds(tmp_path: Path) -> None:
    loop = {"until": "${ solve.iteration > 7 }", "max": 2, "do": [{"one": {"call": "f.load"}}]}
    found = await both(tmp_path, chain({"solve": loop}))
    assert (found.phase, found.reason) == (_P.FAILED, "MaxRoundsReached")


async def test_failure_runs_catch_and_finally(tmp_path: Path) -> None:
    declared = chain(
        {"bad": {"call": "f.fail"}},
        {"never": {"call": "f.load"}},
        catch=[
            {"causes": ["WorkerLost"], "do": [{"other": {"call": "f.load"}}]},
            {
                "causes": ["Raised"],
                "do": [{"page": {"call": "f.echo", "with": {"why": "${ error.reason }"}}}],
            },
        ],
        **{"finally": [{"clean": {"call": "f.load"}}]},
    )
    found = await both(tmp_path, declared)
    assert (found.phase, found.reason) == (_P.FAILED, "Raised")
    states = {path: step.state for path, step in found.steps.items()}
    assert states == {
        "bad": _S.FAILED,
        "never": _S.WAITING,
        "catch[0].other": _S.WAITING,
        "catch[1].page": _S.SUCCEEDED,
        "finally.clean": _S.SUCCEEDED,
    }


async def test_failed_attempt_of_step_is_retried(tmp_path: Path) -> None:
    tries: list[int] = []

    def sometimes() -> int:
        tries.append(1)
        return len(tries) if len(tries) % 3 == 0 else 1 // 0

    step = {"call": "f.sometimes", "retry": {"maxAttempts": 3}}
    functions = {**FUNCTIONS, "f:sometimes": sometimes}
    async with flow_world.FlowWorld(tmp_path, functions) as world:
        found = await world.run(flow_world.new(chain({"flaky": step})))
    assert (found.phase, found.value) == (_P.SUCCEEDED, 3)


async def test_failed_expression_fails_step_with_field_path(tmp_path: Path) -> None:
    step = {"call": "f.echo", "with": {"x": {"deep": "${ load.value.nothing }"}}}
    found = await both(tmp_path, chain({"load": {"call": "f.load"}}, {"bad": step}))
    assert (found.phase, found.reason) == (_P.FAILED, "ExpressionFailed")
    assert "with.x" in found.message
    assert "needs 'nothing' in load.value" in found.message


async def test_items_may_come_from_any_list(tmp_path: Path) -> None:
    each = {
        "each": "one",
        "of": "${ load.value.map(r, {'r': r}) }",
        "call": "f.echo",
        "with": {"r": "${ one.r }", "all": {"name": "${ set.name }"}},
    }
    declared = chain({"load": {"call": "f.pair"}}, {"many": each}, result="${ many.results }")
    FUNCTIONS["f:pair"] = lambda: [1, 2]
    found = await both(tmp_path, declared)
    assert found.value == [{"r": n, "all": {"name": "flow"}} for n in (1, 2)]


async def test_step_without_items_succeeds_without_tasks(tmp_path: Path) -> None:
    found = await both(tmp_path, HEADLINE, {"trades": []})
    assert (found.phase, found.value) == (_P.SUCCEEDED, 0)


READS_SHARDS = {
    "do": [
        {"read": {"each": "s", "of": "data.trades", "call": "f.index", "with": {"s": "${ s }"}}},
        {"total": {"join": "read", "call": "f.sum"}},
    ]
}


async def test_shards_are_submitted_to_queue_of_their_portion(tmp_path: Path) -> None:
    functions = {**FUNCTIONS, "f:index": lambda s: s["index"]}
    shards = [{"index": number, "count": 7} for number in range(7)]
    new = flow_world.new(
        READS_SHARDS, data={"trades": shards}, by_shard=("trades",), portions={"workers": 3}
    )
    async with flow_world.FlowWorld(tmp_path, functions) as world:
        found = await world.run(new)
        assert (found.phase, found.value) == (_P.SUCCEEDED, sum(range(7)))
        sent = [one.submission for one in world.dispatcher.tasks.values()]
    queues = {one.name: one.spec.cluster_name for one in sent}
    assert [queues[f"flow-g1-read-{number}"] for number in range(7)] == [
        f"flow-g1-workers#{portion}" for portion in (0, 0, 0, 1, 1, 2, 2)
    ]
    assert queues["flow-g1-total"] == "flow-g1-workers"  # it reads no shard: any worker will do


async def test_items_other_than_shards_fail_with_portions(tmp_path: Path) -> None:
    new = flow_world.new(
        READS_SHARDS, data={"trades": [1]}, by_shard=("trades",), portions={"workers": 2}
    )
    async with flow_world.FlowWorld(tmp_path, FUNCTIONS) as world:
        found = await world.run(new)
    assert found.phase is _P.FAILED
    assert "it is no shard" in found.message


LATE = {
    "do": [
        {"load": {"call": "f.load"}},
        {"price": {"each": "s", "of": "data.trades", "call": "f.price", "with": {"s": "${ s }"}}},
        {"again": {"each": "s", "of": "data.trades", "call": "f.price", "with": {"s": "${ s }"}}},
        {"total": {"join": "again", "call": "f.sum"}},
    ]
}


async def test_shards_may_change_until_step_reads_them(tmp_path: Path) -> None:
    """Two steps see the same shards: those at the start of the first step."""
    new = flow_world.new(LATE, data={"trades": [1, 2]})
    async with flow_world.FlowWorld(tmp_path, FUNCTIONS) as world:
        await world.flows.start(new)
        changed = await world.flows.reshard(new.key, {"trades": [1, 2, 3], "unknown": [1]})
        assert changed.snapshots["trades"].shards == [1, 2, 3]
        assert world.flows.stored(new.key) == changed

        def prices() -> bool:
            view = world.flows.view(new.key)
            return view is not None and view.steps["price"].total > 0

        await world.until(prices, what="the first step that reads shards")
        later = await world.flows.reshard(new.key, {"trades": [1]})
        assert later == changed
        found = await world.over(new.key)
        assert await world.flows.reshard(new.key, {"trades": [1]}) is None
    assert (found.phase, found.value) == (_P.SUCCEEDED, 60)
    assert (found.steps["price"].total, found.steps["again"].total) == (3, 3)


async def test_changed_shards_survive_dispatcher_restart(tmp_path: Path) -> None:
    new = flow_world.new(LATE, data={"trades": [1, 2]})
    async with flow_world.FlowWorld(tmp_path, FUNCTIONS) as world:
        await world.flows.start(new)
        await world.flows.reshard(new.key, {"trades": [5]})
    async with flow_world.FlowWorld(tmp_path, FUNCTIONS) as world:
        found = await world.over(new.key)
    assert (found.value, found.steps["price"].total) == (50, 1)
