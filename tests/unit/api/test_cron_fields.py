"""Fields of cron expressions, each by itself."""

import pytest

from kilnwork.api import cron_fields

DAY, WEEKDAY, MONTH, HOUR = (
    cron_fields.DAY,
    cron_fields.WEEKDAY,
    cron_fields.MONTH,
    cron_fields.HOUR,
)


def parse(text: str, field: cron_fields.Field) -> cron_fields.Numbers:
    return cron_fields.parse(text, field, hash_id="a/b")


@pytest.mark.parametrize(
    ("text", "field", "values"),
    [
        ("5", HOUR, (5,)),
        ("1-3,2", HOUR, (1, 2, 3)),
        ("20/2", HOUR, (20, 22)),
        ("*/12", HOUR, (0, 12)),
        ("jan,DEC", MONTH, (1, 12)),
        ("FRI-SUN", WEEKDAY, (0, 5, 6)),
        ("7", WEEKDAY, (0,)),
        ("1", cron_fields.QUARTZ_WEEKDAY, (0,)),
    ],
)
def test_values_of_a_field(text: str, field: cron_fields.Field, values: tuple[int, ...]) -> None:
    assert parse(text, field).values == values


def test_only_a_bare_star_leaves_days_to_the_other_field() -> None:
    assert parse("*", DAY).any_
    assert parse("?", DAY).any_
    assert not parse("*/2", DAY).any_


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        ("24", HOUR, "hour: '24' is not understood: it may be 0-23"),
        ("5,x", HOUR, "'x' in '5,x'"),
        ("5-3", HOUR, "write 5-23,0-3"),
        ("*/0", HOUR, "a step may be 1 to 23"),
        ("L", HOUR, "is not understood"),
        ("5#6", WEEKDAY, "is not understood"),
    ],
)
def test_invalid_fields_are_refused(text: str, field: cron_fields.Field, message: str) -> None:
    with pytest.raises(cron_fields.InvalidCron) as refused:
        parse(text, field)
    assert message in str(refused.value)


def days(by_day: str, by_weekday: str) -> list[int]:
    chosen = cron_fields.Days.of(parse(by_day, DAY), parse(by_weekday, WEEKDAY))
    bits = chosen.in_month(2026, 2)  # begins and ends with a weekend: Sunday 1 to Saturday 28
    return [day for day in range(32) if bits >> day & 1]


@pytest.mark.parametrize(
    ("by_day", "by_weekday", "found"),
    [
        ("*", "*", list(range(1, 29))),
        ("L", "?", [28]),
        ("LW", "?", [27]),
        ("1W", "?", [2]),
        ("15W", "?", [16]),
        ("31W", "?", []),
        ("*", "5L", [27]),
        ("*", "0#2", [8]),
        ("3", "MON", [2, 3, 9, 16, 23]),
    ],
)
def test_days_of_a_month(by_day: str, by_weekday: str, found: list[int]) -> None:
    assert days(by_day, by_weekday) == found


def test_a_hash_stays_in_its_range_and_depends_on_the_owner() -> None:
    made = {cron_fields.parse("H(8-12)", HOUR, hash_id=f"a/{n}").values for n in range(40)}
    assert made == {(8,), (9,), (10,), (11,), (12,)}
    assert parse("H", HOUR) == parse("H", HOUR)
    assert parse("H/6", HOUR).values in {(n, n + 6, n + 12, n + 18) for n in range(6)}
