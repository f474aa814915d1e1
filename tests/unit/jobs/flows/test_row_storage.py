"""Rows of a run: each change is written once."""

from kilnwork.jobs.flows import live_run_state, row_storage, run_types
from support import flow_world


def test_changes_of_a_run_are_written_once() -> None:
    new = flow_world.new({"do": [{"load": {"call": "f.load"}}]})
    run = live_run_state.Run(new, live_run_state.RunState(started=0.0), row=1)
    state = run_types.InstanceState.SUCCEEDED
    run.put(live_run_state.Record(key="load", state=state, started=1.0))
    run.keep_value("load", b"[7]")
    writes = row_storage.FlowWrites()
    writes.update(run)
    assert dict(writes.take())["put_flow_value"] == [(1, "load", b"[7]")]
    writes.update(run)
    assert writes.take() == []
    assert run.value("load") == [7]
