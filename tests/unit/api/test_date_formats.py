"""Dates in tokens of moment.js: what each token writes, and what is refused."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as some

from kilnwork.api import date_formats

MOMENT = date_formats.parse_rfc3339("2026-03-05T14:07:09.250+05:30")


@pytest.mark.parametrize(
    ("pattern", "written"),
    [
        ("YYYY-MM-DD", "2026-03-05"),
        ("YYYY-MM-DDTHH:mm:ssZ", "2026-03-05T14:07:09+05:30"),
        ("YY YYYY YYYYY YYYYYY Y", "26 2026 02026 +002026 2026"),
        ("M Mo MM MMM MMMM", "3 3rd 03 Mar March"),
        ("Q Qo", "1 1st"),
        ("D Do DD", "5 5th 05"),
        ("DDD DDDo DDDD", "64 64th 064"),
        ("d do dd ddd dddd e E", "4 4th Th Thu Thursday 4 4"),
        ("w wo ww W Wo WW", "10 10th 10 10 10th 10"),
        ("gg gggg ggggg GG GGGG GGGGG", "26 2026 02026 26 2026 02026"),
        ("A a", "PM pm"),
        ("H HH h hh k kk", "14 14 2 02 14 14"),
        ("m mm s ss", "7 07 9 09"),
        ("S SS SSS SSSS SSSSSSSSS", "2 25 250 2500 250000000"),
        ("Z ZZ", "+05:30 +0530"),
        ("X x", "1772699829 1772699829250"),
        ("N NN NNN NNNN NNNNN", "AD AD AD Anno Domini AD"),
        ("y yo yyyy", "2026 2026th 2026"),
        ("Hmm Hmmss hmm hmmss", "1407 140709 207 20709"),
        ("LT LTS", "2:07 PM 2:07:09 PM"),
        ("L l", "03/05/2026 3/5/2026"),
        ("LL ll", "March 5, 2026 Mar 5, 2026"),
        ("LLL lll", "March 5, 2026 2:07 PM Mar 5, 2026 2:07 PM"),
        ("LLLL llll", "Thursday, March 5, 2026 2:07 PM Thu, Mar 5, 2026 2:07 PM"),
        ("[on] dddd [the] Do", "on Thursday the 5th"),
        ("[YYYY]YYYY[]", "YYYY2026"),
        (r"\MM\[\T", "M3[T"),
        ("DD.MM.YYYY, HH’mm", "05.03.2026, 14’07"),
        ("", ""),
    ],
)
def test_token_is_formatted(pattern: str, written: str) -> None:
    assert date_formats.write(MOMENT, pattern) == written


@pytest.mark.parametrize(
    ("time", "pattern", "written"),
    [
        ("2026-01-01T00:05:00-03:30", "h k Z ZZ A", "12 24 -03:30 -0330 AM"),
        ("2026-01-01T12:00:00Z", "h A Z", "12 PM +00:00"),
        ("2027-01-02T00:00:00Z", "gggg-ww GGGG-WW", "2027-01 2026-53"),
        ("2026-12-27T00:00:00Z", "gggg-ww GGGG-WW", "2027-01 2026-52"),
        ("9999-12-31T00:00:00Z", "gggg-ww Q", "10000-01 4"),
        ("0001-01-01T00:00:00Z", "YYYY X", "0001 -62135596800"),
        ("1969-12-31T23:59:59.5Z", "X x", "-1 -500"),
        ("2026-05-11T00:00:00Z", "Do", "11th"),
        ("2026-05-21T00:00:00Z", "Do", "21st"),
        ("2026-05-22T00:00:00Z", "Do", "22nd"),
        ("2026-05-13T00:00:00Z", "Do d", "13th 3"),
        ("2026-05-17T00:00:00Z", "d e E", "0 0 7"),
    ],
)
def test_token_at_its_bounds_is_formatted(time: str, pattern: str, written: str) -> None:
    assert date_formats.write(date_formats.parse_rfc3339(time), pattern) == written


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("%Y-%m-%d", "has %, as in strftime"),
        ("YYYY-MM-DD at HH", "has t, which is no token of moment.js; put text into brackets"),
        ("HH:mm z", "write Z for the offset"),
        ("[open", "has a [ without its ]"),
        ("Y" * 300, "has 300 characters; 256 are allowed"),
    ],
)
def test_invalid_format_is_refused(pattern: str, problem: str) -> None:
    with pytest.raises(date_formats.InvalidFormat) as refused:
        date_formats.check(pattern)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-02",
        "2026-01-02T03:04:05",
        "2026-01-02 03:04:05Z",
        "2026-13-02T03:04:05Z",
        "2026-01-02T25:04:05Z",
        "20260102T030405Z",
        "2026-01-02T03:04:05+0100",
        "2026-W01-1T00:00:00Z",
        "２０２６-01-02T03:04:05Z",
        "now",
    ],
)
def test_invalid_rfc3339_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"RFC 3339|must be in|range"):
        date_formats.parse_rfc3339(text)


OFFSETS = some.integers(-14 * 60, 14 * 60).map(
    lambda minutes: datetime.timezone(datetime.timedelta(minutes=minutes))
)


@given(some.datetimes(timezones=OFFSETS))
def test_full_format_with_offset_round_trips(moment: datetime.datetime) -> None:
    text = date_formats.write(moment, "YYYY-MM-DD[T]HH:mm:ss.SSSSSSZ")
    read = date_formats.parse_rfc3339(text)
    assert (read, read.utcoffset()) == (moment, moment.utcoffset())


@given(some.datetimes(datetime.datetime(2, 1, 1), timezones=OFFSETS))
def test_weeks_agree_with_the_calendar(moment: datetime.datetime) -> None:
    week, year = (int(date_formats.write(moment, token)) for token in ("w", "gggg"))
    # weeks of this locale begin on Sunday, and the one with January 1 is the first
    first = datetime.date(moment.year, 1, 1)
    sunday = first - datetime.timedelta(days=first.isoweekday() % 7)
    if year == moment.year:
        assert (moment.date() - sunday).days // 7 + 1 == week
    else:
        assert (year, week, moment.month) == (moment.year + 1, 1, 12)


@given(some.text(alphabet="YMDdHhmsSZXxLlaAwWGgqQ[]\\T-: %ztRé", max_size=12))
def test_any_format_is_formatted_or_refused(pattern: str) -> None:
    try:
        date_formats.check(pattern)
    except date_formats.InvalidFormat:
        return
    date_formats.write(MOMENT, pattern)
