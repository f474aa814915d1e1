"""Cron expressions: the times of each form, refused forms, how far ticks are found and counted."""

import datetime as dt
import itertools
import timeit
import zoneinfo

import pytest

from kilnwork.api import cron, job_config

Gap = job_config.GapPolicy
Overlap = job_config.OverlapPolicy
STANDARD, QUARTZ = job_config.CronFormat.STANDARD, job_config.CronFormat.QUARTZ
START = "2026-01-01T00:00:00"  # a Thursday


def parse(
    text: str, *, style: job_config.CronFormat = STANDARD, hash_id: str = "default/report"
) -> cron.CronExpression:
    return cron.parse(text, format=style, hash_id=hash_id)


def seconds(text: str) -> int:
    moment = dt.datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp())


def ticks(
    expression: cron.CronExpression,
    count: int,
    *,
    start: str = START,
    zone: dt.tzinfo = dt.UTC,
    gap: Gap = Gap.RUN_AFTER,
    overlap: Overlap = Overlap.FIRST,
) -> list[str]:
    """Return the first ticks from `start` on, in `zone`."""
    found: list[str] = []
    tick = expression.next_after(seconds(start) - 1, zone, gap=gap, overlap=overlap)
    while tick is not None and len(found) < count:
        found.append(dt.datetime.fromtimestamp(tick, zone).isoformat().removesuffix("+00:00"))
        tick = expression.next_after(tick, zone, gap=gap, overlap=overlap)
    return found


def dates(text: str, count: int, *, style: job_config.CronFormat = STANDARD) -> list[str]:
    """Return the first days of 2026 that an expression matches, as month-day."""
    return [tick[5:10] for tick in ticks(parse(text, style=style), count)]


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ("* * * * *", "2026-01-01T00:00:00", "2026-01-01T00:01:00"),
        ("5 * * * *", "2026-01-01T00:05:00", "2026-01-01T01:05:00"),
        ("50/5 * * * *", "2026-01-01T00:50:00", "2026-01-01T00:55:00"),
        ("10-20/7 4 * * *", "2026-01-01T04:10:00", "2026-01-01T04:17:00"),
        ("0 4,2 * * *", "2026-01-01T02:00:00", "2026-01-01T04:00:00"),
        ("  0\t4  * * * ", "2026-01-01T04:00:00", "2026-01-02T04:00:00"),
        ("0 0 1 1 * 2030", "2030-01-01T00:00:00", None),
        ("0 0 1 1 * 2030-2040/5", "2030-01-01T00:00:00", "2035-01-01T00:00:00"),
        ("30 0 0 1 1 * *", "2026-01-01T00:00:30", "2027-01-01T00:00:30"),
        ("*/40 * * * * * *", "2026-01-01T00:00:00", "2026-01-01T00:00:40"),
        ("@yearly", "2026-01-01T00:00:00", "2027-01-01T00:00:00"),
        ("@annually", "2026-01-01T00:00:00", "2027-01-01T00:00:00"),
        ("@monthly", "2026-01-01T00:00:00", "2026-02-01T00:00:00"),
        ("@weekly", "2026-01-04T00:00:00", "2026-01-11T00:00:00"),
        ("@daily", "2026-01-01T00:00:00", "2026-01-02T00:00:00"),
        ("@Midnight", "2026-01-01T00:00:00", "2026-01-02T00:00:00"),
        ("@hourly", "2026-01-01T00:00:00", "2026-01-01T01:00:00"),
        ("0 0 29 2 *", "2028-02-29T00:00:00", "2032-02-29T00:00:00"),
        ("0 0 1 1 * 2020", None, None),
        ("59 59 23 31 12 ? 2099", "2099-12-31T23:59:59", None),
    ],
)
def test_times_of_an_expression(text: str, first: str | None, second: str | None) -> None:
    wanted = [tick for tick in (first, second) if tick is not None]
    assert ticks(parse(text), 2) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0 0 ? * MON", ["01-05", "01-12"]),
        ("0 0 * * 0", ["01-04", "01-11"]),
        ("0 0 * * 7", ["01-04", "01-11"]),
        ("0 0 * * 5-7", ["01-02", "01-03", "01-04", "01-09"]),
        ("0 0 * * fri-sun", ["01-02", "01-03", "01-04", "01-09"]),
        ("0 0 * * 1/2", ["01-02", "01-05", "01-07", "01-09"]),
        ("0 0 * * 7/3", ["01-03", "01-04", "01-07", "01-10"]),
        ("0 0 1 Feb,may-JUL/2 *", ["02-01", "05-01", "07-01"]),
        ("0 0 L * *", ["01-31", "02-28", "03-31", "04-30"]),
        ("0 0 LW * *", ["01-30", "02-27", "03-31", "04-30", "05-29"]),
        ("0 0 15W * *", ["01-15", "02-16", "03-16", "04-15"]),
        ("0 0 1W * *", ["01-01", "02-02", "03-02", "04-01", "05-01"]),
        ("0 0 31W * *", ["01-30", "03-31", "05-29"]),
        ("0 0 28W 2 *", ["02-27"]),
        ("0 0 1,15w,L 2 *", ["02-01", "02-16", "02-28"]),
        ("0 0 * * 5L", ["01-30", "02-27", "03-27"]),
        ("0 0 * * FRIL,7L", ["01-25", "01-30", "02-22"]),
        ("0 0 * * 5#3", ["01-16", "02-20", "03-20"]),
        ("0 0 * * 5#5", ["01-30", "05-29"]),
        ("0 0 * * THU#1,1", ["01-01", "01-05", "01-12"]),
        ("0 0 13 * FRI", ["01-02", "01-09", "01-13", "01-16"]),  # either is enough
        ("0 0 */10 * 1", ["01-01", "01-05", "01-11", "01-12"]),
        ("0 0 */1 * 1", ["01-01", "01-02", "01-03"]),  # a day with a step chooses, as in Furiko
        ("0 0 ** * 1", ["01-05", "01-12"]),  # so does Furiko read more than one star
        ("0 0 ?? * ??", ["01-01", "01-02"]),
        ("0 0 /10 * *", ["01-01", "01-11"]),  # and a step alone
        ("0 0 13 june,March Friday", ["03-06", "03-13", "03-20"]),
        ("0 0 * * fridayL", ["01-30", "02-27"]),
        ("0 0 ? april-May WEDNESDAY#1", ["04-01", "05-06"]),
        ("0 0 1,* * 1", ["01-05", "01-12"]),
        ("0 0 31 2 1", ["02-02", "02-09"]),
    ],
)
def test_days_of_an_expression(text: str, wanted: list[str]) -> None:
    assert dates(text, len(wanted)) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0 0 ? * 1", ["01-04", "01-11"]),
        ("0 0 ? * SUN", ["01-04", "01-11"]),
        ("0 0 ? * 7", ["01-03", "01-10"]),
        ("0 0 ? * 6L", ["01-30", "02-27"]),
        ("0 0 ? * 6#3", ["01-16", "02-20"]),
        ("0 0 ? * 2-6", ["01-01", "01-02", "01-05"]),
        ("0 0 ? * FRI-SUN", ["01-02", "01-03", "01-04", "01-09"]),
        ("0 0 ? * 1/3", ["01-03", "01-04", "01-07"]),
    ],
)
def test_days_of_the_week_in_quartz(text: str, wanted: list[str]) -> None:
    assert dates(text, len(wanted), style=QUARTZ) == wanted


@pytest.mark.parametrize(
    ("text", "field", "detail"),
    [
        ("60 * * * *", "minute: '60'", "it may be 0-59"),
        ("* 24 * * *", "hour: '24'", "it may be 0-23"),
        ("* * 0 * *", "day of month: '0'", "it may be 1-31"),
        ("* * 32W * *", "day of month: '32W'", "it may be 1-31"),
        ("* * * 13 *", "month: '13'", "it may be 1-12 or JAN-DEC"),
        ("* * * 0 *", "month: '0'", "it may be 1-12"),
        ("* * * * 8", "day of week: '8'", "it may be 0-7 or SUN-SAT"),
        ("* * * * 5#6", "day of week: '5#6'", "5L or 5#3"),
        ("* * * * 5#0", "day of week: '5#0'", "5L or 5#3"),
        ("* * * * L", "day of week: 'L'", "5L or 5#3"),
        ("* * * * 15W", "day of week: '15W'", "it may be"),
        ("* * 5L * *", "day of month: '5L'", "L, LW or 15W"),
        ("* * L-3 * *", "day of month: 'L-3'", "L, LW or 15W"),
        ("* * * * * 1969", "year: '1969'", "it may be 1970-2099"),
        ("* * * * * 2100", "year: '2100'", "it may be 1970-2099"),
        ("61 * * * * * *", "second: '61'", "it may be 0-59"),
        ("1,,2 * * * *", "minute: '' in '1,,2'", "it may be 0-59"),
        ("1,2, * * * *", "minute: '' in '1,2,'", "it may be 0-59"),
        ("1-2-3 * * * *", "minute: '1-2-3'", "it may be 0-59"),
        ("-1 * * * *", "minute: '-1'", "it may be 0-59"),
        ("+1 * * * *", "minute: '+1'", "it may be 0-59"),
        ("1.5 * * * *", "minute: '1.5'", "it may be 0-59"),
        ("*5 * * * *", "minute: '*5'", "it may be 0-59"),
        ("*** * * * *", "minute: '***'", "it may be 0-59"),
        ("*? * * * *", "minute: '*?'", "it may be 0-59"),
        ("/ * * * *", "minute: '/'", "it may be 0-59"),
        ("*-5 * * * *", "minute: '*-5'", "it may be 0-59"),
        ("*/0 * * * *", "minute: '*/0'", "a step may be 1 to 59"),
        ("*/60 * * * *", "minute: '*/60'", "a step may be 1 to 59"),
        ("*/ * * * *", "minute: '*/'", "it may be 0-59"),
        ("5/5/5 * * * *", "minute: '5/5/5'", "it may be 0-59"),
        ("0 22-2 * * *", "hour: '22-2'", "write 22-23,0-2"),
        ("* * * nov-Feb *", "month: 'nov-Feb'", "write 11-12,1-2"),
        ("* * * JANU *", "month: 'JANU'", "JAN-DEC"),
        ("* * * * JAN", "day of week: 'JAN'", "SUN-SAT"),
        ("MON * * * *", "minute: 'MON'", "it may be 0-59"),
        ("٣ * * * *", "minute: '٣'", "it may be 0-59"),
        ("00000001 * * * *", "minute: '00000001'", "it may be 0-59"),
        ("H(5) * * * *", "minute: 'H(5)'", "it may be 0-59"),
        ("H(5-70) * * * *", "minute: 'H(5-70)'", "it may be 0-59"),
        ("H(9-5) * * * *", "minute: 'H(9-5)'", "the range ends before it begins"),
        ("H-5 * * * *", "minute: 'H-5'", "it may be 0-59"),
        ("H/0 * * * *", "minute: 'H/0'", "a step may be 1 to 59"),
        ("", "'' has 0 fields", "write 5"),
        ("* * * *", "'* * * *' has 4 fields", "write 5"),
        ("* * * * * * * *", "has 8 fields", "write 5"),
        ("@reboot", "'@reboot' is not known", "@hourly"),
        ("@every 5m", "has 2 fields", "write 5"),
        ("* " * 300, "it has 600 characters", "512"),
        ("0 0 31 2 *", "day of month '31' never comes in month '2'", "these months have"),
        ("0 0 31 2,4,6,9,11 *", "day of month '31' never comes", "these months have"),
        ("0 0 29 2 * 2026,2027", "never comes in month '2' of year '2026,2027'", "have"),
        ("0 0 31W 4 ?", "day of month '31W' never comes", "these months have"),
        ("0 0 * 2 0#5 2026", "day of week '0#5' never", "these months have"),
    ],
)
def test_refusal_names_the_field_and_the_allowed_values(text: str, field: str, detail: str) -> None:
    message = cron.problem(text, format=STANDARD, hash_id="a/b")
    assert message is not None
    assert field in message
    assert detail in message
    with pytest.raises(cron.InvalidCron):
        parse(text)


def test_quartz_has_no_day_0() -> None:
    assert cron.problem("0 0 * * 0", format=QUARTZ, hash_id="") is not None
    assert cron.problem("0 0 * * 0", format=STANDARD, hash_id="") is None


def test_remedies_of_ranges_are_accepted() -> None:
    assert ticks(parse("0 22-23,0-2 * * *"), 4)[-1] == "2026-01-01T22:00:00"
    assert dates("0 0 1 11-12,1-2 *", 4) == ["01-01", "02-01", "11-01", "12-01"]


def names(count: int) -> list[str]:
    return [f"team-{n % 7}/report-{n}" for n in range(count)]


@pytest.mark.parametrize(
    ("place", "form", "low", "high"),
    [
        (0, "H", 0, 59),
        (1, "H", 0, 59),
        (2, "H", 0, 23),
        (3, "H", 1, 28),
        (4, "H", 1, 12),
        (5, "H", 0, 6),
        (6, "H", 1970, 2099),
        (1, "H(10-19)", 10, 19),
        (2, "h(22-23)", 22, 23),
        (3, "H(29-31)", 29, 31),
        (4, "H(JAN-MAR)", 1, 3),
        (5, "H(MON-FRI)", 1, 5),
    ],
)
def test_hashes_spread_over_their_range_only(place: int, form: str, low: int, high: int) -> None:
    """Facts of Furiko's defects, row 3: days and months are never 0, so every name is accepted."""
    fields = ["0", "0", "0", "?", "*", "?", "*"]
    fields[place] = form
    seen = set()
    for name in names(3000):
        expression = parse(" ".join(fields), hash_id=name)
        (value,) = numbers(expression, place)
        seen.add(value)
    assert seen == set(range(low, high + 1))


def numbers(expression: cron.CronExpression, place: int) -> tuple[int, ...]:
    """Return the values of one of the seven fields of an expression."""
    return (
        expression.seconds,
        expression.minutes,
        expression.hours,
        expression.days.by_day.values,
        expression.months,
        expression.days.by_weekday.values,
        expression.years,
    )[place]


@pytest.mark.parametrize("form", ["H/2", "H/7", "H/12", "H(2-11)/3", "H(3-5)/12"])
@pytest.mark.parametrize("place", [1, 2, 3, 4])
def test_steps_of_hashes_start_anywhere_and_keep_their_distance(place: int, form: str) -> None:
    fields = ["0", "0", "0", "?", "*", "?", "*"]
    fields[place] = form
    step = int(form.partition("/")[2])
    starts = set()
    for name in names(500):
        values = numbers(parse(" ".join(fields), hash_id=name), place)
        assert values
        assert {after - before for before, after in itertools.pairwise(values)} <= {step}
        starts.add(values[0])
    length = 3 if "3-5" in form else step
    assert len(starts) == min(length, 12)


def test_hash_is_stable_and_differs_by_field_and_name() -> None:
    """Golden values: a new release must not move the schedules of all JobConfigs."""
    expression = parse("H H H H H ? *", hash_id="default/nightly")
    found = [numbers(expression, place)[0] for place in range(5)]
    assert found == [10, 40, 3, 25, 4]
    other = parse("H H H H H ? *", hash_id="default/nightly2")
    assert numbers(other, 1) != numbers(expression, 1)


def test_seconds_are_hashed_in_seven_fields_only() -> None:
    for name in names(50):
        assert parse("H H * * *", hash_id=name).seconds == (0,)
        assert parse("H H * * * *", hash_id=name).seconds == (0,)
    assert len({parse("H H * * * ? *", hash_id=name).seconds for name in names(50)}) > 10


def test_validation_hashes_the_real_name() -> None:
    """Table (c), row 3: admission of Furiko hashed an empty name, and the controller another."""
    for name in names(200):
        for text in ("H H H/31 * *", "H H * H/12 *", "0 0 H H *", "0 0 H(1-31) 2 *"):
            problem = cron.problem(text, format=STANDARD, hash_id=name)
            if problem is None:
                assert parse(text, hash_id=name).next_after(
                    seconds(START), dt.UTC, gap=Gap.SKIP, overlap=Overlap.BOTH
                )
            else:
                assert text == "0 0 H(1-31) 2 *"
                assert "never comes" in problem


@pytest.mark.parametrize(
    ("name", "hours"),
    [
        ("", 0),
        ("Local", 0),
        ("UTC", 0),
        ("GMT", 0),
        ("UTC+8", 8),
        ("UTC+08", 8),
        ("GMT-3:30", -3.5),
        ("UTC+05:30", 5.5),
        ("UTC+0530", 5.5),
        ("UTC-0", 0),
        ("Etc/GMT+5", -5),
        ("Asia/Kathmandu", 5.75),
    ],
)
def test_time_zones(name: str, hours: float) -> None:
    zone = cron.timezone(name)
    assert dt.datetime(2026, 1, 1, tzinfo=zone).utcoffset() == dt.timedelta(hours=hours)
    assert cron.timezone_problem(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "Mars/Olympus",
        "Europe",
        "europe/zurich/",
        "../../etc/passwd",
        "/etc/localtime",
        "localtime",
        "posix/Europe/Zurich",
        "right/UTC",
        "UTC+24",
        "UTC+8:60",
        "UTC+800",
        "UTC+",
        "UTC 8",
        "+08:00",
        "UTC+8:5",
        "Europe/Zürich",
        "UTC\x00",
        "zone.tab",
        "UTC+٣",
        "a" * 5000,
    ],
)
def test_invalid_time_zone_is_refused(name: str) -> None:
    problem = cron.timezone_problem(name)
    assert problem is not None
    assert "Europe/Zurich" in problem
    with pytest.raises(cron.InvalidZone):
        cron.timezone(name)


NEW_YORK = zoneinfo.ZoneInfo("America/New_York")


@pytest.mark.parametrize(
    ("gap", "wanted"),
    [
        (Gap.RUN_AFTER, ["2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00"]),
        (Gap.SKIP, ["2026-03-09T02:30:00-04:00", "2026-03-10T02:30:00-04:00"]),
    ],
)
def test_gap_policy(gap: Gap, wanted: list[str]) -> None:
    """Table (c), row 10: a local time that does not exist."""
    found = ticks(parse("30 2 * * *"), 2, start="2026-03-08T00:00:00-05:00", zone=NEW_YORK, gap=gap)
    assert found == wanted


@pytest.mark.parametrize(
    ("overlap", "wanted"),
    [
        (Overlap.FIRST, ["2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"]),
        (Overlap.BOTH, ["2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00"]),
    ],
)
def test_overlap_policy(overlap: Overlap, wanted: list[str]) -> None:
    """Table (c), row 10: a local time that occurs twice."""
    found = ticks(
        parse("30 1 * * *"), 2, start="2026-11-01T00:00:00-04:00", zone=NEW_YORK, overlap=overlap
    )
    assert found == wanted


def test_hourly_ticks_follow_real_time_when_clocks_change() -> None:
    for text in ("30 * * * *", "30 0-23 * * *", "30 */1 ? * ?"):
        for day in ("2026-03-08T05:00:00Z", "2026-11-01T04:00:00Z"):
            found = [seconds(tick) for tick in ticks(parse(text), 6, start=day, zone=NEW_YORK)]
            assert [after - before for before, after in itertools.pairwise(found)] == [3600] * 5


@pytest.mark.parametrize(
    "text",
    ["0 0 0 1 1 ? 2099", "0 0 29 2 ? 2096", "59 59 23 LW 12 ? 2098,2099", "0 0 ? 2 5#5 2092"],
)
def test_ticks_in_the_far_future_are_found_quickly(text: str) -> None:
    """Table (c), row 8: ticks are not enumerated, however far the next one is."""
    expression = parse(text)
    zone = NEW_YORK

    def find() -> int | None:
        return expression.next_after(0, zone, gap=Gap.RUN_AFTER, overlap=Overlap.FIRST)

    assert (find() or 0) > seconds("2092-01-01T00:00:00")
    assert min(timeit.repeat(find, number=1, repeat=20)) < 0.005


def ticks_between(
    expression: cron.CronExpression,
    after: int,
    until: int,
    *,
    zone: dt.tzinfo,
    gap: Gap,
    overlap: Overlap,
) -> list[int]:
    """Return the ticks of a span, found one after the other."""
    found: list[int] = []
    tick = expression.next_after(after, zone, gap=gap, overlap=overlap)
    while tick is not None and tick <= until:
        found.append(tick)
        tick = expression.next_after(tick, zone, gap=gap, overlap=overlap)
    return found


CHANGES = ["2026-03-08T07:00:00Z", "2026-11-01T06:00:00Z"]
"""When the clocks of New York change in 2026."""


@pytest.mark.parametrize("policies", list(itertools.product(Gap, Overlap)), ids=str)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    "text", ["30 2 * * *", "*/20 1-3 * * *", "30 * * * *", "0 0 8 3 *", "5 30 1,2 1,8 * ? *"]
)
def test_count_is_that_of_the_ticks_found_around_a_change(
    text: str, change: str, policies: tuple[Gap, Overlap]
) -> None:
    expression, (gap, overlap), at = parse(text), policies, seconds(change)
    starts = (-90_000, -5400, -1800, -1, 0, 1, 1799, 1800, 3600, 7200)
    for first, last in itertools.product(starts, (0, 1, 1800, 3599, 3600, 90_000)):
        after, until = at + first, at + last
        found = ticks_between(expression, after, until, zone=NEW_YORK, gap=gap, overlap=overlap)
        counted = expression.count(after, until, NEW_YORK, gap=gap, overlap=overlap)
        assert (first, last, counted) == (first, last, len(found))


@pytest.mark.parametrize(
    ("text", "until", "count"),
    [
        ("0 12 * * *", "2027-01-01T00:00:00", 365),
        ("0 12 1 * *", "2027-01-01T00:00:00", 12),
        ("0 0 1 1 *", "2026-01-01T00:00:00", 0),  # its start is exclusive
        ("0 0 1 1 *", "2027-01-01T00:00:00", 1),  # its end is inclusive
        ("0 0 1 1 *", "2026-12-31T23:59:59", 0),
        ("30 0 12 * * ? *", "2026-01-01T12:00:29", 0),
        ("30 0 12 * * ? *", "2026-01-01T12:00:30", 1),
        ("*/10 * * * * ? *", "2026-01-01T01:00:05", 360),
        ("0 6,18 ? * MON", "2026-01-05T17:59:00", 1),
        ("0 0 29 2 *", "2099-12-31T00:00:00", 18),
        ("0 0 1 1 * 2028", "2099-12-31T00:00:00", 1),
        ("0 0 * * *", "2025-12-31T00:00:00", 0),  # it ends before it begins
    ],
)
def test_count_of_a_span(text: str, until: str, count: int) -> None:
    found = parse(text).count(
        seconds(START), seconds(until), dt.UTC, gap=Gap.SKIP, overlap=Overlap.FIRST
    )
    assert found == count


def test_longest_expression_is_accepted() -> None:
    longest = "0 0 * * *".ljust(cron.MAX_CHARS)
    assert (cron.MAX_CHARS, parse(longest).hours) == (512, (0,))
    with pytest.raises(cron.InvalidCron, match="it has 513 characters: 512 is the most"):
        parse(longest + " ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1", "'1' has 1 field: write 5"),
        ("1 2", "'1 2' has 2 fields: write 5"),
        ("0 0 31 2 *", "day of month '31' never comes in month '2': write a day"),
        (
            "0 0 29 2 0#5 2027",
            "day of month '29' or day of week '0#5' never comes in month '2' of year '2027': write",
        ),
    ],
)
def test_refusal_is_a_sentence(text: str, message: str) -> None:
    found = cron.problem(text, format=STANDARD, hash_id="a/b")
    assert found is not None
    assert found.startswith(message)


def test_no_ticks_before_1970_and_after_2099() -> None:
    every_second = parse("* * * * * * *")
    policies = {"gap": Gap.RUN_AFTER, "overlap": Overlap.FIRST}
    for name in ("UTC", "UTC+14", "GMT-12", "Pacific/Auckland"):
        zone = cron.timezone(name)
        first = every_second.next_after(-(10**12), zone, **policies)  # type: ignore[arg-type]
        assert first is not None
        assert dt.datetime.fromtimestamp(first, zone).isoformat()[:19] == "1970-01-01T00:00:00"
        end = int(dt.datetime(2099, 12, 31, 23, 59, 59, tzinfo=zone).timestamp())
        assert every_second.next_after(end - 1, zone, **policies) == end  # type: ignore[arg-type]
        assert every_second.next_after(end, zone, **policies) is None  # type: ignore[arg-type]
        assert every_second.next_after(10**15, zone, **policies) is None  # type: ignore[arg-type]
