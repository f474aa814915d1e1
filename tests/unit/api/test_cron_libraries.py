"""Cron expressions compared with cronsim and croniter: the same ticks, except for DIFFERENCES.

Each expression consists of parts that all libraries read alike. Intended differences are in one
table, which a test checks and docs/reference/cron.md explains.
"""

import datetime as dt
import zoneinfo
from collections.abc import Callable, Iterator
from typing import NamedTuple

import croniter
import cronsim
import pytest
from hypothesis import assume, given
from hypothesis import strategies as some

from kilnwork.api import cron, job_config

Gap = job_config.GapPolicy
Overlap = job_config.OverlapPolicy

TICKS = 12
"""How many ticks of an expression are compared."""

MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


def ours(
    text: str,
    start: dt.datetime,
    *,
    gap: Gap = Gap.RUN_AFTER,
    overlap: Overlap = Overlap.FIRST,
) -> list[int] | str:
    """Return the first ticks after `start`, in its zone; or the error."""
    try:
        parsed = cron.parse(text, format=job_config.CronFormat.STANDARD, hash_id="a/b")
    except cron.InvalidCron as error:
        return f"refused: {error}"
    assert start.tzinfo is not None
    found: list[int] = []
    after: int | None = int(start.timestamp())
    while len(found) < TICKS:
        assert after is not None
        after = parsed.next_after(after, start.tzinfo, gap=gap, overlap=overlap)
        if after is None:
            break
        found.append(after)
    return found


def by_cronsim(text: str, start: dt.datetime) -> list[int] | str:
    """Return the ticks of cronsim, which has no years, and may return a second twice after a
    gap.
    """
    try:
        moments = cronsim.CronSim(text, start)
    except cronsim.CronSimError as error:
        return f"refused: {error}"
    return first_ticks(int(moment.timestamp()) for moment in moments)


def by_croniter(text: str, start: dt.datetime) -> list[int] | str:
    """Return the ticks of croniter, whose fields are reordered to our order."""
    fields = text.split()
    if len(fields) == 6:
        text = f"0 {text}"
    try:
        found = croniter.croniter(
            text, start, second_at_beginning=True, max_years_between_matches=130
        )
    except croniter.CroniterError as error:
        return f"refused: {error}"

    def moments() -> Iterator[int]:
        while True:
            try:
                yield int(found.get_next(float))
            except croniter.CroniterBadDateError:
                return

    return first_ticks(moments())


def first_ticks(ticks: Iterator[int]) -> list[int]:
    found: list[int] = []
    for tick in ticks:
        if tick >= END:
            break
        if tick not in found:
            found.append(tick)
        if len(found) == TICKS:
            break
    return found


END = int(dt.datetime(2100, 1, 1, tzinfo=dt.UTC).timestamp())


def numbers(low: int, high: int, names: list[str] | None = None) -> some.SearchStrategy[str]:
    """A number, sometimes by its name."""
    plain = some.integers(low, high).map(str)
    if not names:
        return plain
    first = 1 if len(names) == 12 else 0
    return plain | some.integers(low, high).map(lambda value: names[(value - first) % len(names)])


def spans(low: int, high: int) -> some.SearchStrategy[str]:
    """A range of at least two, sometimes with a step."""
    pairs = some.lists(some.integers(low, high), min_size=2, max_size=2, unique=True).map(sorted)
    steps = some.just("") | some.integers(1, high).map(lambda step: f"/{step}")
    return some.builds(lambda pair, step: f"{pair[0]}-{pair[1]}{step}", pairs, steps)


def starts(low: int, high: int) -> some.SearchStrategy[str]:
    """A number with a step to the end of the field."""
    return some.builds(
        lambda start, step: f"{start}/{step}",
        some.integers(low, high),
        some.integers(1, high),
    )


def stars(high: int) -> some.SearchStrategy[str]:
    return some.integers(2, high).map(lambda step: f"*/{step}")


def lists(item: some.SearchStrategy[str], size: int = 3) -> some.SearchStrategy[str]:
    return some.lists(item, min_size=1, max_size=size, unique=True).map(",".join)


SECONDS = some.just("*") | stars(59) | lists(numbers(0, 59) | spans(0, 59) | starts(0, 59))
HOURS = some.just("*") | stars(23) | lists(numbers(0, 23) | spans(0, 23) | starts(0, 23))
MONTH = some.just("*") | stars(12) | lists(numbers(1, 12, MONTHS) | spans(1, 12) | starts(1, 12))
DAY_ITEMS = numbers(1, 31) | spans(1, 31) | starts(1, 31)
WEEKDAY_ITEMS = numbers(0, 7, WEEKDAYS) | spans(0, 7)

CRONSIM_DAY = lists(DAY_ITEMS | some.sampled_from(["L", "LW"]))
CRONSIM_WEEKDAY = lists(
    WEEKDAY_ITEMS
    | some.integers(0, 7).map(lambda day: f"{day}L")
    | some.builds(lambda day, which: f"{day}#{which}", some.integers(0, 7), some.integers(1, 5))
)
CRONSIM_DAYS = (
    some.tuples(some.just("*") | stars(31) | CRONSIM_DAY, some.just("*"))
    | some.tuples(some.just("*"), stars(7) | CRONSIM_WEEKDAY)
    | some.tuples(CRONSIM_DAY, CRONSIM_WEEKDAY)
)

CRONITER_DAY = lists(DAY_ITEMS | some.just("L")) | some.integers(1, 28).map(lambda day: f"{day}W")
CRONITER_WEEKDAY = (
    lists(WEEKDAY_ITEMS)
    | some.integers(0, 6).map(lambda day: f"{day}L")
    | lists(
        some.builds(lambda day, which: f"{day}#{which}", some.integers(0, 6), some.integers(1, 5))
    )
)
ANY_DAY = some.sampled_from(["*", "?"])
CRONITER_DAYS = (
    some.tuples(ANY_DAY | stars(31) | CRONITER_DAY, ANY_DAY)
    | some.tuples(ANY_DAY, stars(7) | CRONITER_WEEKDAY)
    | some.tuples(lists(DAY_ITEMS | some.just("L")), lists(WEEKDAY_ITEMS))
)
YEARS = some.just("*") | lists(numbers(2020, 2099) | spans(2020, 2099))

STARTS = some.integers(
    int(dt.datetime(2025, 1, 1, tzinfo=dt.UTC).timestamp()),
    int(dt.datetime(2035, 1, 1, tzinfo=dt.UTC).timestamp()),
)
ZONES = ["America/New_York", "Europe/Zurich", "Australia/Lord_Howe", "America/Santiago"]


@given(start=STARTS, minute=SECONDS, hour=HOURS, days=CRONSIM_DAYS, month=MONTH)
def test_same_ticks_as_cronsim(
    start: int, minute: str, hour: str, days: tuple[str, str], month: str
) -> None:
    text = f"{minute} {hour} {days[0]} {month} {days[1]}"
    moment = dt.datetime.fromtimestamp(start, dt.UTC)
    wanted = by_cronsim(text, moment)
    found = ours(text, moment)
    if isinstance(wanted, str) or isinstance(found, str):
        # cronsim looks at the longest month only: it refuses less
        assert isinstance(found, str)
        assert "never comes" in found
        assert not isinstance(wanted, list) or not wanted
    else:
        assert found == wanted[: len(found)]
        assert len(found) == len(wanted)


@given(
    start=STARTS,
    second=SECONDS,
    minute=SECONDS,
    hour=HOURS,
    days=CRONSIM_DAYS,
)
def test_same_seconds_as_cronsim(
    start: int, second: str, minute: str, hour: str, days: tuple[str, str]
) -> None:
    text = f"{second} {minute} {hour} {days[0]} * {days[1]}"
    moment = dt.datetime.fromtimestamp(start, dt.UTC)
    wanted = by_cronsim(text, moment)
    assert ours(f"{text} *", moment) == wanted


@given(
    start=some.integers(-40 * 3600, 3600),
    change=some.sampled_from(
        [
            "2026-03-08T07:00Z",
            "2026-11-01T06:00Z",
            "2026-03-29T01:00Z",
            "2026-10-25T01:00Z",
            "2026-04-04T15:00Z",
            "2026-10-03T15:30Z",
            "2026-04-05T03:00Z",
            "2026-09-06T04:00Z",
        ]
    ),
    zone=some.sampled_from(ZONES),
    minute=lists(numbers(0, 59) | spans(0, 59)),
    hour=some.just("*") | lists(numbers(0, 5) | spans(0, 5)),
)
def test_same_ticks_as_cronsim_where_clocks_change(
    start: int, change: str, zone: str, minute: str, hour: str
) -> None:
    """The default policies are those of cronsim (and Debian), for fixed hours and for every
    hour.
    """
    at = int(dt.datetime.fromisoformat(change).timestamp()) + start
    moment = dt.datetime.fromtimestamp(at, zoneinfo.ZoneInfo(zone))
    assume(moment.fold == 0)  # from within the second pass cronsim starts over
    assume(hour != "*" or "Lord_Howe" not in zone)  # see DIFFERENCES
    text = f"{minute} {hour} * * *"
    assert ours(text, moment) == by_cronsim(text, moment)


@given(
    start=STARTS,
    second=SECONDS,
    minute=SECONDS,
    hour=HOURS,
    days=CRONITER_DAYS,
    month=MONTH,
    year=YEARS,
)
def test_same_ticks_as_croniter(
    start: int,
    second: str,
    minute: str,
    hour: str,
    days: tuple[str, str],
    month: str,
    year: str,
) -> None:
    weekday = days[1]
    text = f"{second} {minute} {hour} {days[0]} {month} {weekday} {year}"
    theirs = f"L{weekday[0]}" if weekday.endswith("L") else weekday
    moment = dt.datetime.fromtimestamp(start, dt.UTC)
    found = ours(text, moment)
    if isinstance(found, str):
        assert "never comes" in found
        found = []
    assert found == by_croniter(text.replace(f" {weekday} ", f" {theirs} "), moment)


class Difference(NamedTuple):
    """An expression that another library reads differently, on purpose."""

    text: str
    ours: list[str] | str
    """First local ticks, or a part of what is wrong."""
    library: Callable[[str, dt.datetime], list[int] | str]
    theirs: list[str] | str
    why: str
    start: str = "2026-01-01T00:00"
    zone: str = "UTC"


DIFFERENCES = [
    # cronsim: syntax that it does not have
    Difference("0 0 15W * *", ["2026-01-15T00:00"], by_cronsim, "Bad day-of-month", "no W"),
    Difference("0 0 ? * 1", ["2026-01-05T00:00"], by_cronsim, "Bad day-of-month", "no ?"),
    Difference("H 0 * * *", ["2026-01-01T00:41"], by_cronsim, "Bad minute", "no H"),
    Difference("@daily", ["2026-01-02T00:00"], by_cronsim, "Wrong number", "no names with @"),
    Difference(
        "0 0 1 1 * 2030",
        ["2030-01-01T00:00"],
        by_cronsim,
        "Bad day-of-week",
        "seconds first, no year",
    ),
    Difference(
        "0 0 * * FRI-SUN", ["2026-01-02T00:00"], by_cronsim, "Bad day-of-week", "Sunday is 0"
    ),
    # cronsim: read differently
    Difference(
        "0 0 */2 * 1",
        ["2026-01-03T00:00", "2026-01-05T00:00", "2026-01-07T00:00"],
        by_cronsim,
        ["2026-01-05T00:00", "2026-01-19T00:00", "2026-02-09T00:00"],
        "a day with a step chooses days, so either is enough; both must match there",
    ),
    Difference(
        "0 0 * * 1/2",
        ["2026-01-02T00:00", "2026-01-05T00:00", "2026-01-07T00:00"],
        by_cronsim,
        ["2026-01-02T00:00", "2026-01-04T00:00", "2026-01-05T00:00"],
        "a week ends with Saturday, 6; there with 7, which is Sunday again",
    ),
    Difference(
        "5-5/10 0 * * *",
        ["2026-01-01T00:05", "2026-01-02T00:05"],
        by_cronsim,
        ["2026-01-01T00:05", "2026-01-01T00:15"],
        "a range ends where it says; there a range of one has no end",
    ),
    Difference(
        "*/90 * * * *",
        "a step may be 1 to 59",
        by_cronsim,
        ["2026-01-01T01:00"],
        "a step that never comes is a mistake",
    ),
    Difference(
        "*/30 2 * * *",
        ["2026-03-08T03:00", "2026-03-09T02:00", "2026-03-09T02:30"],
        by_cronsim,
        ["2026-03-09T02:00", "2026-03-09T02:30", "2026-03-10T02:00"],
        "only a schedule of every hour follows real time; there any minute or hour with a * does",
        "2026-03-08T00:00",
        "America/New_York",
    ),
    Difference(
        "0 */2 * * *",
        ["2026-03-08T03:00", "2026-03-08T04:00"],
        by_cronsim,
        ["2026-03-08T04:00", "2026-03-08T06:00"],
        "as above",
        "2026-03-08T00:00",
        "America/New_York",
    ),
    Difference(
        "30 * * * *",
        ["2026-04-05T00:30", "2026-04-05T01:30", "2026-04-05T01:30"],
        by_cronsim,
        ["2026-04-05T00:30", "2026-04-05T01:30", "2026-04-05T02:30"],
        "half an hour that comes twice is not stepped over",
        "2026-04-05T00:00",
        "Australia/Lord_Howe",
    ),
    # croniter: syntax that it does not have, or we do not
    Difference("0 0 * * 5L", ["2026-01-30T00:00"], by_croniter, "not acceptable", "it writes L5"),
    Difference("0 0 * * L5", "day of week: 'L5'", by_croniter, ["2026-01-30T00:00"], "we write 5L"),
    Difference("0 0 LW * *", ["2026-01-30T00:00"], by_croniter, "not acceptable", "no LW"),
    Difference("0 0 1,15W * *", ["2026-01-15T00:00"], by_croniter, "single day", "W in lists"),
    Difference("0 0 * * 1,5#3", ["2026-01-05T00:00"], by_croniter, "mixing", "# in lists"),
    Difference("0 22-2 * * *", "write 22-23,0-2", by_croniter, ["2026-01-01T01:00"], "no wrapping"),
    # croniter: read differently
    Difference(
        "5-5/10 0 * * *",
        ["2026-01-01T00:05", "2026-01-02T00:05"],
        by_croniter,
        ["2026-01-01T00:10", "2026-01-01T00:20"],
        "a range of one is that one",
    ),
    Difference(
        "0 0 31W * *",
        ["2026-01-30T00:00", "2026-03-31T00:00"],
        by_croniter,
        ["2026-01-30T00:00", "2026-02-27T00:00"],
        "a month without that day has none, as in Furiko and Quartz",
    ),
    Difference(
        "0 0 15W * 1",
        ["2026-01-05T00:00", "2026-01-12T00:00"],
        by_croniter,
        ["2026-01-15T00:00", "2026-02-16T00:00"],
        "either day is enough; there W makes the day of the week be ignored",
    ),
    Difference(
        "0 0 15 * 1#1",
        ["2026-01-05T00:00", "2026-01-15T00:00"],
        by_croniter,
        [],
        "either day is enough; there # beside a day finds nothing",
    ),
    Difference(
        "*/90 * * * *",
        "a step may be 1 to 59",
        by_croniter,
        ["2026-01-01T01:00"],
        "a step that never comes is a mistake",
    ),
    Difference("0 0 31 2 *", "never comes", by_croniter, [], "refused at once; there when used"),
    Difference(
        "30 1 * * *",
        ["2026-11-01T01:30", "2026-11-02T01:30"],
        by_croniter,
        ["2026-11-01T01:30", "2026-11-01T01:30"],
        "once where clocks repeat a time, unless daylightSaving.overlap is Both",
        "2026-11-01T00:00",
        "America/New_York",
    ),
]


@pytest.mark.parametrize(
    "case", DIFFERENCES, ids=lambda case: f"{case.library.__name__} {case.text}"
)
def test_differences_are_as_listed(case: Difference) -> None:
    zone = zoneinfo.ZoneInfo(case.zone)
    start = dt.datetime.fromisoformat(case.start).replace(tzinfo=zone)
    for wanted, found in (
        (case.ours, ours(case.text, start)),
        (case.theirs, case.library(case.text, start)),
    ):
        if isinstance(wanted, str):
            assert isinstance(found, str)
            assert wanted in found
        else:
            assert isinstance(found, list), found
            times = [dt.datetime.fromtimestamp(tick, zone).isoformat()[:16] for tick in found]
            assert times[: max(1, len(wanted))] == wanted
