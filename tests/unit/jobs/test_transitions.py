"""Events of a job change its record; late or repeated events change nothing."""

from typing import Any

import pytest

from kilnwork.api import filejobs
from kilnwork.api import task as api_task
from kilnwork.dispatch.hub import subscriptions
from kilnwork.jobs import errors, item_source, item_states, live_job_state, transitions
from kilnwork.kit import ids
from support import index_records

_S, _T, _O = item_states.ItemState, api_task.State, filejobs.PartOutcome


def change(state: api_task.State, **facts: Any) -> subscriptions.Change:
    known: dict[str, Any] = {
        "task": ids.TaskId(bytes(16)), "run": 1, "state": state, "reason": "", "message": "",
        "attempt": 1, "failures": 0, "losses": 0, "worker": "w-0", "started": None,
        "suspended": False,
    }  # fmt: skip
    return subscriptions.Change(**{**known, **facts})


@pytest.fixture
def job() -> live_job_state.Job:
    """Index 0, item 1, has a task."""
    made = index_records.job(3)
    made.items.set(1, _S.SUBMITTED)
    made.tasks[1] = live_job_state.ItemTask()
    return made


def test_running_task_starts_the_job(job: live_job_state.Job) -> None:
    transitions.apply_task_change(job, 1, change(_T.RUNNING), now=7.0)
    assert (job.started, job.active, job.tasks[1].worker) == (7.0, 1, "w-0")
    transitions.apply_task_change(job, 1, change(_T.PENDING), now=8.0)
    assert (job.started, job.active) == (7.0, 0)


def test_failures_are_counted_once(job: live_job_state.Job) -> None:
    for _ in range(2):
        transitions.apply_task_change(job, 1, change(_T.PENDING, failures=2, losses=1), now=7.0)
    assert (job.failures, job.loss_count) == (2, 1)


def test_changes_after_end_of_task_are_ignored(job: live_job_state.Job) -> None:
    transitions.apply_task_change(job, 1, change(_T.FAILED, reason="NonZeroExit"), now=7.0)
    assert job.ended == {1}
    ended = job.tasks[1].ended
    assert ended is not None
    assert ended.reason == "NonZeroExit"
    transitions.apply_task_change(job, 1, change(_T.RUNNING), now=8.0)
    assert job.tasks[1].ended is ended


def test_end_of_earlier_run_drops_task_and_reopens_item(job: live_job_state.Job) -> None:
    job.items.set(1, _S.SUBMITTED, 2)
    transitions.apply_task_change(job, 1, change(_T.RUNNING, run=1), now=7.0)
    assert 1 in job.tasks
    transitions.apply_task_change(job, 1, change(_T.KILLED, run=1), now=7.0)
    assert 1 not in job.tasks
    assert job.items.states[1] == _S.OPEN


def test_success_without_result_reopens_item_limited_times(job: live_job_state.Job) -> None:
    for times in range(1, transitions.MAX_REOPENINGS + 1):
        transitions.apply_result(job, 1, job.run_of(1), None, now=7.0)
        assert (job.items.states[1], job.reopened[1]) == (_S.OPEN, times)
        job.items.set(1, _S.SUBMITTED, job.run_of(1))
        job.tasks[1] = live_job_state.ItemTask()
    transitions.apply_result(job, 1, job.run_of(1), None, now=7.0)
    ended = job.tasks[1].ended
    assert ended is not None
    assert ended.reason == "NoCommit"


def test_result_of_another_run_is_ignored(job: live_job_state.Job) -> None:
    result = item_source.ItemResult(item=1, run=2, outcome=_O.SUCCEEDED)
    transitions.apply_result(job, 1, 2, result, now=7.0)
    assert job.counts.closed == 0
    job.busy.add(("Settle", 1))
    transitions.apply_result(
        job, 1, 1, item_source.ItemResult(1, 1, _O.SUCCEEDED, data=job.tasks[1]), now=7.0
    )
    assert (job.counts.succeeded, job.busy) == (1, set())


def test_unfinished_job_cannot_be_redriven(job: live_job_state.Job) -> None:
    with pytest.raises(errors.NotNow):
        transitions.redrive(job, now=7.0)


def test_redrive_reopens_failed_items_in_next_run(job: live_job_state.Job) -> None:
    job.stage, job.verdict = live_job_state.Stage.FINISHED, _O.FAILED
    job.items.set(1, _S.FAILED, 1)
    job.items.set(2, _S.SUCCEEDED, 1)
    job.counts.failed = job.counts.succeeded = 1
    transitions.redrive(job, now=7.0)
    assert (job.run, job.phase.value) == (2, "Pending")
    assert list(job.items.states[1:4]) == [_S.OPEN, _S.SUCCEEDED, _S.OPEN]
    assert (job.counts.failed, job.counts.succeeded) == (0, 1)
