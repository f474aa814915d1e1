"""Snapshots may be divided into other shards until a step has used them."""

import pytest

from kilnwork.jobs.flows import live_run_state, run_types, snapshot_resharding
from support import flow_world

FLOW = {
    "do": [
        {"price": {"each": "s", "of": "data.trades", "call": "f.price", "with": {"s": "${ s }"}}},
        {"rates": {"each": "r", "of": "data.rates", "call": "f.rate", "with": {"r": "${ r }"}}},
    ]
}


@pytest.fixture
def run() -> live_run_state.Run:
    new = flow_world.new(FLOW, data={"trades": [1, 2], "rates": [1]})
    return live_run_state.Run(new, live_run_state.RunState(started=0.0), row=1)


def begin(run: live_run_state.Run, step: str) -> None:
    state = run_types.InstanceState.RUNNING
    run.put(live_run_state.Record(key=step, state=state, started=0.0))


def test_snapshot_named_by_a_step_keeps_its_shards(run: live_run_state.Run) -> None:
    assert snapshot_resharding.named_snapshots(run) == frozenset()
    begin(run, "price")
    assert snapshot_resharding.named_snapshots(run) == {"trades"}
    divided = snapshot_resharding.with_shards(run, {"trades": [7], "rates": [8, 9]})
    assert divided.snapshots["trades"].shards == [1, 2]
    assert divided.snapshots["rates"].shards == [8, 9]


def test_equal_shards_leave_definition_unchanged(run: live_run_state.Run) -> None:
    assert snapshot_resharding.with_shards(run, {}) is run.new
    assert snapshot_resharding.with_shards(run, {"trades": [1, 2], "unknown": [1]}) is run.new


def test_snapshot_without_shards_gets_no_shards(run: live_run_state.Run) -> None:
    bare = run_types.SnapshotRef(name="trades", digest="d")
    run.redefine(flow_world.new(FLOW, data={"rates": [1]}))
    run.new.snapshots["trades"] = bare
    assert snapshot_resharding.with_shards(run, {"trades": [1]}) is run.new
