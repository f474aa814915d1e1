"""The page on schedules: its examples match the code."""

import datetime as dt
import re
import zoneinfo

import pytest

from kilnwork.api import cron, job_config
from support import pages

PAGE = pages.DOCS / "reference" / "cron.md"
NEW_YORK = zoneinfo.ZoneInfo("America/New_York")
ROW = re.compile(r"^\| (\d+) (March|November) \| `([^`]+)` \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
POLICIES = (
    (job_config.GapPolicy.RUN_AFTER, job_config.OverlapPolicy.FIRST),
    (job_config.GapPolicy.SKIP, job_config.OverlapPolicy.BOTH),
)


def ticks_of_day(
    text: str, day: dt.date, gap: job_config.GapPolicy, overlap: job_config.OverlapPolicy
) -> list[str]:
    """Return local times on a day in New York, with their offsets."""
    parsed = cron.parse(text, format=job_config.CronFormat.STANDARD, hash_id="")
    start = int(dt.datetime.combine(day, dt.time(), NEW_YORK).timestamp())
    found = []
    tick = parsed.next_after(start - 1, NEW_YORK, gap=gap, overlap=overlap)
    while tick is not None:
        moment = dt.datetime.fromtimestamp(tick, NEW_YORK)
        if moment.date() != day:
            break
        found.append(moment.strftime("%H:%M %z"))
        tick = parsed.next_after(tick, NEW_YORK, gap=gap, overlap=overlap)
    return found


def test_table_of_clock_changes_matches_the_code() -> None:
    rows = ROW.findall(PAGE.read_text())
    assert len(rows) == 6
    for number, month, text, *columns in rows:
        day = dt.date(2026, 3 if month == "March" else 11, int(number))
        for column, (gap, overlap) in zip(columns, POLICIES, strict=True):
            said = columns[0] if column == "the same" else column
            wanted = re.findall(r"\d\d:\d\d [+-]\d{4}", said)
            found = ticks_of_day(text, day, gap, overlap)
            if text == "30 * * * *":  # the page shows those around the change
                assert "\n".join(wanted) in "\n".join(found)
            else:
                assert found == wanted, (number, month, text)


@pytest.mark.parametrize("text", ["60 * * * *", "0 0 31 2 *"])
def test_messages_match_the_code(text: str) -> None:
    problem = cron.problem(text, format=job_config.CronFormat.STANDARD, hash_id="")
    assert f"spec.schedule.cron.expression: {problem}\n" in PAGE.read_text()


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
    ],
)
def test_names_match_the_code(name: str, same: str) -> None:
    assert any(
        f"`{name}`" in line and f"| `{same}` |" in line for line in PAGE.read_text().splitlines()
    )
    parsed = [
        cron.parse(text, format=job_config.CronFormat.STANDARD, hash_id="") for text in (name, same)
    ]
    assert len({(each.minutes, each.hours, each.days, each.months) for each in parsed}) == 1
