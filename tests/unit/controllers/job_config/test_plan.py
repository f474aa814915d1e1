"""The decisions of the JobConfig controller: ticks, Jobs, history."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from kilnwork.api import due_ticks, job, job_config, job_from_config, meta, task
from kilnwork.controllers.job_config import pending_ticks, plan, status
from kilnwork.jobs import index_job_types
from kilnwork.kit import clock

NOW = 1_700_000_000.0  # a multiple of 100 seconds
NO_JOBS = index_job_types.GroupView(active=(), queued=())


def _config(policy: str = "Allow", *, cron: str | None = "* * * * *", **more: Any) -> Any:
    """Return a JobConfig that was created an hour ago. `schedule`: further fields of its
    schedule.
    """
    schedule = more.pop("schedule", {})
    concurrency = {"policy": job.ConcurrencyPolicy(policy), **more.pop("concurrency", {})}
    given = job_config.Schedule(cron=job_config.CronSchedule(expression=cron or ""), **schedule)
    template = job.JobTemplate(task_template=task.TaskTemplate(command=("true",)))
    return job_config.JobConfig(
        metadata=meta.ObjectMeta(
            name="report",
            namespace="default",
            uid="018f3a5e-0000-7000-8000-00000000000c",
            generation=1,
            creation_timestamp=clock.rfc3339(NOW - 3600),
        ),
        spec=job_config.JobConfigSpec(
            template=job_config.JobTemplateSpec(spec=template),
            concurrency=job_config.Concurrency(**concurrency),
            schedule=given if cron else None,
            **more,
        ),
    )


def _row(config: Any, tick: float, **more: Any) -> index_job_types.ScheduleRow:
    return index_job_types.ScheduleRow(
        config=config.metadata.uid,
        namespace="default",
        name="report",
        tick=int(tick),
        fingerprint=more.pop("fingerprint", plan.parse(config).fingerprint),
        **more,
    )


def _decide(config: Any, **facts: Any) -> plan.Plan:
    given = {
        "config": config,
        "reading": plan.parse(config),
        "jobs": (),
        "group": NO_JOBS,
        "row": None,
        "now": NOW,
        **facts,
    }
    return plan.decide(plan.Facts(**given))


MINUTE = int(NOW // 60 * 60)
"""The latest tick."""


def test_schedule_starts_with_the_creation_of_its_config() -> None:
    decided = _decide(_config())
    assert decided.decision is not None
    assert decided.decision.tick == int(NOW - 3600)
    assert not decided.make, "nothing is made before that is durable"


def test_config_without_a_schedule_decides_nothing() -> None:
    decided = _decide(_config(cron=None))
    assert decided.decision is None
    assert decided.status.state == "Ready"


def test_due_tick_is_decided_before_its_job_is_created() -> None:
    config = _config()
    decided = _decide(config, row=_row(config, MINUTE - 60))
    assert decided.decision is not None
    assert (decided.decision.tick, decided.decision.run) == (MINUTE, (MINUTE,))
    assert not decided.make
    then = _decide(config, row=_row(config, MINUTE, pending=(MINUTE,)))
    assert then.decision is None
    assert then.make == (MINUTE,)
    assert then.again_s == pytest.approx(MINUTE + 60 - NOW)


def test_last_updated_in_the_future_delays_ticks_until_reverted() -> None:
    ahead = _config(schedule={"last_updated": clock.rfc3339(NOW + 86_400 * 365)})
    first = _decide(ahead).decision
    assert first is not None
    assert first.tick == int(NOW)
    shown = _decide(ahead, row=_row(ahead, first.tick)).status
    assert shown.next_runs[0] > clock.rfc3339(NOW + 86_400 * 364)
    assert [(c.type, c.status) for c in shown.conditions] == [
        ("Valid", "True"),
        ("Scheduled", "True"),
    ]
    edited = _config()
    row = _row(edited, first.tick, fingerprint=first.fingerprint)
    again = _decide(edited, row=row, now=NOW + 5).decision
    assert again is not None
    assert again.tick == int(NOW + 5)


def _made(config: Any, tick: int, phase: job.Phase) -> job.Job:
    metadata = meta.ObjectMeta(
        name=f"report-{tick}",
        namespace="default",
        uid="018f3a5e-0000-7000-8000-00000000000d",
        annotations={job_from_config.SCHEDULE_TIME: str(tick)},
    )
    return job.Job(metadata=metadata, spec=job.JobSpec(), status=job.JobStatus(phase=phase))


@pytest.mark.parametrize(
    ("phase", "counts"),
    [(job.Phase.ADMISSION_ERROR, {"Refused": 1}), (job.Phase.SUCCEEDED, {})],
)
def test_tick_of_a_finished_job_does_not_count_against_concurrency(
    phase: job.Phase, counts: dict[str, int]
) -> None:
    config = _config("Forbid")
    row = _row(config, MINUTE, pending=(MINUTE - 60,))
    decided = _decide(config, row=row, jobs=(_made(config, MINUTE - 60, phase),))
    assert decided.decision is not None
    assert decided.decision.abandon == (MINUTE - 60,)
    assert decided.decision.dropped == counts
    waits = _made(config, MINUTE - 60, job.Phase.QUEUED)
    assert _decide(config, row=row, jobs=(waits,)).decision is None


def test_edit_does_not_run_past_ticks() -> None:
    config = _config()
    row = _row(config, MINUTE - 1800, fingerprint="of another schedule")
    decided = _decide(config, row=row)
    assert decided.decision is not None
    assert decided.decision.run == ()
    assert decided.decision.tick == int(NOW)


def test_disabled_schedule_decides_nothing() -> None:
    config = _config(schedule={"disabled": True})
    decided = _decide(config, row=_row(config, MINUTE - 1800))
    assert decided.decision is None
    assert decided.status.state == "ReadyDisabled"
    assert decided.status.next_runs == ()


def test_forbid_drops_a_tick_while_a_job_runs() -> None:
    config = _config("Forbid")
    busy = index_job_types.GroupView(active=("u",), queued=())
    decided = _decide(config, row=_row(config, MINUTE - 60), group=busy)
    assert decided.decision is not None
    assert decided.decision.run == ()
    assert decided.decision.dropped == {"Forbidden": 1}
    assert decided.decision.latest_dropped == MINUTE


def test_forbid_counts_ticks_whose_jobs_do_not_exist_yet() -> None:
    config = _config("Forbid")
    row = _row(config, MINUTE - 60, pending=(MINUTE - 60,))
    decided = _decide(config, row=row)
    assert decided.decision is not None
    assert decided.decision.dropped == {"Forbidden": 1}


def test_full_queue_drops_a_tick() -> None:
    config = _config("Enqueue", concurrency={"max_queued": 1})
    row = _row(config, MINUTE - 60)
    full = index_job_types.GroupView(active=("a",), queued=("b",))
    room = index_job_types.GroupView(active=("a",), queued=())
    for group, run, dropped in ((full, (), {"QueueFull": 1}), (room, (MINUTE,), {})):
        decided = _decide(config, row=row, group=group)
        assert decided.decision is not None
        assert (decided.decision.run, decided.decision.dropped) == (run, dropped)


def test_missed_ticks_follow_their_policy() -> None:
    policy = job_config.MissedRuns(policy=job_config.MissedPolicy.ALL, max_runs=2)
    config = _config(schedule={"missed_runs": policy})
    decided = _decide(config, row=_row(config, MINUTE - 600), now=float(MINUTE + 30))
    assert decided.decision is not None
    assert decided.decision.run == (MINUTE - 60, MINUTE)
    assert decided.decision.dropped == {"MissedRunsPolicy": 8}


def test_taken_name_is_counted_once() -> None:
    config = _config()
    row = _row(config, MINUTE, pending=(MINUTE,))
    decided = _decide(
        config, row=row, pending=pending_ticks.PendingTicks(taken=frozenset({MINUTE}))
    )
    assert decided.decision is not None
    assert decided.decision.abandon == (MINUTE,)
    assert decided.decision.dropped == {"NameTaken": 1}
    then = _decide(
        config,
        row=_row(config, MINUTE),
        pending=pending_ticks.PendingTicks(taken=frozenset({MINUTE})),
    )
    assert then.decision is None


def test_clock_set_back_runs_no_tick_again() -> None:
    config = _config()
    decided = _decide(config, row=_row(config, MINUTE), now=NOW - 7200)
    assert decided.decision is None
    assert decided.make == ()
    conditions = {c.type: (c.status, c.reason) for c in decided.status.conditions}
    assert conditions["Scheduled"] == ("False", "ClockBehind")


def test_invalid_config_creates_nothing() -> None:
    config = _config(cron="61 * * * *")
    decided = _decide(config, row=_row(config, MINUTE - 600))
    assert decided.decision is None
    assert decided.status.state == "Invalid"
    (condition,) = decided.status.conditions
    assert (condition.type, condition.status) == ("Valid", "False")
    assert "spec.schedule" in condition.message


def _over(name: str, phase: str, at: float) -> job.Job:
    return job.Job(
        metadata=meta.ObjectMeta(name=name, namespace="default", uid=name),
        status=job.JobStatus(phase=phase, finish_time=clock.rfc3339(at)),
    )


def test_history_keeps_the_newest_of_each_outcome() -> None:
    config = _config(successful_jobs_history_limit=1, failed_jobs_history_limit=2)
    jobs = (
        _over("s1", "Succeeded", NOW - 30),
        _over("s2", "Succeeded", NOW - 20),
        _over("f1", "Failed", NOW - 30),
        _over("f2", "Killed", NOW - 20),
        _over("f3", "AdmissionError", NOW - 10),
        job.Job(metadata=meta.ObjectMeta(name="r", uid="r"), status=job.JobStatus(phase="Running")),
    )
    decided = _decide(config, jobs=jobs)
    assert [one.metadata.name for one in decided.delete] == ["s1", "f1"]


def test_counts_are_those_of_the_engine() -> None:
    config = _config("Enqueue")
    jobs = tuple(
        job.Job(metadata=meta.ObjectMeta(name=name, uid=name), status=job.JobStatus(phase=phase))
        for name, phase in (("a", "Running"), ("b", "Queued"), ("c", "Queued"))
    )
    group = index_job_types.GroupView(active=("a",), queued=("c", "b"))
    shown = _decide(config, jobs=jobs, group=group, row=_row(config, MINUTE)).status
    assert (shown.state, shown.active, shown.queued) == ("Executing", 1, 2)
    assert [one.name for one in shown.queued_jobs] == ["c", "b"]
    assert len(shown.next_runs) == 5


def _refused(since: float, *, tries: int = 1, again: float = 0.0) -> pending_ticks.JobRefusal:
    return pending_ticks.JobRefusal(
        text="Job report-1 cannot be made: exceeded quota",
        tries=tries,
        again=again,
        since={MINUTE: since},
    )


def test_refused_tick_waits_for_its_retry() -> None:
    config = _config()
    row = _row(config, MINUTE, pending=(MINUTE,))
    making = pending_ticks.PendingTicks(refusal=_refused(10.0, again=14.0), now=11.0)
    waits = _decide(config, row=row, pending=making)
    assert (waits.decision, waits.make) == (None, ())
    assert waits.again_s == pytest.approx(3.0)
    condition = {c.type: c for c in waits.status.conditions}["Scheduled"]
    assert (condition.status, condition.reason) == ("False", "JobNotMade")
    assert "exceeded quota" in condition.message
    due = pending_ticks.PendingTicks(refusal=_refused(10.0, again=14.0), now=14.0)
    assert _decide(config, row=row, pending=due).make == (MINUTE,)


@pytest.mark.parametrize(
    ("within_s", "waited_s", "dropped"),
    [
        (86_400, pending_ticks.PATIENCE_S - 1, None),
        (86_400, pending_ticks.PATIENCE_S, {"JobNotMade": 1}),
        (60, 59, None),
        (60, 60, {"JobNotMade": 1}),
    ],
)
def test_refused_tick_is_missed_after_a_while(
    within_s: int, waited_s: float, dropped: dict[str, int] | None
) -> None:
    missed = job_config.MissedRuns(within_seconds=within_s)
    config = _config(schedule={"missed_runs": missed})
    row = _row(config, MINUTE, pending=(MINUTE,))
    making = pending_ticks.PendingTicks(refusal=_refused(10.0), now=10.0 + waited_s)
    decided = _decide(config, row=row, pending=making)
    if dropped is None:
        assert (decided.decision, decided.make) == (None, (MINUTE,))
        return
    assert decided.decision is not None
    assert (decided.decision.abandon, decided.decision.dropped) == ((MINUTE,), dropped)
    assert [one.reason for one in decided.warnings] == ["JobNotMade"]
    assert clock.rfc3339(MINUTE) in decided.warnings[0].message


def test_tick_that_waits_too_long_is_too_late() -> None:
    config = _config()
    old = MINUTE - 86_460
    decided = _decide(config, row=_row(config, MINUTE, pending=(old, MINUTE)))
    assert decided.decision is not None
    assert (decided.decision.abandon, decided.decision.dropped) == ((old,), {"TooLate": 1})


@pytest.mark.parametrize("cron", ["* * * * *", None])
def test_disabled_schedule_drops_ticks_without_jobs(cron: str | None) -> None:
    config = _config(schedule={"disabled": True} if cron else {}, cron=cron)
    ticks = (MINUTE - 180, MINUTE - 120, MINUTE - 60)
    row = _row(config, MINUTE, pending=ticks, fingerprint="of the enabled one")
    waits = _made(config, ticks[0], job.Phase.QUEUED)
    making = pending_ticks.PendingTicks(made=frozenset({ticks[1]}))
    decided = _decide(config, row=row, jobs=(waits,), pending=making)
    assert decided.decision is not None
    assert (decided.decision.abandon, decided.decision.dropped) == (ticks[2:], {"Disabled": 1})


def test_edit_of_a_schedule_keeps_decided_ticks() -> None:
    config = _config()
    row = _row(config, MINUTE, pending=(MINUTE,), fingerprint="of another schedule")
    decided = _decide(config, row=row)
    assert decided.decision is not None
    assert decided.decision.abandon == ()


def test_job_refused_after_its_acceptance_is_counted_once() -> None:
    config = _config("Forbid")
    tick = MINUTE - 60
    refused = _made(config, tick, job.Phase.ADMISSION_ERROR)
    row = _row(config, MINUTE, taken={tick: refused.metadata.uid})
    decided = _decide(config, row=row, jobs=(refused,))
    assert decided.decision is not None
    assert (decided.decision.abandon, decided.decision.dropped) == ((tick,), {"Refused": 1})
    assert (decided.decision.latest_dropped, decided.decision.tick) == (tick, MINUTE)
    counted = msgspec.structs.replace(row, refused=(tick,))
    assert _decide(config, row=counted, jobs=(refused,)).decision is None
    another = msgspec.structs.replace(row, taken={tick: "another Job"})
    assert _decide(config, row=another, jobs=(refused,)).decision is None
    ran = _made(config, tick, job.Phase.FAILED)
    assert _decide(config, row=row, jobs=(ran,)).decision is None


def test_refused_job_does_not_affect_the_concurrency() -> None:
    config = _config("Forbid", concurrency={"max_concurrency": 2})
    refused = _made(config, MINUTE - 120, job.Phase.ADMISSION_ERROR)
    row = _row(
        config,
        MINUTE - 60,
        taken={MINUTE - 120: refused.metadata.uid},
        pending=(MINUTE - 180, MINUTE - 60),
    )
    making = pending_ticks.PendingTicks(made=frozenset(row.pending))
    decided = _decide(config, row=row, jobs=(refused,), pending=making)
    assert decided.decision is not None
    assert (decided.decision.run, decided.decision.abandon) == ((), (MINUTE - 120,))
    assert decided.decision.dropped == {"Refused": 1, "Forbidden": 1}


def test_job_deleted_before_its_acceptance_is_not_created_again() -> None:
    config = _config()
    row = _row(config, MINUTE, pending=(MINUTE,))
    made = _decide(config, row=row, pending=pending_ticks.PendingTicks(made=frozenset({MINUTE})))
    assert (made.decision, made.make) == (None, ())
    gone = _decide(config, row=row, pending=pending_ticks.PendingTicks(gone=frozenset({MINUTE})))
    assert gone.decision is not None
    assert gone.decision.dropped == {"JobDeleted": 1}


def test_refusals_back_off_and_keep_their_start() -> None:
    first = pending_ticks.note_refusal(None, (1, 2), text="no", now=100.0)
    second = pending_ticks.note_refusal(first, (2, 3), text="no", now=110.0)
    assert (first.again, second.again) == (101.0, 112.0)
    assert second.since == {2: 100.0, 3: 110.0}
    after = pending_ticks.note_refusal(
        pending_ticks.note_success(second), (3,), text="no", now=120.0
    )
    assert (after.tries, after.since) == (1, {3: 110.0})
    late = pending_ticks.note_refusal(
        msgspec.structs.replace(second, tries=50), (2,), text="no", now=0.0
    )
    assert late.again == pending_ticks.RETRIES.max_s


@given(
    looks=some.lists(some.integers(-300, 7200), min_size=2, max_size=8),
    expression=some.sampled_from(["* * * * *", "*/20 * * * * * *", "0 0 1 1 ? 2024"]),
)
def test_known_upcoming_ticks_are_reused(looks: list[int], expression: str) -> None:
    schedule = plan.parse(_config(cron=expression)).schedule
    assert schedule is not None
    known: plan.Upcoming | None = None
    for after in looks:
        known = plan.extend_upcoming(schedule, MINUTE + after, known)
        assert known.ticks == due_ticks.upcoming_ticks(schedule, MINUTE + after, status.NEXT_RUNS)


def test_upcoming_ticks_are_remembered() -> None:
    first = _decide(_config()).upcoming
    assert first is not None
    later = _decide(_config(), upcoming=first, now=NOW + 61).upcoming
    assert later is not None
    assert later.ticks == (*first.ticks[1:], first.ticks[-1] + 60)


def test_job_configs_in_a_dependency_cycle_create_nothing() -> None:
    config = _config()
    decided = _decide(config, row=_row(config, NOW - 120), cycle=("report", "load", "report"))
    assert (decided.decision, decided.make) == (None, ())
    assert decided.status.state == "Invalid"
    valid = next(one for one in decided.status.conditions if one.type == "Valid")
    assert valid.status == "False"
    assert valid.message == (
        "spec.dependsOn: JobConfigs wait for each other: report -> load -> report"
    )


def test_list_of_another_job_config_is_a_dependency() -> None:
    config = _config(depends_on=(job.Dependency(kind=job.DependencyKind.JOB_CONFIG, name="load"),))
    listed = job.Parallelism(with_result_of=job.ResultSource(job_config="fetch"))
    made = msgspec.structs.replace(config.spec.template.spec, parallelism=listed)
    template = job_config.JobTemplateSpec(spec=made)
    spec = msgspec.structs.replace(config.spec, template=template)
    config = msgspec.structs.replace(config, spec=spec)
    assert list(plan.depends_on(config)) == ["load", "fetch"]
