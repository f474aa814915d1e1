"""Fields of a cron expression: their grammar, and the days of a month that two of them select.

Used only by `cron`, which handles their order, their times and the zones. A field is a list of
items separated by commas; each item becomes numbers, or a rule for days such as `LW`. `H` becomes
a number that depends on `hash_id`. Unknown syntax is refused: nothing is guessed.
"""

import calendar
import hashlib
import re

import msgspec

from kilnwork.kit import errors

MONTHS = (
    *("JANUARY", "FEBRUARY", "MARCH", "APRIL", "MAY", "JUNE", "JULY"),
    *("AUGUST", "SEPTEMBER", "OCTOBER", "NOVEMBER", "DECEMBER"),
)
WEEKDAYS = ("SUNDAY", "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY")


class InvalidCron(errors.KilnError):
    """The text is not a cron expression; the message names the field, its value and the allowed
    values."""


class Field(msgspec.Struct, frozen=True, gc=False):
    """Definition of one field of a cron expression: its name and its allowed values."""

    name: str
    """Name of the field in messages and in the hash of `H`."""
    first: int
    """Minimum value."""
    last: int
    """Maximum value."""
    hash_last: int
    """Maximum value of a bare `H`: 28 for days, so that every month has the day."""
    accepted: int
    """Maximum number that may be written: 7 also means Sunday."""
    names: tuple[str, ...] = ()
    """Names of the numbers from `first` on; their first three letters suffice."""
    rules: str = ""
    """Further items that the field accepts, for messages."""

    @property
    def allowed(self) -> str:
        """Return the accepted values of the field as text, for messages."""
        names = f" or {self.names[0][:3]}-{self.names[-1][:3]}" if self.names else ""
        return f"{self.first}-{self.accepted}{names}, with * , - / ? H{self.rules}"


SECOND = Field("second", 0, 59, 59, 59)
MINUTE = Field("minute", 0, 59, 59, 59)
HOUR = Field("hour", 0, 23, 23, 23)
DAY = Field("day of month", 1, 31, 28, 31, rules=", L, LW or 15W")
MONTH = Field("month", 1, 12, 12, 12, MONTHS)
WEEKDAY = Field("day of week", 0, 6, 6, 7, WEEKDAYS, rules=", 5L or 5#3")
QUARTZ_WEEKDAY = Field("day of week", 1, 7, 7, 7, WEEKDAYS, rules=", 6L or 6#3")
YEAR = Field("year", 1970, 2099, 2099, 2099)

_VALUE = r"[0-9]{1,4}|[A-Z]{3,9}"
_SPAN = re.compile(
    rf"(?:(\*{{1,2}}|\?{{1,2}}|(?=/))|({_VALUE})(?:-({_VALUE}))?)(?:/([0-9]{{1,4}}))?"
)
_HASHED = re.compile(rf"H(?:\(({_VALUE})-({_VALUE})\))?(?:/([0-9]{{1,4}}))?")
_NEAREST = re.compile(r"([0-9]{1,2})W")
_OF_MONTH = re.compile(rf"({_VALUE})(?:L|#([1-5]))")
_WEEKS = 1 << 1 | 1 << 8 | 1 << 15 | 1 << 22 | 1 << 29


class Numbers(msgspec.Struct, frozen=True, gc=False):
    """Parsed values of one field of a cron expression."""

    values: tuple[int, ...]
    """Numbers in ascending order, without duplicates."""
    any_: bool = False
    """Whether the field has a bare `*` or `?`: a field for days then leaves the choice to the
    other field for days."""
    nearest: tuple[int, ...] = ()
    """`15W`: days of the month; the nearest working day of each is selected."""
    last: bool = False
    """`L`: the last day of the month."""
    last_workday: bool = False
    """`LW`: the last working day of the month."""
    weekdays: tuple[tuple[int, int], ...] = ()
    """`5#3` and `5L`: day of the week (0 for Sunday), and which one of the month (0 for the
    last)."""


class Days(msgspec.Struct, frozen=True, gc=False):
    """Days that the fields `day of month` and `day of week` select together.

    If both fields select days, a day needs to match only one of them, as in Furiko; a bare `*` or
    `?` selects none.
    """

    every: bool
    """Whether neither field selects days."""
    bits: int
    """Days of the month as bits: bit 1 is the first day."""
    by_day: Numbers
    by_weekday: Numbers

    @classmethod
    def of(cls, by_day: Numbers, by_weekday: Numbers) -> "Days":
        """Return the days that the fields `day of month` and `day of week` select together."""
        none = Numbers(())
        return cls(
            every=by_day.any_ and by_weekday.any_,
            bits=0 if by_day.any_ else sum(1 << day for day in by_day.values),
            by_day=none if by_day.any_ else by_day,
            by_weekday=none if by_weekday.any_ else by_weekday,
        )

    def in_month(self, year: int, month: int) -> int:
        """Return the selected days of a month as bits: bit 1 is the first day."""
        weekday, length = calendar.monthrange(year, month)
        first = (weekday + 1) % 7
        whole = (1 << length + 1) - 2
        if self.every:
            return whole
        chosen = self.bits
        for day in self.by_weekday.values:
            chosen |= _WEEKS << (day - first) % 7
        for day, which in self.by_weekday.weekdays:
            nth = 1 + (day - first) % 7
            nth += 7 * (which - 1) if which else (length - nth) // 7 * 7
            chosen |= 1 << nth
        if self.by_day.last:
            chosen |= 1 << length
        if self.by_day.last_workday:
            chosen |= 1 << _workday(length, first, length)
        for day in self.by_day.nearest:
            if day <= length:
                chosen |= 1 << _workday(day, first, length)
        return chosen & whole


def _workday(day: int, first: int, length: int) -> int:
    """Return the working day nearest to `day` in the same month."""
    weekday = (first + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


def parse(text: str, field: Field, *, hash_id: str) -> Numbers:
    """Return the values of the field `text`; raises InvalidCron for unknown syntax."""
    items = [_parse_item(item, field, hash_id=hash_id, text=text) for item in text.split(",")]
    return Numbers(
        values=tuple(sorted({value for item in items for value in item.values})),
        any_=any(item.any_ for item in items),
        nearest=tuple(sorted({day for item in items for day in item.nearest})),
        last=any(item.last for item in items),
        last_workday=any(item.last_workday for item in items),
        weekdays=tuple(sorted({each for item in items for each in item.weekdays})),
    )


def _parse_item(seen: str, field: Field, *, hash_id: str, text: str) -> Numbers:
    """Return the values of one item of the list `text`."""
    item = seen.upper() if seen.isascii() else seen
    try:
        found = _parse_day_rule(item, field)
        if found is None and (match := _HASHED.fullmatch(item)):
            found = Numbers(_hashed_values(field, match, hash_id))
        if found is None and (match := _SPAN.fullmatch(item)):
            found = _parse_range(field, match)
        if found is None:
            raise InvalidCron(f"it may be {field.allowed}")
    except InvalidCron as error:
        where = f"{seen!r}" if seen == text else f"{seen!r} in {text!r}"
        raise InvalidCron(f"{field.name}: {where} is not understood: {error}") from None
    return found


def _parse_day_rule(item: str, field: Field) -> Numbers | None:
    """Return the rule for days that `item` stands for, or None."""
    if field is DAY:
        if item in {"L", "LW"}:
            return Numbers((), last=item == "L", last_workday=item == "LW")
        if match := _NEAREST.fullmatch(item):
            return Numbers((), nearest=(_number(match[1], field),))
    elif field.names == WEEKDAYS and (match := _OF_MONTH.fullmatch(item)):
        weekday = _weekday(_number(match[1], field), field)
        return Numbers((), weekdays=((weekday, int(match[2] or 0)),))
    return None


def _parse_range(field: Field, match: re.Match[str]) -> Numbers:
    """Return the values of `*`, a number or a range, with or without a step."""
    star, start, end, step = match.groups()
    by = _step(step, field)
    if star is not None:
        every = range(field.first, field.last + 1, by)
        return _numbers(field, every, any_=step is None)
    first = _number(start, field)
    if end is not None:
        last = _range_end(first, end, field)
    elif step is None:
        last = first
    else:
        first, last = first if first <= field.last else field.first, field.last
    return _numbers(field, range(first, last + 1, by))


def _hashed_values(field: Field, match: re.Match[str], hash_id: str) -> tuple[int, ...]:
    """Return the numbers that `H`, `H(a-b)`, `H/n` or `H(a-b)/n` stands for, given `hash_id`.

    The hash is the first eight bytes of BLAKE2b of `HASH_ID:FIELD`, big-endian, so that similar
    names spread, and the fields of one expression are independent. Its remainder is added to the
    first number of the range, so that a day or a month is never 0.
    """
    start, end, step = match.groups()
    first = field.first if start is None else _number(start, field)
    last = field.hash_last if end is None else _range_end(first, end, field)
    digest = hashlib.blake2b(f"{hash_id}:{field.name}".encode(), digest_size=8).digest()
    number = int.from_bytes(digest, "big")
    length = last - first + 1
    if step is None:
        values = range(first + number % length, first + number % length + 1)
    else:
        by = _step(step, field)
        values = range(first + number % min(by, length), last + 1, by)
    return _numbers(field, values).values


def _numbers(field: Field, values: range, *, any_: bool = False) -> Numbers:
    if field.names == WEEKDAYS:
        return Numbers(tuple(sorted({_weekday(value, field) for value in values})), any_=any_)
    return Numbers(tuple(values), any_=any_)


def _weekday(value: int, field: Field) -> int:
    """Return the day of the week (0 for Sunday) that `value` means in the format of `field`."""
    return (value - field.first) % 7


def _range_end(first: int, end: str, field: Field) -> int:
    """Return the last number of the range from `first` to `end`."""
    last = _number(end, field)
    if last < first and field.names == WEEKDAYS and last == field.first:
        return last + 7  # FRI-SUN: a week may end on Sunday
    if last < first:
        raise InvalidCron(
            f"the range ends before it begins: write {first}-{field.last},{field.first}-{last}"
        )
    return last


def _step(step: str | None, field: Field) -> int:
    number = 1 if step is None else int(step)
    if not 1 <= number <= field.accepted:
        raise InvalidCron(f"a step may be 1 to {field.accepted}")
    return number


def _number(value: str, field: Field) -> int:
    for number, name in enumerate(field.names, field.first):
        if value in {name, name[:3]}:
            return number
    if not value.isdigit() or not field.first <= int(value) <= field.accepted:
        raise InvalidCron(f"it may be {field.allowed}")
    return int(value)
