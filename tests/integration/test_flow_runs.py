"""Flows on a real dispatcher with a real worker: calls and commands, restarts, kills."""

import json
from pathlib import Path
from typing import Any

import msgspec

from kilnwork.api import flow
from kilnwork.jobs.flows import run_types
from kilnwork.testing import inline_flows as in_process
from support import index_job_server, waiting

_P, _S = run_types.FlowPhase, run_types.InstanceState

SQUARE = "support.index_function.square"
COMBINE = "support.index_function.combine"


def new_run(
    world: index_job_server.World, steps: list[dict[str, Any]], count: int = 3, **more: Any
) -> run_types.NewFlowRun:
    params = {"directory": ""}
    declared = msgspec.convert({"do": steps, "params": params, **more}, flow.Flow)
    shards = run_types.SnapshotRef(name="d", digest="sha256:d", shards=list(range(count)))
    return run_types.NewFlowRun(
        uid=index_job_server.new_uid(),
        namespace=index_job_server.NS,
        set_name="set",
        generation=1,
        flow=declared,
        params={"directory": str(world.directory)},
        snapshots={"d": shards},
        clusters={"workers": "counter"},
    )


def fan_out(**more: Any) -> list[dict[str, Any]]:
    directory = "${ params.directory }"
    given = {"index": "${ n }", "directory": directory}
    each = {"each": "n", "of": "data.d", "call": SQUARE, "with": given}
    results = {"directory": directory, "results": "${ price.results }"}
    return [{"price": each | more}, {"total": {"call": COMBINE, "with": results}}]


async def wait_until_finished(
    world: index_job_server.World, key: run_types.FlowKey
) -> run_types.FlowRunView:
    def final() -> run_types.FlowRunView | None:
        found = world.services.flows.view(key)
        return found if found is not None and found.phase.final else None

    found = await waiting.wait_until_async(final, what=f"the end of {key}", timeout_s=60.0)
    assert found is not None
    return found


async def test_flow_result_equals_that_of_one_process(tmp_path: Path) -> None:
    async with index_job_server.running(tmp_path) as world:
        wanted = new_run(world, fan_out(), 30)
        await world.services.flows.start(wanted)
        found = await wait_until_finished(world, wanted.key)
        here = in_process.run_flow(wanted.flow, data={"d": list(range(30))}, params=wanted.params)
        assert json.dumps(found.value) == json.dumps(here.value)
        assert found.steps == here.steps
        assert world.services.engine.live == {}
        assert world.services.engine.tasks == {}


async def test_command_reads_its_inputs_and_writes_its_result(tmp_path: Path) -> None:
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
    async with index_job_server.running(tmp_path) as world:
        wanted = new_run(world, steps, 2, result="${ many.results }")
        await world.services.flows.start(wanted)
        found = await wait_until_finished(world, wanted.key)
        directory = str(world.directory)
        assert found.value == [{"n": n, "before": {"b": directory}} for n in range(2)], found


async def test_restart_repeats_no_finished_step(tmp_path: Path) -> None:
    (tmp_path / "hold-5").touch()
    async with index_job_server.running(tmp_path) as world:
        wanted = new_run(world, fan_out(), 9)
        await world.services.flows.start(wanted)
        await world.wait_for_calls(9)
        await world.restart()
        view = world.services.flows.view(wanted.key)
        assert view is not None
        assert view.phase is _P.RUNNING
        await world.release_hold("hold-5")
        found = await wait_until_finished(world, wanted.key)
        assert found.value == {"results": [n * n for n in range(9)]}
        assert sorted(world.calls) == list(range(9))


async def test_shards_wait_for_a_node_with_their_portion_across_restart(
    tmp_path: Path,
) -> None:
    """The dispatcher gets the portions of all nodes again; finished shards are not repeated."""
    async with index_job_server.running(tmp_path) as world:
        steps = fan_out(**{"with": {"index": "${ n.index }", "directory": "${ params.directory }"}})
        shards = [{"index": number, "count": 6} for number in range(6)]
        wanted = new_run(world, steps)
        wanted = msgspec.structs.replace(
            wanted,
            snapshots={"d": run_types.SnapshotRef(name="d", digest="sha256:d", shards=shards)},
            by_shard=("d",),
            portions={"workers": 2},
        )
        await world.services.flows.start(wanted)
        node = await waiting.wait_until_async(lambda: _node(world), what="a worker is connected")
        await world.hub.set_portions(index_job_server.NS, "counter", {node: frozenset({0})})
        await world.wait_for_calls(3)
        await world.restart()
        await world.hub.set_portions(index_job_server.NS, "counter", {node: frozenset({0, 1})})
        found = await wait_until_finished(world, wanted.key)
        assert found.value == {"results": [n * n for n in range(6)]}
        assert sorted(world.calls) == list(range(6))


def _node(world: index_job_server.World) -> str:
    """Return the node of the worker."""
    found = world.hub.cluster(index_job_server.NS, "counter")
    nodes = [worker.node for worker in found.workers] if found else []
    return nodes[0] if nodes else ""


async def test_failed_shard_names_the_task_that_failed(tmp_path: Path) -> None:
    (tmp_path / "fail-1").touch()
    async with index_job_server.running(tmp_path) as world:
        wanted = new_run(world, fan_out())
        await world.services.flows.start(wanted)
        found = await wait_until_finished(world, wanted.key)
        assert (found.phase, found.reason) == (_P.FAILED, "ShardsFailed")
        assert "shard 1: ValueError: index 1 cannot be done" in found.message
        failed = await world.services.flows.steps(wanted.key, state=_S.FAILED)
        assert [(one.key, one.task_name) for one in failed] == [("price[1]", "set-g1-price-1")]


async def test_waiting_step_names_its_reason(tmp_path: Path) -> None:
    async with index_job_server.running(tmp_path) as world:
        wanted = msgspec.structs.replace(new_run(world, fan_out()), clusters={"workers": "missing"})
        await world.services.flows.start(wanted)
        view = world.services.flows.view(wanted.key)
        assert view is not None
        assert (view.steps["price"].state, view.steps["price"].total) == (_S.RUNNING, 3)
        assert view.steps["price"].reason in ("WaitingForCluster", "NoWorker")
        await world.services.flows.forget(wanted.key)
        assert world.services.flows.view(wanted.key) is None
        await world.flush()
        assert world.services.engine.live == {}


async def test_kill_ends_running_steps(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    async with index_job_server.running(tmp_path) as world:
        wanted = new_run(world, fan_out())
        await world.services.flows.start(wanted)
        await world.wait_for_calls(1)
        await world.services.flows.kill(wanted.key, reason="Deadline", message="it is late")
        found = await wait_until_finished(world, wanted.key)
        assert (found.phase, found.reason, found.message) == (_P.KILLED, "Deadline", "it is late")
        assert found.steps["price"].state is _S.KILLED


async def test_large_result_is_read_from_its_blob(tmp_path: Path) -> None:
    large = {"call": "support.index_function.large", "with": {"index": "0123456789"}}
    size = {"call": "builtins.dict", "with": {"n": "${ size(big.value) }"}}
    async with index_job_server.running(tmp_path) as world:
        wanted = new_run(world, [{"big": large}, {"after": size}])
        await world.services.flows.start(wanted)
        found = await wait_until_finished(world, wanted.key)
        assert (found.phase, found.value) == (_P.SUCCEEDED, {"n": 81920}), found


async def test_call_gets_a_long_list_of_results(tmp_path: Path) -> None:
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
    async with index_job_server.running(tmp_path) as world:
        wanted = new_run(world, steps, 12, result=check)
        await world.services.flows.start(wanted)
        found = await wait_until_finished(world, wanted.key)
        assert (found.phase, found.value) == (_P.SUCCEEDED, [12, 81920]), found


async def test_result_that_steps_cannot_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    (tmp_path / "read").mkdir()
    large = {"call": "support.index_function.large", "with": {"index": "0" * 600}}
    async with index_job_server.running(tmp_path / "alone") as world:
        wanted = new_run(world, [{"big": large}])
        await world.services.flows.start(wanted)
        found = await wait_until_finished(world, wanted.key)
        assert (found.phase, found.value) == (_P.SUCCEEDED, None)
    steps = [{"big": large}, {"after": {"call": COMBINE, "with": {"directory": "${ big.value }"}}}]
    async with index_job_server.running(tmp_path / "read") as world:
        wanted = new_run(world, steps)
        await world.services.flows.start(wanted)
        found = await wait_until_finished(world, wanted.key)
        assert (found.phase, found.reason) == (_P.FAILED, "ResultTooLarge")
        assert (
            "has 4915202 bytes, and other steps read at most 4194304: have it return the key"
            in found.message
        )
