"""Views of runs: steps in the order of the flow, and the tasks that run now."""

import pytest

from kilnwork.jobs.flows import in_memory_runs, model, views
from support import flow_world

FLOW = {"do": [{"load": {"call": "f.load"}}, {"price": {"call": "f.price"}}]}
_S = model.InstanceState


@pytest.fixture
def run() -> in_memory_runs.Run:
    made = in_memory_runs.Run(
        flow_world.new(FLOW), in_memory_runs.RunState(started=0.0, version=5), row=1
    )
    counts = model.TaskCounts(total=4, succeeded=3, failed=1)
    made.put(
        in_memory_runs.Record(key="load", state=_S.FAILED, started=0.0, reason="R", counts=counts)
    )
    return made


def test_view_shows_all_steps_in_order(run: in_memory_runs.Run) -> None:
    view = views.run_view(run)
    assert list(view.steps) == ["load", "price"]
    load, price = view.steps.values()
    assert (load.state, load.total, load.failed, load.reason) == (_S.FAILED, 4, 1, "R")
    assert price == model.StepView()


def test_view_shows_final_phase_when_run_is_over(run: in_memory_runs.Run) -> None:
    run.update(phase=model.FlowPhase.SUCCEEDED)
    run.keep_value("", b"42")
    assert (views.run_view(run).phase, views.run_view(run).value) == (model.FlowPhase.RUNNING, None)
    run.update(stage=in_memory_runs.FlowStage.OVER)
    assert (views.run_view(run).phase, views.run_view(run).value) == (model.FlowPhase.SUCCEEDED, 42)


def test_open_jobs_add_to_counts_of_their_step(run: in_memory_runs.Run) -> None:
    one = views.OpenJob(model.TaskCounts(total=2, succeeded=1), 1, 9, "Queued", "it waits")
    two = views.OpenJob(model.TaskCounts(total=1), 0, 3, "Other")
    view = views.add_open_jobs(views.run_view(run), {"price": [one, two]})
    price = view.steps["price"]
    assert (price.total, price.succeeded, price.running) == (3, 1, 1)
    assert (price.reason, price.message) == ("Queued", "it waits")
    assert view.version == 9
    assert view.steps["load"].total == 4
