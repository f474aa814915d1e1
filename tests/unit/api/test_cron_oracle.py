"""Ticks around changes of the clocks, compared with an enumeration of every second of real time."""

import datetime as dt
import itertools
import zoneinfo
from collections.abc import Iterator

import msgspec
import pytest

from kilnwork.api import cron, job_config

Gap = job_config.GapPolicy
Overlap = job_config.OverlapPolicy

CHANGES = {
    "America/New_York": ("2026-03-08T07:00Z", "2026-11-01T06:00Z"),
    "Europe/Zurich": ("2026-03-29T01:00Z", "2026-10-25T01:00Z"),
    "Australia/Lord_Howe": ("2026-04-04T15:00Z", "2026-10-03T15:30Z"),  # half an hour
    "Pacific/Apia": ("2011-12-30T10:00Z", "2011-09-24T14:00Z"),  # a day that was left out
    "America/Sao_Paulo": ("2018-11-04T03:00Z", "2018-02-18T02:00Z"),  # at midnight
    "UTC": ("2026-03-08T07:00Z",),
}
"""When clocks change, by zone."""

REACH_S = 5 * 3600
"""How long before and after a change is looked at: more than the hours of EXPRESSIONS."""

EXPRESSIONS = [
    "30 2 * * *",
    "30 1 * * *",
    "0 0 * * *",
    "15,45 1-3 * * *",
    "0 3 * * *",
    "0 * * * *",
    "*/20 * * * *",
    "*/30 */2 * * *",
    "0 12 30 12 * 2011",
    "*/10 59,0,29,30 0-3,23 * * ? *",
    "59 59 1 * * ? *",
    "0 0,30 * * * ? *",
    "* * 2 * * * *",
]


class Second(msgspec.Struct, frozen=True):
    """One second of real time, as a wall clock shows it."""

    at: int
    local: dt.datetime
    again: bool
    """It was shown before."""
    left_out: tuple[dt.datetime, ...]
    """What the clock should have shown in between."""


def walk(zone: dt.tzinfo, start: int, end: int) -> Iterator[Second]:
    """Yield every second from `start` to `end` (exclusive); the clock is followed from a day
    before.
    """
    shown: set[dt.datetime] = set()
    previous = dt.datetime.fromtimestamp(start - 86_401, zone).replace(tzinfo=None)
    for at in range(start - 86_400, end):
        local = dt.datetime.fromtimestamp(at, zone).replace(tzinfo=None, fold=0)
        skipped = max(0, int((local - previous).total_seconds()) - 1)
        left_out = tuple(previous + dt.timedelta(seconds=1 + n) for n in range(skipped))
        if at >= start:
            yield Second(at, local, local in shown, left_out)
        shown.add(local)
        previous = local


def ticks_by_walking(
    expression: cron.CronExpression, seconds: list[Second], gap: Gap, overlap: Overlap
) -> list[int]:
    """Return the ticks according to a direct reading of the rules."""
    every_hour = set(expression.hours) == set(range(24))
    both = every_hour or overlap is Overlap.BOTH
    run_after = not every_hour and gap is Gap.RUN_AFTER
    return [
        second.at
        for second in seconds
        if (matches(expression, second.local) and (both or not second.again))
        or (run_after and any(matches(expression, local) for local in second.left_out))
    ]


def matches(expression: cron.CronExpression, local: dt.datetime) -> bool:
    return (
        local.second in expression.seconds
        and local.minute in expression.minutes
        and local.hour in expression.hours
        and expression.has_day(local.year, local.month, local.day)
    )


@pytest.mark.parametrize("name", CHANGES)
def test_every_second_around_changes_of_the_clocks(name: str) -> None:
    zone = zoneinfo.ZoneInfo(name)
    for text in CHANGES[name]:
        change = int(dt.datetime.fromisoformat(text).timestamp())
        seconds = list(walk(zone, change - REACH_S, change + REACH_S))
        assert name == "UTC" or any(second.left_out or second.again for second in seconds)
        for expression in map(parse, EXPRESSIONS):
            for gap, overlap in itertools.product(Gap, Overlap):
                wanted = ticks_by_walking(expression, seconds, gap, overlap)
                assert_ticks(expression, zone, wanted, change=change, gap=gap, overlap=overlap)


def assert_ticks(
    expression: cron.CronExpression,
    zone: dt.tzinfo,
    wanted: list[int],
    *,
    change: int,
    gap: Gap,
    overlap: Overlap,
) -> None:
    """Assert that `next_after` and `count` agree with `wanted` before, during and after a
    change.
    """
    start, end = change - REACH_S, change + REACH_S
    found = ticks(expression, zone, start=start, end=end, gap=gap, overlap=overlap)
    assert found == wanted, (expression.text, gap, overlap)
    for after in range(start - 1, end, 1777):
        for until in (after + 1, after + 1800, after + 5000, end - 1):
            count = expression.count(after, until, zone, gap=gap, overlap=overlap)
            assert count == len([tick for tick in wanted if after < tick <= until]) or until >= end


def parse(text: str) -> cron.CronExpression:
    return cron.parse(text, format=job_config.CronFormat.STANDARD, hash_id="")


def ticks(
    expression: cron.CronExpression,
    zone: dt.tzinfo,
    *,
    start: int,
    end: int,
    gap: Gap,
    overlap: Overlap,
) -> list[int]:
    found = []
    tick = expression.next_after(start - 1, zone, gap=gap, overlap=overlap)
    while tick is not None and tick < end:
        found.append(tick)
        tick = expression.next_after(tick, zone, gap=gap, overlap=overlap)
    return found
