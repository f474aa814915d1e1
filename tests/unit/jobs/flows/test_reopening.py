"""Which jobs of a failed run run again, and which steps start from the beginning."""

import pytest

from kilnwork.jobs.flows import live_run_state, reopening, run_types
from support import flow_world

FLOW = {"do": [{"load": {"call": "f.load"}}, {"price": {"call": "f.price"}}]}
_S = run_types.InstanceState


@pytest.fixture
def run() -> live_run_state.Run:
    made = live_run_state.Run(flow_world.new(FLOW), live_run_state.RunState(started=0.0), row=1)
    for key, state, job in (
        ("load", _S.SUCCEEDED, True),
        ("price", _S.FAILED, True),
        ("price.inner", _S.KILLED, False),
        ("load.part", _S.FAILED, True),
        ("catch[0].mail", _S.SUCCEEDED, True),
        ("finally.clean", _S.SUCCEEDED, True),
    ):
        made.put(live_run_state.Record(key=key, state=state, started=0.0, finished=1.0, job=job))
    return made


def test_failed_jobs_continue_in_their_next_run(run: live_run_state.Run) -> None:
    found = reopening.find_reopening(run, lambda key: 4)
    assert found.again == {"price": 5}
    assert found.restarted == ("price.inner", "catch[0].mail", "finally.clean")


def test_instance_without_job_begins_again(run: live_run_state.Run) -> None:
    found = reopening.find_reopening(run, lambda key: None)
    assert found.again == {}
    assert "price" in found.restarted


def test_reopened_run_continues_with_chosen_instances(run: live_run_state.Run) -> None:
    run.update(
        phase=run_types.FlowPhase.FAILED, reason="StepFailed", stage=live_run_state.FlowStage.OVER
    )
    run.ends["price"] = live_run_state.JobEnd(succeeded=False)
    reopening.apply_reopening(
        run, reopening.find_reopening(run, lambda key: 1), run_number=2, now=9.0
    )
    assert list(run.records) == ["load", "price", "load.part"]
    again = run.records["price"]
    assert (again.state, again.started, again.finished) == (_S.RUNNING, 9.0, None)
    assert (again.job_run, again.open) == (2, True)
    assert (run.state.run, run.state.resumed, run.state.reason) == (2, 9.0, "")
    assert run.state.phase is run_types.FlowPhase.RUNNING
    assert run.ends == {}
