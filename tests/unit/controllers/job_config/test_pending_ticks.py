"""Ticks whose Jobs the engine does not have: each of them is resolved."""

from typing import Any

import pytest

from kilnwork.api import job, job_from_config, meta, reasons
from kilnwork.controllers.job_config import pending_ticks
from kilnwork.jobs import index_job_types

TICK = 1_700_000_000
Reason = reasons.ConfigReason


def row(*pending: int, **more: Any) -> index_job_types.ScheduleRow:
    return index_job_types.ScheduleRow(
        config="c",
        namespace="n",
        name="report",
        tick=TICK,
        fingerprint="f",
        pending=pending,
        **more,
    )


def a_job(phase: str, uid: str = "u") -> job.Job:
    annotations = {job_from_config.SCHEDULE_TIME: str(TICK)}
    return job.Job(
        metadata=meta.ObjectMeta(name="j", uid=uid, annotations=annotations),
        spec=job.JobSpec(),
        status=job.JobStatus(phase=phase),
    )


def lost(pending: pending_ticks.PendingTicks, *jobs: job.Job, **more: Any) -> Any:
    given = {"within_s": 60.0, "now": float(TICK), **more}
    return pending_ticks.resolved_ticks(row(TICK), pending, jobs=jobs, **given).get(TICK, "waits")


NONE = pending_ticks.PendingTicks()
SET = frozenset({TICK})


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (lost(NONE), "waits"),
        (lost(pending_ticks.PendingTicks(taken=SET)), Reason.NAME_TAKEN),
        (lost(pending_ticks.PendingTicks(gone=SET)), Reason.JOB_DELETED),
        (lost(pending_ticks.PendingTicks(made=SET), now=TICK + 1e6), "waits"),
        (lost(NONE, a_job("Running")), "waits"),
        (lost(NONE, a_job("Failed")), None),
        (lost(NONE, a_job("AdmissionError")), Reason.REFUSED),
        (lost(NONE, within_s=None), Reason.DISABLED),
        (lost(NONE, now=TICK + 300.0), "waits"),
        (lost(NONE, now=TICK + 301.0), Reason.TOO_LATE),
        (lost(NONE, now=TICK + 301.0, within_s=400.0), "waits"),
    ],
)
def test_lost_ticks_have_a_reason(found: Any, why: Any) -> None:
    assert found == why


def test_refused_job_is_retried_for_some_minutes() -> None:
    refusal = pending_ticks.note_refusal(None, [TICK], text="quota", now=0.0)
    before = pending_ticks.PendingTicks(refusal=refusal, now=299.0)
    after = pending_ticks.PendingTicks(refusal=refusal, now=300.0)
    assert lost(before, within_s=1e9) == "waits"
    assert lost(after, within_s=1e9) == Reason.JOB_NOT_MADE


def test_consecutive_refusals_are_counted_and_keep_their_start() -> None:
    first = pending_ticks.note_refusal(None, [1], text="quota", now=10.0)
    second = pending_ticks.note_refusal(first, [1, 2], text="quota", now=20.0)
    assert (first.tries, second.tries) == (1, 2)
    assert second.since == {1: 10.0, 2: 20.0}
    assert second.again - 20.0 > first.again - 10.0
    made = pending_ticks.note_success(second)
    assert made is not None
    assert made.tries == 0


def test_no_job_is_created_during_a_refusal() -> None:
    refusal = pending_ticks.note_refusal(None, [TICK], text="quota", now=0.0)
    waits = pending_ticks.PendingTicks(refusal=refusal, now=refusal.again - 0.25)
    assert pending_ticks.ticks_to_create(row(TICK), waits) == ((), 0.25)
    due = pending_ticks.PendingTicks(refusal=refusal, now=refusal.again)
    assert pending_ticks.ticks_to_create(row(TICK), due) == ((TICK,), None)


def test_job_is_created_once() -> None:
    assert pending_ticks.ticks_to_create(
        row(TICK, TICK + 60), pending_ticks.PendingTicks(made=SET)
    ) == (
        (TICK + 60,),
        None,
    )


def test_job_refused_later_is_counted_once() -> None:
    refused = a_job("AdmissionError")
    taken = {TICK: "u"}
    assert pending_ticks.refused_later(row(taken=taken), [refused]) == {TICK: Reason.REFUSED}
    assert pending_ticks.refused_later(row(taken={TICK: "v"}), [refused]) == {}
    assert pending_ticks.refused_later(row(taken=taken), [a_job("Failed")]) == {}
