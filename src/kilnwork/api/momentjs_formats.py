"""Date formats in the tokens of moment.js, such as `YYYY-MM-DD`, and times in RFC 3339.

Used by options of type Date. The tokens are those of
https://momentjs.com/docs/#/displaying/format/ in its locale `en`. Unlike in moment.js, a letter
that is not a token is refused, since it is usually a mistake; `[text]` is always literal text. The
offset of a time is kept: this module knows neither zones nor the current time.
"""

import functools
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from kilnwork.kit import errors

MAX_FORMAT = 256
"""Maximum length of a format, in characters."""

_RFC3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})"
)

_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")

_LOCALIZED = {
    "LTS": "h:mm:ss A",
    "LT": "h:mm A",
    "L": "MM/DD/YYYY",
    "LL": "MMMM D, YYYY",
    "LLL": "MMMM D, YYYY h:mm A",
    "LLLL": "dddd, MMMM D, YYYY h:mm A",
    "l": "M/D/YYYY",
    "ll": "MMM D, YYYY",
    "lll": "MMM D, YYYY h:mm A",
    "llll": "ddd, MMM D, YYYY h:mm A",
}
"""Tokens that stand for several tokens."""

_PIECE = re.compile(
    r"\[(?P<text>[^\[]*)\]"
    r"|\\(?P<escaped>.)"
    r"|(?P<token>[Hh]mm(?:ss)?|Mo|MM?M?M?|Do|DDDo|DD?D?D?|ddd?d?|do?|w[ow]?|W[oW]?|Qo?|N{1,5}"
    r"|YYYYYY|YYYYY|YYYY|YY|Y|y{2,4}|yo?|gg(?:ggg?)?|GG(?:GGG?)?|e|E|a|A|hh?|HH?|kk?|mm?|ss?"
    r"|S{1,9}|x|X|ZZ?|LTS|LT|LL?L?L?|l{1,4})"
    r"|(?P<other>.)",
    re.DOTALL,
)
"""Text in brackets, an escaped character, a token, or any other character. As in moment.js, the
longest token matches first, and brackets extend to the last `]` before the next `[`."""


class InvalidFormat(errors.KilnError):
    """The format is invalid; the message is a sentence without a subject and names the remedy."""


def parse_rfc3339(text: str) -> datetime:
    """Parse a time in RFC 3339 with its offset, to the microsecond. Raises ValueError."""
    if not _RFC3339.fullmatch(text):
        raise ValueError("is no time in RFC 3339")
    return datetime.fromisoformat(text.upper())


def check_format(pattern: str) -> None:
    """Raise InvalidFormat if `pattern` is not a valid format."""
    if len(pattern) > MAX_FORMAT:
        raise InvalidFormat(f"has {len(pattern)} characters; {MAX_FORMAT} are allowed")
    for piece in _PIECE.finditer(pattern):
        _check_piece(piece)


def format_time(moment: datetime, pattern: str) -> str:
    """Format a time according to `pattern`, in its own offset. Raises InvalidFormat."""
    check_format(pattern)
    return "".join(_format_pieces(moment, pattern))


def _format_pieces(moment: datetime, pattern: str) -> Iterator[str]:
    for piece in _PIECE.finditer(pattern):
        token = piece["token"]
        if token is None:
            yield next(text for text in piece.group("text", "escaped", "other") if text is not None)
        elif token in _LOCALIZED:
            yield from _format_pieces(moment, _LOCALIZED[token])
        else:
            yield _TOKENS[token](moment)


def _check_piece(piece: re.Match[str]) -> None:
    other = piece["other"]
    if other is None or not (other.isascii() and (other.isalpha() or other in "[%")):
        return
    if other == "[":
        raise InvalidFormat("has a [ without its ]; to write the character itself, put \\[")
    if other == "%":
        raise InvalidFormat(
            "has %, as in strftime; write tokens such as YYYY-MM-DD HH:mm, or [%] for the character"
        )
    if other == "z":
        raise InvalidFormat("has z, but an offset has no name; write Z for the offset itself")
    if other != "T":  # the usual separator between date and time
        raise InvalidFormat(
            f"has {other}, which is no token of moment.js; put text into brackets, as [{other}]"
        )


def _ordinal(number: int) -> str:
    """Return a number with its English ordinal suffix, as in moment.js."""
    if number % 100 // 10 == 1:
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def _day_of_week(moment: datetime) -> int:
    """Return the day of the week, 0 for Sunday."""
    return moment.isoweekday() % 7


def _day_of_year(moment: datetime) -> int:
    return moment.timetuple().tm_yday


def _week(moment: datetime) -> tuple[int, int]:
    """Return year and week in locale `en`: weeks begin on Sunday, and the first contains January
    1."""
    saturday = _day_of_year(moment) + 6 - _day_of_week(moment)
    length = 366 if moment.year % 4 == 0 and (moment.year % 100 or moment.year % 400 == 0) else 365
    if saturday > length:
        return moment.year + 1, 1
    return moment.year, (saturday - 1) // 7 + 1


def _offset(moment: datetime, separator: str) -> str:
    minutes = round((moment.utcoffset() or timedelta()).total_seconds() / 60)
    sign = "-" if minutes < 0 else "+"
    return f"{sign}{abs(minutes) // 60:02d}{separator}{abs(minutes) % 60:02d}"


def _milliseconds(moment: datetime) -> int:
    return _seconds(moment) * 1000 + moment.microsecond // 1000


def _seconds(moment: datetime) -> int:
    epoch = datetime.fromisoformat("1970-01-01T00:00:00Z")
    return (moment - epoch) // timedelta(seconds=1)


Part = Callable[[datetime], str]


def _number(value: Callable[[datetime], int], *tokens: str, ordinal: str = "") -> dict[str, Part]:
    """Return the tokens of a number, each padded to its own length, and the token of its
    ordinal."""
    made: dict[str, Part] = {
        token: functools.partial(_padded, value, len(token)) for token in tokens
    }
    if ordinal:
        made[ordinal] = lambda moment: _ordinal(value(moment))
    return made


def _padded(value: Callable[[datetime], int], width: int, moment: datetime) -> str:
    return f"{value(moment):0{width}d}"


_TOKENS: dict[str, Part] = {
    **_number(lambda at: at.month, "M", "MM", ordinal="Mo"),
    "MMM": lambda at: _MONTHS[at.month - 1][:3],
    "MMMM": lambda at: _MONTHS[at.month - 1],
    **_number(lambda at: (at.month + 2) // 3, "Q", ordinal="Qo"),
    **_number(lambda at: at.day, "D", "DD", ordinal="Do"),
    **_number(_day_of_year, ordinal="DDDo"),
    "DDD": lambda at: str(_day_of_year(at)),
    "DDDD": lambda at: f"{_day_of_year(at):03d}",
    **_number(_day_of_week, "d", "e", ordinal="do"),
    "dd": lambda at: _DAYS[_day_of_week(at)][:2],
    "ddd": lambda at: _DAYS[_day_of_week(at)][:3],
    "dddd": lambda at: _DAYS[_day_of_week(at)],
    **_number(lambda at: at.isoweekday(), "E"),
    **_number(lambda at: _week(at)[1], "w", "ww", ordinal="wo"),
    **_number(lambda at: at.isocalendar().week, "W", "WW", ordinal="Wo"),
    **_number(lambda at: at.year % 100, "YY"),
    **_number(lambda at: at.year, "YYYY", "YYYYY", "y", "yy", "yyy", "yyyy", ordinal="yo"),
    "Y": lambda at: f"{at.year:04d}",
    "YYYYYY": lambda at: f"+{at.year:06d}",
    **dict.fromkeys(("N", "NN", "NNN", "NNNNN"), lambda at: "AD"),
    "NNNN": lambda at: "Anno Domini",
    **_number(lambda at: _week(at)[0] % 100, "gg"),
    **_number(lambda at: _week(at)[0], "gggg", "ggggg"),
    **_number(lambda at: at.isocalendar().year % 100, "GG"),
    **_number(lambda at: at.isocalendar().year, "GGGG", "GGGGG"),
    "A": lambda at: "AM" if at.hour < 12 else "PM",
    "a": lambda at: "am" if at.hour < 12 else "pm",
    **_number(lambda at: at.hour, "H", "HH"),
    **_number(lambda at: at.hour % 12 or 12, "h", "hh"),
    **_number(lambda at: at.hour or 24, "k", "kk"),
    **_number(lambda at: at.minute, "m", "mm"),
    **_number(lambda at: at.second, "s", "ss"),
    **{
        "S" * digits: functools.partial(
            lambda digits, at: f"{at.microsecond:06d}000"[:digits], digits
        )
        for digits in range(1, 10)
    },
    "Z": lambda at: _offset(at, ":"),
    "ZZ": lambda at: _offset(at, ""),
    **_number(_seconds, "X"),
    **_number(_milliseconds, "x"),
    "Hmm": lambda at: f"{at.hour}{at.minute:02d}",
    "Hmmss": lambda at: f"{at.hour}{at.minute:02d}{at.second:02d}",
    "hmm": lambda at: f"{at.hour % 12 or 12}{at.minute:02d}",
    "hmmss": lambda at: f"{at.hour % 12 or 12}{at.minute:02d}{at.second:02d}",
}
"""The function that formats each token."""
