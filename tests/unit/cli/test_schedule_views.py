"""Schedules as text."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import job_config
from kilnwork.cli import errors, schedule_views
from kilnwork.kit import clock

NOW = clock.parse_rfc3339("2026-03-28T12:00:00Z")


def config(status: dict[str, Any] | None = None, **schedule: Any) -> job_config.JobConfig:
    cron = {"expression": "30 2 * * *", "timezone": "Europe/Zurich"}
    made = {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "JobConfig",
        "metadata": {"name": "report", "namespace": "default", "uid": "u"},
        "spec": {
            "template": {"spec": {}},
            "concurrency": {"policy": "Allow"},
            "schedule": {"cron": cron, **schedule},
        },
        "status": status or {},
    }
    return msgspec.convert(made, job_config.JobConfig)


def view(found: job_config.JobConfig, count: int = 2) -> schedule_views.ScheduleView:
    made = schedule_views.view_config(found, now=NOW, count=count)
    assert made is not None
    return made


def test_ticks_are_in_local_time_and_utc_through_a_change_of_clocks() -> None:
    lines = list(schedule_views.describe(view(config()), now=NOW))
    assert lines[0] == "report: 30 2 * * * in Europe/Zurich"
    assert "Sun 2026-03-29 03:00:00 +0200   2026-03-29T01:00:00Z" in lines[2]
    assert "Mon 2026-03-30 02:30:00 +0200   2026-03-30T00:30:00Z" in lines[3]


def test_last_tick_and_missed_ticks_are_shown_with_reasons() -> None:
    missed = {
        "total": 3,
        "reasons": {"TooLate": 2, "Forbidden": 1},
        "latest": "2026-03-28T01:30:00Z",
        "latestReason": "Forbidden",
    }
    found = config({"lastScheduled": "2026-03-28T01:30:00Z", "missed": missed}, disabled=True)
    text = "\n".join(schedule_views.describe(view(found), now=NOW))
    assert "last    Sat 2026-03-28 02:30:00 +0100" in text
    assert "3 (Forbidden 1, TooLate 2), the latest 2026-03-28T01:30:00Z, Forbidden" in text
    assert "kiln enable report" in text
    row = schedule_views.table([view(found)], now=NOW)[1]
    assert "disabled" in row
    assert row.endswith("3")


def test_decided_tick_is_not_a_future_tick() -> None:
    ahead = config({"lastScheduled": "2026-03-29T01:00:00Z"})
    assert view(ahead, 1).ticks == (int(clock.parse_rfc3339("2026-03-30T00:30:00Z")),)


def test_invalid_schedule_names_the_field() -> None:
    broken = config(cron={"expression": "61 * * * *"})
    with pytest.raises(errors.CommandError, match=r"report: spec\.schedule\.cron\.expression"):
        schedule_views.view_config(broken, now=NOW, count=1)


def test_h_depends_on_the_name() -> None:
    def tick(name: str) -> int:
        made = schedule_views.view_expressions(["H H * * *"], "", name=name, now=NOW, count=1)
        return made.ticks[0]

    assert len({tick(f"default/config-{number}") for number in range(5)}) > 1
    assert tick("default/a") == tick("default/a")
