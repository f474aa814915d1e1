"""Zones by name, and their changes of the clocks."""

import datetime as dt

import pytest

from kilnwork.api import time_zones

ZURICH = time_zones.timezone("Europe/Zurich")
SPRING = 1774746000  # 2026-03-29 01:00 UTC: clocks go from 02:00 to 03:00
AUTUMN = 1792890000  # 2026-10-25 01:00 UTC: clocks go from 03:00 to 02:00


@pytest.mark.parametrize(
    ("name", "hours"),
    [("", 0), ("Local", 0), ("UTC+8", 8), ("GMT-3:30", -3.5), ("UTC+0530", 5.5), ("UTC-11", -11)],
)
def test_offsets_by_name(name: str, hours: float) -> None:
    assert time_zones.timezone(name).utcoffset(None) == dt.timedelta(hours=hours)


@pytest.mark.parametrize(
    "name",
    ["UTC+24", "UTC+1:60", "UTC+123", "posix/Europe/Zurich", "localtime", "Europe", "../x", "Mars"],
)
def test_invalid_names_are_refused(name: str) -> None:
    assert "is no time zone" in (time_zones.timezone_problem(name) or "")


def test_clock_changes_of_a_year() -> None:
    begin = time_zones.seconds_of(dt.datetime(2026, 1, 1))
    found = list(time_zones.changes(begin, begin + 365 * 86_400, ZURICH))
    assert [(c.at, c.before, c.after) for c in found] == [
        (SPRING, 3600, 7200),
        (AUTUMN, 7200, 3600),
    ]


def test_change_has_its_skipped_or_repeated_local_times() -> None:
    gap = time_zones.change_around(dt.datetime(2026, 3, 29, 2, 30), ZURICH)
    assert gap is not None
    assert (gap.begin, gap.last) == (
        dt.datetime(2026, 3, 29, 2),
        dt.datetime(2026, 3, 29, 2, 59, 59),
    )
    overlap = time_zones.change_around(dt.datetime(2026, 10, 25, 2, 30), ZURICH)
    assert overlap is not None
    assert (overlap.at, overlap.begin) == (AUTUMN, dt.datetime(2026, 10, 25, 2))


def test_no_change_around_other_local_times() -> None:
    assert time_zones.change_around(dt.datetime(2026, 3, 29, 3), ZURICH) is None
    assert time_zones.change_around(dt.datetime(2026, 3, 29, 2, 30), dt.UTC) is None


def test_local_seconds_round_trip() -> None:
    moment = dt.datetime(1969, 12, 31, 23, 59, 58)
    assert time_zones.seconds_of(moment) == -2
    assert time_zones.local_time(-2) == moment
