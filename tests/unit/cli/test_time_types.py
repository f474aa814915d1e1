"""Times as typed on the command line."""

import datetime as dt
from zoneinfo import ZoneInfo

import pytest

from kilnwork.cli import time_types

ZURICH = ZoneInfo("Europe/Zurich")


def utc(*parts: int) -> float:
    return dt.datetime(*parts, tzinfo=dt.UTC).timestamp()  # type: ignore[arg-type, misc]


def test_zone_is_kept_and_a_missing_zone_is_the_schedules() -> None:
    assert time_types.parse("2026-01-02T03:04:05Z").first(ZURICH) == utc(2026, 1, 2, 3, 4, 5)
    assert time_types.parse("2026-01-02T03:04").first(ZURICH) == utc(2026, 1, 2, 2, 4)


def test_date_covers_the_whole_day_when_clocks_change() -> None:
    day = time_types.parse("2026-03-29")
    assert day.first(ZURICH) == utc(2026, 3, 28, 23)
    assert day.last(ZURICH) == utc(2026, 3, 29, 22) - 1
    assert time_types.parse("20260329") == day
    assert time_types.parse("2026-01-02T00:00").last(ZURICH) == utc(2026, 1, 1, 23)


@pytest.mark.parametrize("text", ["", "tomorrow", "2026-13-01", "12:00"])
def test_invalid_time_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time: write it as"):
        time_types.parse(text)


@pytest.mark.parametrize("text", ["0001-01-01", "0001-01-01T00:00+05:00", "9999-12-31"])
def test_year_at_the_end_of_the_calendar_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="the year must be from 2 to 9998"):
        time_types.parse(text)


@pytest.mark.parametrize("text", ["0002-01-01", "9998-12-31"])
def test_accepted_day_has_a_first_and_a_last_second(text: str) -> None:
    day = time_types.parse(text)
    assert day.last() - day.first() == day.last(ZURICH) - day.first(ZURICH) == 86_399
