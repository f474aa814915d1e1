"""Fields of a JobConfig: defaults, bounds and words."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import job_config


def test_missed_runs_default_to_the_latest_tick_of_a_day() -> None:
    missed = job_config.Schedule().missed_runs
    assert (missed.policy, missed.max_runs, missed.within_seconds) == ("Latest", 5, 86_400)


def test_schedule_defaults_to_enabled_and_standard_format() -> None:
    schedule = msgspec.convert({"cron": {"expression": "@daily"}}, job_config.Schedule)
    assert schedule.cron is not None
    assert (schedule.disabled, schedule.cron.format, schedule.cron.timezone) == (
        False,
        "standard",
        "",
    )


def test_concurrency_requires_a_policy_and_allows_twenty_queued() -> None:
    found = msgspec.convert({"policy": "Forbid"}, job_config.Concurrency)
    assert (found.max_concurrency, found.max_queued) == (None, 20)
    with pytest.raises(msgspec.ValidationError, match="policy"):
        msgspec.convert({}, job_config.Concurrency)


@pytest.mark.parametrize(
    ("type_", "field", "usable", "unusable"),
    [
        (job_config.MissedRuns, "maxRuns", [1, 1000], [0, 1001]),
        (job_config.MissedRuns, "withinSeconds", [1], [0]),
        (job_config.MissedRuns, "policy", ["None", "Latest", "All"], ["latest"]),
        (job_config.CronSchedule, "expressions", [["a"] * 64], [["a"] * 65]),
        (job_config.CronSchedule, "format", ["standard", "quartz"], ["Quartz"]),
        (job_config.Concurrency, "maxConcurrency", [1, 10_000], [0, 10_001]),
        (job_config.Concurrency, "maxQueued", [0, 10_000], [-1, 10_001]),
    ],
)
def test_fields_have_bounds(
    type_: type[Any], field: str, usable: list[object], unusable: list[object]
) -> None:
    base = {"policy": "Forbid"} if type_ is job_config.Concurrency else {}
    for value in usable:
        msgspec.convert({**base, field: value}, type_)
    for value in unusable:
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({**base, field: value}, type_)
