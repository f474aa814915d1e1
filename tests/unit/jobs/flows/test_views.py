"""Views of runs: steps in the order of the flow, and the tasks that run now."""

import pytest

from kilnwork.jobs.flows import live_run_state, run_types, views
from support import flow_world

FLOW = {"do": [{"load": {"call": "f.load"}}, {"price": {"call": "f.price"}}]}
_S = run_types.InstanceState


@pytest.fixture
def run() -> live_run_state.Run:
    made = live_run_state.Run(
        flow_world.new(FLOW), live_run_state.RunState(started=0.0, version=5), row=1
    )
    counts = run_types.TaskCounts(total=4, succeeded=3, failed=1)
    made.put(
        live_run_state.Record(key="load", state=_S.FAILED, started=0.0, reason="R", counts=counts)
    )
    return made


def test_view_shows_all_steps_in_order(run: live_run_state.Run) -> None:
    view = views.run_view(run)
    assert list(view.steps) == ["load", "price"]
    load, price = view.steps.values()
    assert (load.state, load.total, load.failed, load.reason) == (_S.FAILED, 4, 1, "R")
    assert price == run_types.StepView()


def test_view_shows_final_phase_when_run_is_over(run: live_run_state.Run) -> None:
    run.update(phase=run_types.FlowPhase.SUCCEEDED)
    run.keep_value("", b"42")
    assert (views.run_view(run).phase, views.run_view(run).value) == (
        run_types.FlowPhase.RUNNING,
        None,
    )
    run.update(stage=live_run_state.FlowStage.OVER)
    assert (views.run_view(run).phase, views.run_view(run).value) == (
        run_types.FlowPhase.SUCCEEDED,
        42,
    )


def test_open_jobs_add_to_counts_of_their_step(run: live_run_state.Run) -> None:
    one = views.OpenJob(run_types.TaskCounts(total=2, succeeded=1), 1, 9, "Queued", "it waits")
    two = views.OpenJob(run_types.TaskCounts(total=1), 0, 3, "Other")
    view = views.add_open_jobs(views.run_view(run), {"price": [one, two]})
    price = view.steps["price"]
    assert (price.total, price.succeeded, price.running) == (3, 1, 1)
    assert (price.reason, price.message) == ("Queued", "it waits")
    assert view.version == 9
    assert view.steps["load"].total == 4
