"""Cron expressions and their ticks, in UTC seconds, in any time zone.

`parse` reads Furiko's syntax with quartz's rules for days; `cron_fields` has the grammar of each
field. A `CronExpression` describes local times; `next_after` finds the first tick after a second
and `count` returns the number of ticks in a span, both without iterating over ticks. Used by
`due_ticks`, which decides which ticks are due, and by validation. No clock; zone files are read by
`zoneinfo`, once each.

A local time that a change of the clocks skips or repeats is treated according to DaylightSaving
(api/job_config), unless the expression names every hour: then ticks follow real time, so that there
is no tick in a gap, and one in each pass of a repeated hour.
"""

import bisect
import datetime as dt

import msgspec

from kilnwork.api import cron_fields, job_config, time_zones

InvalidCron = cron_fields.InvalidCron
InvalidZone = time_zones.InvalidZone
timezone = time_zones.timezone
timezone_problem = time_zones.timezone_problem

FIRST = -2 * 86_400
"""Second before all ticks: the year 1970 begins up to a day before the epoch."""
LAST = 4_102_444_800 + 2 * 86_400
"""Second after all ticks: the year 2099 ends up to a day after its end in UTC."""

HOURS = 24
"""Number of hours in a day."""

MAX_CHARS = 512
"""Maximum length of an expression."""

_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_SECOND = dt.timedelta(seconds=1)


class CronExpression(msgspec.Struct, frozen=True, gc=False):
    """A parsed cron expression: all combinations of local times on matching days."""

    text: str
    """The expression as written by the user."""
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: cron_fields.Days
    months: tuple[int, ...]
    years: tuple[int, ...]

    @property
    def every_hour(self) -> bool:
        """Whether ticks follow real time when the clocks change."""
        return len(self.hours) == HOURS

    def next_after(
        self,
        seconds: int,
        zone: dt.tzinfo,
        *,
        gap: job_config.GapPolicy,
        overlap: job_config.OverlapPolicy,
    ) -> int | None:
        """Return the first tick after a second, both in UTC; None if there is none.

        Later local times never have earlier ticks, except where the clocks repeat local times:
        there the first pass is searched, then the second.
        """
        if seconds >= LAST:
            return None
        seconds = max(seconds, FIRST)
        run_after, both = self._policies(gap, overlap)
        local = time_zones.local_time(seconds + time_zones.offset_at(seconds, zone))
        change = time_zones.change_around(local, zone)
        if change is None:
            return self._tick_after(local, zone, run_after=run_after)
        if seconds < change.at:
            found = self._local_after(local)
            if found is not None and found <= change.last:
                return time_zones.seconds_of(found) - change.before
            local = change.begin - _SECOND
        if both:
            found = self._local_after(local)
            if found is not None and found <= change.last:
                return time_zones.seconds_of(found) - change.after
        return self._tick_after(change.last, zone, run_after=run_after)

    def count(
        self,
        after: int,
        until: int,
        zone: dt.tzinfo,
        *,
        gap: job_config.GapPolicy,
        overlap: job_config.OverlapPolicy,
    ) -> int:
        """Return the number of ticks in the span from `after` (exclusive) to `until` (inclusive),
        both in UTC.

        Days are counted, not ticks: a year takes about a third of a millisecond.
        """
        after, until = max(after, FIRST), min(until, LAST)
        if after >= until:
            return 0
        run_after, both = self._policies(gap, overlap)
        offset = time_zones.offset_at(after, zone)
        begun = time_zones.change_around(time_zones.local_time(after + offset), zone)
        start = after + offset
        if begun is not None and after >= begun.at and not both:
            start = time_zones.seconds_of(begun.last)
        total = 0
        for change in time_zones.changes(after, until, zone):
            total += self._count_local(start, change.at - 1 + offset)
            offset = change.after
            start = change.at - 1 + offset
            if change.before > offset and not both:
                start = time_zones.seconds_of(change.last)
            if change.before < offset and run_after and self._left_out(change):
                total += 1
        return total + self._count_local(start, until + offset)

    def _left_out(self, change: time_zones.ClockChange) -> bool:
        """Return whether `change` skips a local time of the expression and does not end at another
        such time."""
        begin, last = time_zones.seconds_of(change.begin), time_zones.seconds_of(change.last)
        return bool(self._count_local(begin - 1, last)) and not self._count_local(last, last + 1)

    def _policies(
        self, gap: job_config.GapPolicy, overlap: job_config.OverlapPolicy
    ) -> tuple[bool, bool]:
        """Return whether there is a tick after a gap, and whether repeated times have two ticks."""
        if self.every_hour:
            return False, True
        return gap is job_config.GapPolicy.RUN_AFTER, overlap is job_config.OverlapPolicy.BOTH

    def _tick_after(self, local: dt.datetime, zone: dt.tzinfo, *, run_after: bool) -> int | None:
        """Return the tick of the first local time after `local`; in its first pass if it is
        repeated."""
        while (found := self._local_after(local)) is not None:
            before, after = time_zones.offsets(found, zone)
            if before >= after:
                return time_zones.seconds_of(found) - before
            change = time_zones.change_at(found, before, after, zone=zone)
            if run_after:
                return change.at
            local = change.last
        return None

    def _local_after(self, local: dt.datetime) -> dt.datetime | None:
        """Return the first local time of the expression after `local`."""
        year, month, day = local.year, local.month, local.day
        if self.has_day(year, month, day):
            time = self._time_after(local.hour, local.minute, local.second)
            if time is not None:
                return local.replace(hour=time[0], minute=time[1], second=time[2])
        date = self._day_after(year, month, day)
        if date is None:
            return None
        return dt.datetime(*date, self.hours[0], self.minutes[0], self.seconds[0])

    def has_day(self, year: int, month: int, day: int) -> bool:
        """Return whether the expression has times on a day."""
        if month not in self.months or not _contains(self.years, year):
            return False
        return bool(self.days.in_month(year, month) >> day & 1)

    def _time_after(self, hour: int, minute: int, second: int) -> tuple[int, int, int] | None:
        """Return the first time of the expression on the same day after the given time."""
        hours, minutes, seconds = self.hours, self.minutes, self.seconds
        if _contains(hours, hour):
            if _contains(minutes, minute):
                place = bisect.bisect_right(seconds, second)
                if place < len(seconds):
                    return hour, minute, seconds[place]
            place = bisect.bisect_right(minutes, minute)
            if place < len(minutes):
                return hour, minutes[place], seconds[0]
        place = bisect.bisect_right(hours, hour)
        return (hours[place], minutes[0], seconds[0]) if place < len(hours) else None

    def _day_after(self, year: int, month: int, day: int) -> tuple[int, int, int] | None:
        """Return the first day of the expression after the given day, as year, month and day."""
        for each_year in self.years[bisect.bisect_left(self.years, year) :]:
            first = month if each_year == year else 1
            for each_month in self.months[bisect.bisect_left(self.months, first) :]:
                days = self.days.in_month(each_year, each_month)
                if (each_year, each_month) == (year, month):
                    days = days >> day + 1 << day + 1
                if days:
                    return each_year, each_month, (days & -days).bit_length() - 1
        return None

    def _count_local(self, after: int, until: int) -> int:
        """Return the number of local times from `after` (exclusive) to `until` (inclusive), in
        seconds."""
        if after >= until:
            return 0
        first, last = time_zones.local_time(after), time_zones.local_time(until)
        whole = self._count_days(first, last) * len(self.hours) * len(self.minutes)
        return whole * len(self.seconds) + self._count_times(last) - self._count_times(first)

    def _count_days(self, first: dt.datetime, last: dt.datetime) -> int:
        """Return the number of days with times from the day of `first` (inclusive) to that of
        `last` (exclusive)."""
        begin, end = (first.year, first.month), (last.year, last.month)
        total = 0
        for year in self.years[bisect.bisect_left(self.years, first.year) :]:
            if year > last.year:
                break
            for month in self.months:
                if not begin <= (year, month) <= end:
                    continue
                days = self.days.in_month(year, month)
                if (year, month) == end:
                    days &= (1 << last.day) - 1
                if (year, month) == begin:
                    days = days >> first.day
                total += days.bit_count()
        return total

    def _count_times(self, until: dt.datetime) -> int:
        """Return the number of times on the day of `until`, up to it."""
        if not self.has_day(until.year, until.month, until.day):
            return 0
        hours = bisect.bisect_left(self.hours, until.hour)
        total = hours * len(self.minutes) * len(self.seconds)
        if _contains(self.hours, until.hour):
            total += bisect.bisect_left(self.minutes, until.minute) * len(self.seconds)
            if _contains(self.minutes, until.minute):
                total += bisect.bisect_right(self.seconds, until.second)
        return total


def parse(expression: str, *, format: job_config.CronFormat, hash_id: str) -> CronExpression:  # noqa: A002 - the field's name
    """Parse `expression`; `H` in it depends on `hash_id`, the NAMESPACE/NAME of its owner.

    Raises InvalidCron if it is malformed, or matches no day of the years 1970 to 2099.
    """
    if len(expression) > MAX_CHARS:
        raise InvalidCron(f"it has {len(expression)} characters: {MAX_CHARS} is the most")
    texts = _split(expression)
    weekday = cron_fields.WEEKDAY
    if format is job_config.CronFormat.QUARTZ:
        weekday = cron_fields.QUARTZ_WEEKDAY
    fields = (cron_fields.SECOND, cron_fields.MINUTE, cron_fields.HOUR, cron_fields.DAY)
    second, minute, hour, day, month, weekdays, year = (
        cron_fields.parse(text, field, hash_id=hash_id)
        for text, field in zip(
            texts, (*fields, cron_fields.MONTH, weekday, cron_fields.YEAR), strict=True
        )
    )
    found = CronExpression(
        text=expression,
        seconds=second.values,
        minutes=minute.values,
        hours=hour.values,
        days=cron_fields.Days.of(day, weekdays),
        months=month.values,
        years=year.values,
    )
    if found._day_after(0, 1, 0) is None:
        days = [
            (f"{cron_fields.DAY.name} {texts[3]!r}", day),
            (f"{weekday.name} {texts[5]!r}", weekdays),
        ]
        raise InvalidCron(
            f"{' or '.join(text for text, numbers in days if not numbers.any_)} never comes in "
            f"month {texts[4]!r}"
            + (f" of year {texts[6]!r}" if texts[6] != "*" else "")
            + ": write a day that these months have"
        )
    return found


def problem(expression: str, *, format: job_config.CronFormat, hash_id: str) -> str | None:  # noqa: A002 - the field's name
    """Return the problem with `expression`, or None if it is valid."""
    try:
        parse(expression, format=format, hash_id=hash_id)
    except InvalidCron as error:
        return str(error)
    return None


def _split(expression: str) -> list[str]:
    """Return the texts of the seven fields of a cron expression."""
    texts = expression.split()
    if len(texts) == 1 and texts[0].startswith("@"):
        named = _NAMED.get(texts[0].lower())
        if named is None:
            raise InvalidCron(f"{texts[0]!r} is not known: it may be {', '.join(_NAMED)}")
        texts = named.split()
    if len(texts) == 5:
        return ["0", *texts, "*"]
    if len(texts) == 6:
        return ["0", *texts]
    if len(texts) == 7:
        return texts
    raise InvalidCron(
        f"{expression!r} has {len(texts)} field{'' if len(texts) == 1 else 's'}: write 5 "
        "(minute, hour, day of month, month, day of week), 6 (with a year behind them) or 7 (with "
        "a second before and a year behind)"
    )


def _contains(numbers: tuple[int, ...], number: int) -> bool:
    """Return whether a sorted tuple of numbers contains a number."""
    place = bisect.bisect_left(numbers, number)
    return place < len(numbers) and numbers[place] == number
