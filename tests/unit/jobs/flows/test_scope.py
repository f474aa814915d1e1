"""Values of the names in expressions at one place of a flow."""

from typing import Any

import pytest

from kilnwork.api import flow_expressions
from kilnwork.jobs.flows import live_run_state, run_types, scope
from support import flow_world

FLOW = {"params": {"rate": 2}, "do": [{"load": {"call": "f.load"}}]}
_S = run_types.InstanceState


@pytest.fixture
def run() -> live_run_state.Run:
    new = flow_world.new(FLOW, data={"trades": [1, 2]}, params={"rate": 3})
    made = live_run_state.Run(new, live_run_state.RunState(started=0.0), row=1)
    counts = run_types.TaskCounts(total=2, succeeded=1)
    made.put(live_run_state.Record(key="load", state=_S.SUCCEEDED, started=0.0, counts=counts))
    made.keep_value("load", b"[7]")
    return made


def look(run: live_run_state.Run, root: str, member: str | None = None) -> Any:
    return scope.Scope(run, {"load": "load"}).lookup(flow_expressions.Name(root, member))


def test_scope_resolves_names_of_the_run(run: live_run_state.Run) -> None:
    assert look(run, "params", "rate") == 3
    assert (look(run, "set", "name"), look(run, "set", "generation")) == ("flow", 1)
    assert look(run, "data", "trades")["shards"] == 2
    with pytest.raises(flow_expressions.ExpressionError, match=r"needs data\.rates"):
        look(run, "data", "rates")


def test_scope_resolves_members_of_a_step(run: live_run_state.Run) -> None:
    assert look(run, "load", "value") == [7]
    assert look(run, "load", "state") == "Succeeded"
    assert look(run, "load", "counts")["succeeded"] == 1


def test_step_that_did_not_run_has_state_and_no_value(run: live_run_state.Run) -> None:
    run.put(live_run_state.Record(key="load", state=_S.SKIPPED, started=0.0))
    assert look(run, "load", "state") == "Skipped"
    with pytest.raises(scope.SkippedStep):
        look(run, "load", "value")
    run.drop("load")
    assert look(run, "load", "state") == "Waiting"
    with pytest.raises(scope.SkippedStep):
        look(run, "other", "value")


def test_error_is_set_once_run_has_failed(run: live_run_state.Run) -> None:
    assert look(run, "error", "reason") is None
    run.update(phase=run_types.FlowPhase.FAILED, step="load", reason="StepFailed", message="1 of 2")
    assert look(run, "error", "reason") == "StepFailed"
    assert look(run, "error") == {"step": "load", "reason": "StepFailed", "message": "1 of 2"}


def test_with_steps_adds_names_to_scope(run: live_run_state.Run) -> None:
    inner = scope.Scope(run, {}).with_steps({"again": "load"})
    assert inner.lookup(flow_expressions.Name("again", "value")) == [7]
