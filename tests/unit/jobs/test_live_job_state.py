"""Records of jobs: the phase that users see, runs of items, versions, the time to live."""

import pytest

from kilnwork.api import filejobs
from kilnwork.jobs import item_states, live_job_state
from support import index_records

_O, _P, _Stage = filejobs.PartOutcome, filejobs.FileJobPhase, live_job_state.Stage


@pytest.mark.parametrize(
    ("stage", "verdict", "phase"),
    [
        (_Stage.RUNNING, None, _P.PENDING),
        (_Stage.FINALIZING, None, _P.REDUCING),
        (_Stage.STOPPING, _O.CANCELLED, _P.CANCELLING),
        (_Stage.STOPPING, _O.FAILED, _P.RUNNING),
        (_Stage.FINISHED, None, _P.SUCCEEDED),
        (_Stage.FINISHED, _O.FAILED, _P.FAILED),
        (_Stage.FINISHED, _O.CANCELLED, _P.CANCELLED),
    ],
)
def test_phase_follows_from_stage_and_verdict(
    stage: live_job_state.Stage, verdict: filejobs.PartOutcome | None, phase: filejobs.FileJobPhase
) -> None:
    job = index_records.job()
    job.stage, job.verdict = stage, verdict
    assert job.phase is phase


def test_started_job_is_running_unless_suspended() -> None:
    job = index_records.job()
    job.started = 1.0
    assert job.phase is _P.RUNNING
    held = index_records.job(suspend=True)
    held.started = 1.0
    assert held.phase is _P.PAUSED


def test_item_has_base_run_unless_it_has_its_own() -> None:
    job = index_records.job()
    job.run, job.base_run = 3, 2
    job.items.set(1, item_states.ItemState.OPEN, 3)
    assert [job.run_of(item) for item in (0, 1, 2)] == [3, 3, 2]


def test_version_increases_while_clock_stands_still() -> None:
    job = index_records.job()
    job.changed(5.0)
    assert job.version == 5000
    job.changed(5.0)
    assert job.version == 5001
    job.changed(1.0)
    assert job.version == 5002


def test_time_to_live_counts_from_the_end() -> None:
    job = index_records.job()
    job.end(100.0)
    assert (job.finished, job.expires) == (100.0, None)
    job.ttl_s = 60.0
    job.end(100.0)
    assert job.expires == 160.0


def test_closed_items_are_the_sum_of_all_outcomes() -> None:
    counts = live_job_state.ItemCounts()
    counts.succeeded, counts.failed, counts.cancelled = 1, 2, 4
    assert counts.closed == 7
