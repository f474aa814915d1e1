"""Option type of times: RFC 3339, with or without a time zone, or only a date.

Used by options such as `--at`, `--from` and `--to`. No I/O.
"""

import datetime as dt
from typing import NamedTuple

from kilnwork.cli import options

_EXAMPLES = "write it as 2026-01-02, 2026-01-02T03:04 or 2026-01-02T03:04:05Z"


class Moment(NamedTuple):
    """A time that the user gave; without a time zone it is in local time.

    `whole_day`: only a date was given.
    """

    at: dt.datetime
    whole_day: bool

    def first(self, zone: dt.tzinfo | None = None) -> float:
        """Return the time in seconds since the epoch; for a date, that of its first second.

        `zone`: time zone of a time without one; None: local time.
        """
        return self._in(zone).timestamp()

    def last(self, zone: dt.tzinfo | None = None) -> float:
        """Return the time in seconds since the epoch; for a date, that of its last second."""
        if not self.whole_day:
            return self.first(zone)
        next_day = self._replaced(self.at + dt.timedelta(days=1), zone)
        return next_day.timestamp() - 1

    def _in(self, zone: dt.tzinfo | None) -> dt.datetime:
        return self.at if self.at.tzinfo is not None else self._replaced(self.at, zone)

    @staticmethod
    def _replaced(at: dt.datetime, zone: dt.tzinfo | None) -> dt.datetime:
        return at.astimezone() if zone is None else at.replace(tzinfo=zone)


def parse(text: str) -> Moment:
    """Return the time that a text gives.

    Raises ValueError for a text in another format, and for the first and the last year of Python's
    calendar, whose days may be outside it in another zone.
    """
    try:
        at = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text[:100]!r} is not a time: {_EXAMPLES}") from None
    if not dt.MINYEAR < at.year < dt.MAXYEAR:
        raise ValueError(f"{text[:100]!r}: the year must be from 2 to 9998")
    return Moment(at, _is_date(text.strip()))


def _is_date(text: str) -> bool:
    try:
        dt.date.fromisoformat(text)
    except ValueError:
        return False
    return True


MOMENT = options.Parsed("time", parse)
"""Option type of a time; without a zone it is in that of this machine, or of a schedule."""
