"""Time zones by name, and the changes of clocks in them, in whole seconds.

Used by `cron`, which has the rules for local times that do not exist or occur twice, and by
`job_validation`. A *local time* is a datetime without a zone. Zone files are read by `zoneinfo`,
once each: those of the system, otherwise those of the package tzdata. Times are formatted elsewhere
(kit/clock).
"""

import bisect
import datetime as dt
import re
import zoneinfo
from collections.abc import Iterator

import msgspec

from kilnwork.kit import errors

_EPOCH = dt.datetime(1970, 1, 1)
_DAY_S = 86_400
_NO_TIME = dt.timedelta()
_OFFSET = re.compile(r"(?:UTC|GMT)([+-])(?![0-9]{3}$)([0-9]{1,2})(?::?([0-9]{2}))?")
_ZONE = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")
_NO_NAMES = {"localtime", "posixrules", "posix", "right"}
"""Files in the zone directory that are not zones: the machine's own zone, and copies, some with
leap seconds."""


class InvalidZone(errors.KilnError):
    """The name is not a time zone; the message says which names are allowed."""


class ClockChange(msgspec.Struct, frozen=True):
    """A change of the clocks that skips or repeats local times."""

    at: int
    """First UTC second with the new offset."""
    before: int
    """Offset from UTC before the change, in seconds."""
    after: int
    """Offset from UTC after the change, in seconds."""

    @property
    def begin(self) -> dt.datetime:
        """The first local time that is skipped or repeated."""
        return local_time(self.at + min(self.before, self.after))

    @property
    def last(self) -> dt.datetime:
        """The last local time, in whole seconds, that is skipped or repeated."""
        return local_time(self.at + max(self.before, self.after) - 1)


def timezone(name: str) -> dt.tzinfo:
    """Return the zone for an IANA name or an offset such as `UTC+8`; UTC for "" and for `Local`.

    Raises InvalidZone for any other name.
    """
    if name in {"", "Local", "UTC", "GMT"}:
        return dt.UTC
    if match := _OFFSET.fullmatch(name):
        sign, hours, minutes = match.groups()
        if int(hours) < 24 and int(minutes or 0) < 60:
            offset = dt.timedelta(hours=int(hours), minutes=int(minutes or 0))
            return dt.timezone(-offset if sign == "-" else offset)
    elif _ZONE.fullmatch(name) and name.split("/")[0] not in _NO_NAMES:
        try:
            return zoneinfo.ZoneInfo(name)
        except (OSError, ValueError, zoneinfo.ZoneInfoNotFoundError):
            pass  # a directory, a file that is not a zone, or a missing file
    raise InvalidZone(
        f"{name!r} is no time zone: write an IANA name such as Europe/Zurich, "
        "or an offset such as UTC+8, GMT-3:30 or UTC+0530"
    )


def timezone_problem(name: str) -> str | None:
    """Return the problem with the name of a time zone, or None if it is valid."""
    try:
        timezone(name)
    except InvalidZone as error:
        return str(error)
    return None


def seconds_of(local: dt.datetime) -> int:
    """Return a local time as seconds since the local epoch."""
    since = local - _EPOCH
    return since.days * _DAY_S + since.seconds


def local_time(seconds: int) -> dt.datetime:
    """Return the local time at a number of seconds after the local epoch."""
    return _EPOCH + dt.timedelta(seconds=seconds)


def _offset_s(moment: dt.datetime) -> int:
    """Return the offset from UTC of a time in a zone, in seconds."""
    offset = moment.utcoffset() or _NO_TIME
    return offset.days * _DAY_S + offset.seconds


def offset_at(seconds: int, zone: dt.tzinfo) -> int:
    """Return the offset of a zone from UTC at a UTC second, in seconds."""
    return _offset_s(dt.datetime.fromtimestamp(seconds, zone))


def offsets(local: dt.datetime, zone: dt.tzinfo) -> tuple[int, int]:
    """Return the offsets of a local time before and after a change of the clocks around it.

    They are equal if there is no change (PEP 495). The first is smaller in a gap, and greater
    where times are repeated.
    """
    moment = local.replace(tzinfo=zone)
    return _offset_s(moment), _offset_s(moment.replace(fold=1))


def change_around(local: dt.datetime, zone: dt.tzinfo) -> ClockChange | None:
    """Return the change of the clocks that skips or repeats a local time, or None."""
    before, after = offsets(local, zone)
    return None if before == after else change_at(local, before, after, zone=zone)


def change_at(local: dt.datetime, before: int, after: int, *, zone: dt.tzinfo) -> ClockChange:
    """Return the change of the clocks around a local time, given its offsets."""
    low = seconds_of(local) - max(before, after)
    return _change_between(low, low + abs(before - after), zone)


def _change_between(low: int, high: int, zone: dt.tzinfo) -> ClockChange:
    """Return the change of the clocks between `low` (exclusive) and `high` (inclusive), whose
    offsets differ."""
    before = offset_at(low, zone)
    seconds = range(low, high + 1)
    place = bisect.bisect(
        seconds, 0, key=lambda second: -1 if offset_at(second, zone) == before else 1
    )
    return ClockChange(seconds[place], before, offset_at(high, zone))


def changes(after: int, until: int, zone: dt.tzinfo) -> Iterator[ClockChange]:
    """Yield the changes of the clocks from `after` (exclusive) to `until` (inclusive), checking
    once a day."""
    if isinstance(zone, dt.timezone):
        return
    low, before = after, offset_at(after, zone)
    while low < until:
        high = min(low + _DAY_S, until)
        now = offset_at(high, zone)
        if now != before:
            yield _change_between(low, high, zone)
        low, before = high, now
