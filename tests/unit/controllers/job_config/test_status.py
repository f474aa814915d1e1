"""The status of a JobConfig: counts, ticks, conditions."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import due_ticks, job, job_config, meta, task
from kilnwork.controllers.job_config import pending_ticks, status
from kilnwork.jobs import index_job_types
from kilnwork.kit import clock

NOW = 1_700_000_000.0
NO_JOBS = index_job_types.GroupView(active=(), queued=())
QUIET = status.Ticks((60, 120), due_ticks.SchedulePlan(waiting=due_ticks.WaitReason.NOT_YET_DUE))


def config(*, scheduled: bool = True, disabled: bool = False) -> job_config.JobConfig:
    schedule = job_config.Schedule(
        cron=job_config.CronSchedule(expression="* * * * *"), disabled=disabled
    )
    template = job.JobTemplate(task_template=task.TaskTemplate(command=("true",)))
    return job_config.JobConfig(
        metadata=meta.ObjectMeta(name="report", namespace="n", generation=2),
        spec=job_config.JobConfigSpec(
            template=job_config.JobTemplateSpec(spec=template),
            concurrency=job_config.Concurrency(policy=job.ConcurrencyPolicy.ALLOW),
            schedule=schedule if scheduled else None,
        ),
    )


def of(given: job_config.JobConfig, **facts: Any) -> job_config.JobConfigStatus:
    known: dict[str, Any] = {
        "jobs": (),
        "group": NO_JOBS,
        "row": None,
        "ticks": QUIET,
        "now": NOW,
        **facts,
    }
    return status.make(given, **known)


def a_job(uid: str, **of_status: Any) -> job.Job:
    metadata = meta.ObjectMeta(name=f"j-{uid}", uid=uid)
    return job.Job(metadata=metadata, spec=job.JobSpec(), status=job.JobStatus(**of_status))


@pytest.mark.parametrize(
    ("given", "group", "state"),
    [
        (config(scheduled=False), NO_JOBS, "Ready"),
        (config(), NO_JOBS, "ReadyEnabled"),
        (config(disabled=True), NO_JOBS, "ReadyDisabled"),
        (config(), index_job_types.GroupView(active=(), queued=("a",)), "JobQueued"),
        (config(), index_job_types.GroupView(active=("b",), queued=("a",)), "Executing"),
    ],
)
def test_state_follows_schedule_and_jobs(
    given: job_config.JobConfig, group: index_job_types.GroupView, state: str
) -> None:
    assert of(given, group=group).state == state


def test_jobs_are_counted_by_the_engine_and_named_by_the_cache() -> None:
    uids = tuple(f"u{n:02}" for n in range(25))
    started = clock.rfc3339(NOW)
    jobs = [a_job(uid, start_time=started) for uid in uids[1:]]
    made = of(config(), jobs=jobs, group=index_job_types.GroupView(active=uids, queued=()))
    assert made.active == 25
    assert [one.uid for one in made.active_jobs] == list(uids[1:21])
    assert made.last_executed == started


def test_last_scheduled_is_the_latest_decided_tick() -> None:
    row = index_job_types.ScheduleRow(
        config="c",
        namespace="n",
        name="report",
        tick=300,
        fingerprint="f",
        pending=(120,),
        taken={60: "u"},
        dropped={"Forbidden": 2, "TooLate": 1},
        latest_dropped=180,
        latest_reason="Forbidden",
    )
    made = of(config(), row=row)
    assert made.last_scheduled == clock.rfc3339(180)
    assert made.missed is not None
    assert (made.missed.total, made.missed.latest_reason) == (3, "Forbidden")
    assert of(config()).missed is None


def test_reason_for_missing_jobs_is_a_condition() -> None:
    refusal = pending_ticks.JobRefusal(text="quota", tries=1, again=1.0, since={60: 0.0, 120: 0.0})
    made = of(config(), ticks=QUIET._replace(refusal=refusal))
    (found,) = (one for one in made.conditions if one.type == "Scheduled")
    assert (found.status, found.reason, found.message) == (
        "False",
        "JobNotMade",
        "quota; 1 more wait",
    )
    (good,) = (one for one in of(config()).conditions if one.type == "Scheduled")
    assert good.status == "True"


def test_problem_of_an_invalid_config_is_written_immediately() -> None:
    before = of(config())
    made = status.invalid(
        msgspec.structs.replace(config(), status=before), "spec.schedule is wrong", now=NOW
    )
    assert (made.state, made.next_runs) == ("Invalid", ())
    assert status.delay_s(before, made) == 0.0


def test_counts_are_written_later() -> None:
    before = of(config())
    group = index_job_types.GroupView(active=("a",), queued=())
    assert status.delay_s(before, before) is None
    assert status.delay_s(before, of(config(), group=group)) == status.HOLD_S
