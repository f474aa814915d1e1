"""Flows on a real dispatcher with a real worker: calls and commands, restarts, kills."""

import json
from pathlib import Path
from typing import Any

import msgspec

from kilnwork.api import flow
from kilnwork.jobs.flows import model
from kilnwork.testing import inline_flows as in_process
from support import index_jobs_world as world
from support import waiting

_P, _S = model.FlowPhase, model.InstanceState

SQUARE = "support.index_function.square"
COMBINE = "support.index_function.combine"


def new(
    house: world.House, steps: list[dict[str, Any]], count: int = 3, **more: Any
) -> model.NewFlowRun:
    params = {"directory": ""}
    declared = msgspec.convert({"do": steps, "params": params, **more}, flow.Flow)
    shards = model.SnapshotRef(name="d", digest="sha256:d", shards=list(range(count)))
    return model.NewFlowRun(
        uid=world.new_uid(),
        namespace=world.NS,
        set_name="set",
        generation=1,
        flow=declared,
        params={"directory": str(house.directory)},
        snapshots={"d": shards},
        clusters={"workers": "counter"},
    )


def fan_out(**more: Any) -> list[dict[str, Any]]:
    directory = "${ params.directory }"
    given = {"index": "${ n }", "directory": directory}
    each = {"each": "n", "of": "data.d", "call": SQUARE, "with": given}
    results = {"directory": directory, "results": "${ price.results }"}
    return [{"price": each | more}, {"total": {"call": COMBINE, "with": results}}]


async def over(house: world.House, key: model.FlowKey) -> model.FlowRunView:
    def final() -> model.FlowRunView | None:
        found = house.services.flows.view(key)
        return found if found is not None and found.phase.final else None

    found = await waiting.wait_until_async(final, what=f"the end of {key}", timeout_s=60.0)
    assert found is not None
    return found


async def test_a_flow_gives_what_it_gives_in_one_process(tmp_path: Path) -> None:
    async with world.house_in(tmp_path) as house:
        wanted = new(house, fan_out(), 30)
        await house.services.flows.start(wanted)
        found = await over(house, wanted.key)
        here = in_process.run_flow(wanted.flow, data={"d": list(range(30))}, params=wanted.params)
        assert json.dumps(found.value) == json.dumps(here.value)
        assert found.steps == here.steps
        assert house.services.engine.live == {}
        assert house.services.engine.tasks == {}


async def test_a_command_reads_its_inputs_and_writes_its_result(tmp_path: Path) -> None:
    script = 'cp "$KILN_INPUT" "$KILN_OUTPUT"; echo ${HOME:-none}'
    steps = [
        {"one": {"command": ["sh", "-c", script], "with": {"a": {"b": "${ params.directory }"}}}},
        {
            "many": {
                "each": "n",
                "of": "data.d",
                "command": ["sh", "-c", script],
                "with": {"n": "${ n }", "before": "${ one.value.a }"},
            }
        },
    ]
    async with world.house_in(tmp_path) as house:
        wanted = new(house, steps, 2, result="${ many.results }")
        await house.services.flows.start(wanted)
        found = await over(house, wanted.key)
        directory = str(house.directory)
        assert found.value == [{"n": n, "before": {"b": directory}} for n in range(2)], found


async def test_a_restart_in_the_middle_repeats_nothing(tmp_path: Path) -> None:
    (tmp_path / "hold-5").touch()
    async with world.house_in(tmp_path) as house:
        wanted = new(house, fan_out(), 9)
        await house.services.flows.start(wanted)
        await house.called(9)
        await house.restart()
        view = house.services.flows.view(wanted.key)
        assert view is not None
        assert view.phase is _P.RUNNING
        await house.free("hold-5")
        found = await over(house, wanted.key)
        assert found.value == {"results": [n * n for n in range(9)]}
        assert sorted(house.calls) == list(range(9))


async def test_shards_wait_for_a_node_with_their_portion_also_over_a_restart(
    tmp_path: Path,
) -> None:
    """The dispatcher is told anew which node holds what; what is over is not repeated."""
    async with world.house_in(tmp_path) as house:
        steps = fan_out(**{"with": {"index": "${ n.index }", "directory": "${ params.directory }"}})
        shards = [{"index": number, "count": 6} for number in range(6)]
        wanted = new(house, steps)
        wanted = msgspec.structs.replace(
            wanted,
            snapshots={"d": model.SnapshotRef(name="d", digest="sha256:d", shards=shards)},
            by_shard=("d",),
            portions={"workers": 2},
        )
        await house.services.flows.start(wanted)
        node = await waiting.wait_until_async(lambda: _node(house), what="a worker is connected")
        await house.hub.set_portions(world.NS, "counter", {node: frozenset({0})})
        await house.called(3)
        await house.restart()
        await house.hub.set_portions(world.NS, "counter", {node: frozenset({0, 1})})
        found = await over(house, wanted.key)
        assert found.value == {"results": [n * n for n in range(6)]}
        assert sorted(house.calls) == list(range(6))


def _node(house: world.House) -> str:
    """That of the worker."""
    found = house.hub.cluster(world.NS, "counter")
    nodes = [worker.node for worker in found.workers] if found else []
    return nodes[0] if nodes else ""


async def test_a_failed_shard_names_the_task_that_failed(tmp_path: Path) -> None:
    (tmp_path / "fail-1").touch()
    async with world.house_in(tmp_path) as house:
        wanted = new(house, fan_out())
        await house.services.flows.start(wanted)
        found = await over(house, wanted.key)
        assert (found.phase, found.reason) == (_P.FAILED, "ShardsFailed")
        assert "shard 1: ValueError: index 1 cannot be done" in found.message
        failed = await house.services.flows.steps(wanted.key, state=_S.FAILED)
        assert [(one.key, one.task_name) for one in failed] == [("price[1]", "set-g1-price-1")]


async def test_a_step_says_what_it_waits_for(tmp_path: Path) -> None:
    async with world.house_in(tmp_path) as house:
        wanted = msgspec.structs.replace(new(house, fan_out()), clusters={"workers": "nobody"})
        await house.services.flows.start(wanted)
        view = house.services.flows.view(wanted.key)
        assert view is not None
        assert (view.steps["price"].state, view.steps["price"].total) == (_S.RUNNING, 3)
        assert view.steps["price"].reason in ("WaitingForCluster", "NoWorker")
        await house.services.flows.forget(wanted.key)
        assert house.services.flows.view(wanted.key) is None
        await house.flush()
        assert house.services.engine.live == {}


async def test_a_kill_reaches_what_runs(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    async with world.house_in(tmp_path) as house:
        wanted = new(house, fan_out())
        await house.services.flows.start(wanted)
        await house.called(1)
        await house.services.flows.kill(wanted.key, reason="Deadline", message="it is late")
        found = await over(house, wanted.key)
        assert (found.phase, found.reason, found.message) == (_P.KILLED, "Deadline", "it is late")
        assert found.steps["price"].state is _S.KILLED


async def test_a_large_result_is_read_from_its_blob(tmp_path: Path) -> None:
    large = {"call": "support.index_function.large", "with": {"index": "0123456789"}}
    size = {"call": "builtins.dict", "with": {"n": "${ size(big.value) }"}}
    async with world.house_in(tmp_path) as house:
        wanted = new(house, [{"big": large}, {"after": size}])
        await house.services.flows.start(wanted)
        found = await over(house, wanted.key)
        assert (found.phase, found.value) == (_P.SUCCEEDED, {"n": 81920}), found


async def test_a_call_gets_a_long_list_of_results(tmp_path: Path) -> None:
    large = {
        "each": "n",
        "of": "data.d",
        "call": "support.index_function.large",
        "with": {"index": "0123456789"},
    }
    join = {"join": "big", "call": COMBINE}
    directory = {"directory": str(tmp_path), "results": "${ big.results }"}
    check = "${ [size(all.value.results), size(all.value.results[11])] }"
    steps: list[Any] = [{"big": large}, {"all": join | {"with": directory}}]
    async with world.house_in(tmp_path) as house:
        wanted = new(house, steps, 12, result=check)
        await house.services.flows.start(wanted)
        found = await over(house, wanted.key)
        assert (found.phase, found.value) == (_P.SUCCEEDED, [12, 81920]), found


async def test_what_cannot_be_read_by_other_steps_says_so(tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    (tmp_path / "read").mkdir()
    large = {"call": "support.index_function.large", "with": {"index": "0" * 600}}
    async with world.house_in(tmp_path / "alone") as house:
        wanted = new(house, [{"big": large}])
        await house.services.flows.start(wanted)
        found = await over(house, wanted.key)
        assert (found.phase, found.value) == (_P.SUCCEEDED, None)
    steps = [{"big": large}, {"after": {"call": COMBINE, "with": {"directory": "${ big.value }"}}}]
    async with world.house_in(tmp_path / "read") as house:
        wanted = new(house, steps)
        await house.services.flows.start(wanted)
        found = await over(house, wanted.key)
        assert (found.phase, found.reason) == (_P.FAILED, "ResultTooLarge")
        assert (
            "has 4915202 bytes, and other steps read at most 4194304: have it return the key"
            in found.message
        )
