"""The Job of a JobConfig that another Job depends on: that of the same tick, else the newest
before.
"""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilnwork.api import job, job_config, job_from_config, meta, task
from kilnwork.controllers.job import dependency_job_choice
from kilnwork.jobs import index_job_types
from kilnwork.kit import clock

HOUR = 1_700_002_800
"""A whole hour: a tick of `0 * * * *`."""

TEMPLATE = job.JobTemplate(task_template=task.TaskTemplate(command=("true",)))
_uids = itertools.count(1)


def _config(*, cron: str | None = "0 * * * *", made: int = HOUR - 86_400, **more: Any) -> Any:
    schedule = job_config.Schedule(
        cron=job_config.CronSchedule(expression=cron or ""), **more.pop("schedule", {})
    )
    return job_config.JobConfig(
        metadata=meta.ObjectMeta(
            name="load", namespace="default", uid="c", creation_timestamp=clock.rfc3339(made)
        ),
        spec=job_config.JobConfigSpec(
            template=job_config.JobTemplateSpec(spec=TEMPLATE),
            concurrency=job_config.Concurrency(policy=job.ConcurrencyPolicy.ALLOW),
            schedule=schedule if cron else None,
        ),
        **more,
    )


def _job(made: float, *, tick: int | None = None, name: str = "") -> job.Job:
    uid = f"u{next(_uids)}"
    annotations = {} if tick is None else {job_from_config.SCHEDULE_TIME: str(tick)}
    metadata = meta.ObjectMeta(
        name=name or uid,
        namespace="default",
        uid=uid,
        creation_timestamp=clock.rfc3339(made),
        annotations=annotations,
    )
    return job.Job(metadata=metadata)


def _row(tick: int, *pending: int) -> index_job_types.ScheduleRow:
    return index_job_types.ScheduleRow(
        config="c", namespace="default", name="load", tick=tick, pending=pending
    )


def _choose(
    seen: job.Job,
    *jobs: job.Job,
    config: Any = None,
    row: index_job_types.ScheduleRow | None = None,
) -> dependency_job_choice.Choice:
    return dependency_job_choice.choose(seen, config or _config(), jobs=jobs, row=row or _row(HOUR))


def test_job_of_the_same_tick_is_chosen() -> None:
    same, earlier = _job(HOUR + 1, tick=HOUR), _job(HOUR - 3600, tick=HOUR - 3600)
    later = _job(HOUR + 3601, tick=HOUR + 3600)
    assert _choose(_job(HOUR + 1, tick=HOUR), earlier, same, later).found == same


def test_scheduled_job_precedes_a_manual_job_of_the_same_second() -> None:
    same, by_hand = _job(HOUR, tick=HOUR), _job(HOUR, name="zzz")
    assert _choose(_job(HOUR, tick=HOUR), by_hand, same).found == same


@pytest.mark.parametrize("row", [_row(HOUR - 3600), _row(HOUR, HOUR)])
def test_undecided_tick_or_tick_without_job_is_awaited(
    row: index_job_types.ScheduleRow,
) -> None:
    chosen = _choose(_job(HOUR, tick=HOUR), _job(0, tick=HOUR - 3600), row=row)
    assert chosen == dependency_job_choice.Choice(
        None, f"JobConfig load has not made its Job of {clock.rfc3339(HOUR)} yet"
    )


def test_wait_for_an_unusable_job_config_is_explained() -> None:
    status = job_config.JobConfigStatus(state=job_config.ConfigState.INVALID)
    chosen = _choose(_job(HOUR, tick=HOUR), config=_config(status=status), row=_row(HOUR - 3600))
    assert chosen.waits.endswith("yet, and cannot be used")


def test_previous_job_is_chosen_after_a_dropped_tick() -> None:
    before = _job(HOUR - 3600, tick=HOUR - 3600)
    assert _choose(_job(HOUR, tick=HOUR), before).found == before


def test_tick_between_ticks_of_the_other_schedule_uses_the_earlier() -> None:
    before = _job(HOUR, tick=HOUR)
    assert _choose(_job(HOUR + 1800, tick=HOUR + 1800), before).found == before
    late = _choose(_job(HOUR + 1800, tick=HOUR + 1800), row=_row(HOUR - 3600, HOUR - 3600))
    assert late.found is None


def test_disabled_schedule_is_not_waited_for() -> None:
    before, config = _job(HOUR - 7200), _config(schedule={"disabled": True})
    row = _row(HOUR - 7200)
    assert _choose(_job(HOUR, tick=HOUR), before, config=config, row=row).found == before


def test_schedule_starts_with_the_creation_of_its_job_config() -> None:
    before, config = _job(HOUR), _config(made=HOUR)
    made = dependency_job_choice.choose(_job(HOUR, tick=HOUR), config, jobs=[before], row=None)
    assert made.found == before


def test_manual_job_uses_the_newest_existing_job() -> None:
    config = _config(cron=None)
    there, later = _job(HOUR - 10), _job(HOUR + 10)
    assert _choose(_job(HOUR), there, later, config=config).found == there


def test_next_created_job_is_chosen_if_there_is_none() -> None:
    config, seen = _config(cron=None), _job(HOUR)
    assert "has no Job until" in _choose(seen, config=config).waits
    first, second = _job(HOUR + 5), _job(HOUR + 9)
    assert _choose(seen, second, first, config=config).found == first


def test_backfill_does_not_use_a_job_of_a_later_tick() -> None:
    made, past = HOUR + 86_400, HOUR - 86_400
    seen, there = _job(made, tick=past), _job(HOUR, tick=HOUR)
    config, row = _config(made=HOUR), _row(HOUR + 86_400)
    assert "kiln backfill load" in _choose(seen, there, config=config, row=row).waits
    filled = _job(made + 60, tick=past)
    assert _choose(seen, there, filled, config=config, row=row).found == filled


def test_job_is_not_its_own_dependency() -> None:
    config, before, seen = _config(cron=None), _job(HOUR - 10), _job(HOUR)
    assert _choose(seen, before, seen, config=config).found == before


@given(
    ticks=st.lists(st.integers(-5, 5), unique=True),
    more=st.lists(st.integers(-5, 5), unique=True),
    at=st.integers(-5, 5),
)
def test_choice_does_not_change_with_later_ticks(
    ticks: list[int], more: list[int], at: int
) -> None:
    """A waiting Job keeps its dependency when Jobs of later ticks are created."""
    config = _config(cron=None)
    seen = _job(HOUR + at * 60, tick=HOUR + at * 60)
    jobs = [_job(HOUR + n * 60, tick=HOUR + n * 60, name=f"load-{n}") for n in ticks]
    later = [_job(HOUR + n * 60, tick=HOUR + n * 60) for n in more if n > max([at, *ticks])]
    chosen = _choose(seen, *jobs, config=config).found
    if chosen is not None:
        assert _choose(seen, *later, *jobs, config=config).found == chosen
    before = [n for n in ticks if n <= at]
    if before:
        assert chosen is not None
        assert chosen.metadata.name == f"load-{max(before)}"
