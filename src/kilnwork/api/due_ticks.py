"""Due ticks of a schedule: which ones to run, which ones to drop and why, and when to look again.

`CompiledSchedule` is a JobConfig's schedule with parsed expressions; `plan` decides, given the
time and the earlier decisions. Used by the controller of JobConfigs, which carries out a
SchedulePlan and stores its `decided`, by that of Jobs for dependencies, and by the commands that
show and backfill ticks. No I/O; reads no clock. `cron` converts expressions to times.

A *tick* is a UTC second. Each tick is decided once, in order: ticks at or before the last decided
one, or at or before the epoch of the schedule, are not considered again, whatever the clock does.
"""

import collections
import datetime as dt
import heapq
import itertools
import math
from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec

from kilnwork.api import cron, job_config
from kilnwork.kit import clock, errors

ON_TIME_S = 10
"""Maximum delay in seconds with which a tick may be decided and still counts as on time; ticks with
a longer delay count as missed.

It is longer than a manager takes for 10,000 schedules that are due in the same second, and longer
than typical delays by a busy machine or a slow disk; and much shorter than a minute, so that after
a restart at most one tick of a schedule with a tick every minute counts as on time.
"""

NEXT_RUNS = 5
"""Number of future ticks shown in the status."""

MAX_MERGED = 1000
"""Maximum number of ticks of several expressions that are merged to count each second once."""


class InvalidSchedule(errors.KilnError):
    """A field of the schedule is invalid; `path` is its path relative to `spec.schedule`."""

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(f"spec.schedule.{path}: {detail}")
        self.path = path
        self.detail = detail


class DropReason(StrEnum):
    """Why a missed tick creates no Job."""

    TOO_LATE = "TooLate"
    """The tick is older than `missedRuns.withinSeconds`."""
    MISSED_RUNS_POLICY = "MissedRunsPolicy"
    """`missedRuns.policy` drops the tick, or a later tick runs in its place."""


class WaitReason(StrEnum):
    """Why a schedule creates no Job at the moment."""

    NOT_YET_DUE = "NotYetDue"
    """The next tick is in the future."""
    DISABLED = "Disabled"
    CLOCK_BEHIND = "ClockBehind"
    """The clock is behind the last decided tick: it was set back."""
    ENDED = "Ended"
    """The schedule has no further ticks."""


class Dropped(msgspec.Struct, frozen=True, gc=False):
    """Missed ticks that create no Job."""

    reason: DropReason
    count: int
    """Number of dropped ticks; a lower bound if not `exact`."""
    latest: int
    """The latest dropped tick."""
    exact: bool = True


class ScheduleFacts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The facts from which a schedule is planned. Times are in seconds since the Unix epoch."""

    now: float
    """Wall time."""
    epoch: float
    """Ticks up to this time are ignored: the latest of the creation of the JobConfig,
    `lastUpdated`, and the last time that the schedule was enabled. It may be in the future."""
    decided: int | None = None
    """The last decided tick, or None before the first."""


class SchedulePlan(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The plan for a schedule at one moment."""

    run: tuple[int, ...] = ()
    """Ticks for which Jobs are created, oldest first."""
    dropped: tuple[Dropped, ...] = ()
    """Missed ticks, at most one entry for each reason."""
    decided: int | None = None
    """The last decided tick after this plan; it is stored together with the effects of the plan."""
    next_tick: int | None = None
    """When to plan again; None: only after a change of the JobConfig."""
    waiting: WaitReason | None = None
    """Why no tick is due; None if ticks are due, even if all of them are dropped."""

    @property
    def message(self) -> str:
        """The reason why the schedule waits, as a sentence; "" if it does not wait."""
        following = "" if self.next_tick is None else clock.rfc3339(self.next_tick)
        match self.waiting:
            case WaitReason.NOT_YET_DUE:
                return f"the next run is at {following}"
            case WaitReason.CLOCK_BEHIND:
                decided = "" if self.decided is None else clock.rfc3339(self.decided)
                ahead = f"; the next run is at {following}" if following else ""
                return (
                    f"the clock was set back behind {decided}, up to which runs are decided: "
                    f"nothing runs until it is past that{ahead}. If {decided} was never a right "
                    "time, delete the JobConfig and create it again"
                )
            case WaitReason.DISABLED:
                return "the schedule is disabled: set spec.schedule.disabled to false"
            case WaitReason.ENDED:
                return "no run is to come: see cron and constraints of spec.schedule"
            case None:
                return ""


class CompiledSchedule(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A schedule with parsed expressions, zone and bounds."""

    expressions: tuple[cron.CronExpression, ...]
    zone: dt.tzinfo
    not_before: int
    """First second that may be a tick."""
    not_after: int
    """Last second that may be a tick."""
    last_updated: float | None
    """Second up to which ticks are ignored according to the schedule; one part of
    `ScheduleFacts.epoch`."""
    disabled: bool
    daylight_saving: job_config.DaylightSaving
    missed_runs: job_config.MissedRuns

    @classmethod
    def of(cls, spec: job_config.Schedule, *, namespace: str, name: str) -> "CompiledSchedule":
        """Return the schedule of the JobConfig `namespace/name`. Raises InvalidSchedule."""
        bounds = spec.constraints or job_config.ScheduleConstraints()
        not_before = _seconds("constraints.notBefore", bounds.not_before)
        not_after = _seconds("constraints.notAfter", bounds.not_after)
        if not_before is not None and not_after is not None and not_after < not_before:
            raise InvalidSchedule(
                "constraints.notAfter",
                f"{bounds.not_after} is before notBefore, {bounds.not_before}: nothing would run",
            )
        return cls(
            expressions=_expressions(spec.cron, f"{namespace}/{name}"),
            zone=_zone(spec.cron),
            not_before=cron.FIRST if not_before is None else math.ceil(not_before),
            not_after=cron.LAST if not_after is None else math.floor(not_after),
            last_updated=_seconds("lastUpdated", spec.last_updated),
            disabled=spec.disabled,
            daylight_saving=spec.daylight_saving,
            missed_runs=spec.missed_runs,
        )

    def next_after(self, seconds: int) -> int | None:
        """Return the first tick after a second; None if there is none."""
        ticks = (self._next(each, seconds) for each in self.expressions)
        return min((tick for tick in ticks if tick is not None), default=None)

    def ticks(self, after: int) -> Iterator[int]:
        """Yield the ticks after a second, in order and without duplicates."""
        walks = (self._walk(each, after) for each in self.expressions)
        for tick, _ in itertools.groupby(heapq.merge(*walks)):
            yield tick

    def newest(self, after: int, until: int, count: int) -> tuple[int, ...]:
        """Return the last `count` ticks (1 or more) in the span from `after` (exclusive) to
        `until` (inclusive).

        The work grows with `count`, and hardly with the span.
        """
        found: set[int] = set()
        for each in self.expressions:
            found.update(self._newest(each, after, until, count=count))
        return tuple(sorted(found)[-count:])

    def count(self, after: int, until: int) -> tuple[int, bool]:
        """Return the number of ticks from `after` (exclusive) to `until` (inclusive), and whether
        it is exact.

        A single expression is counted by days. Several expressions may name the same second: up to
        MAX_MERGED ticks are merged; beyond that, the count of one expression is a lower bound.
        """
        counts = [self._count(each, after, until) for each in self.expressions]
        if sum(counts) == max(counts, default=0):
            return sum(counts), True
        if sum(counts) > MAX_MERGED:
            return max(counts), False
        return sum(
            1 for _ in itertools.takewhile(lambda tick: tick <= until, self.ticks(after))
        ), True

    def _next(self, expression: cron.CronExpression, seconds: int) -> int | None:
        tick = expression.next_after(
            max(seconds, self.not_before - 1),
            self.zone,
            gap=self.daylight_saving.gap,
            overlap=self.daylight_saving.overlap,
        )
        return None if tick is None or tick > self.not_after else tick

    def _walk(self, expression: cron.CronExpression, after: int) -> Iterator[int]:
        tick = self._next(expression, after)
        while tick is not None:
            yield tick
            tick = self._next(expression, tick)

    def _count(self, expression: cron.CronExpression, after: int, until: int) -> int:
        return expression.count(
            max(after, self.not_before - 1),
            min(until, self.not_after),
            self.zone,
            gap=self.daylight_saving.gap,
            overlap=self.daylight_saving.overlap,
        )

    def _newest(
        self, expression: cron.CronExpression, after: int, until: int, *, count: int
    ) -> Iterable[int]:
        """Return the last `count` ticks of one expression in a span.

        The function searches for a second after which at least `count` ticks, and not many more,
        remain.
        """
        # Seconds before `until`; start with a short span, since counting the whole one takes time.
        reach = 60
        while until - reach > after and self._count(expression, until - reach, until) < count:
            reach *= 4
        low, high = max(after, until - reach), until
        while high - low > 1 and self._count(expression, low, until) > 8 * count:
            middle = (low + high) // 2
            if self._count(expression, middle, until) >= count:
                low = middle
            else:
                high = middle
        ticks = itertools.takewhile(lambda tick: tick <= until, self._walk(expression, low))
        return collections.deque(ticks, count)


def plan(schedule: CompiledSchedule, facts: ScheduleFacts) -> SchedulePlan:
    """Decide what to do about a schedule at the given time.

    The same facts always give the same plan. Facts with the `decided` of an earlier plan never give
    a tick of that plan again.
    """
    if schedule.disabled:
        return SchedulePlan(decided=facts.decided, waiting=WaitReason.DISABLED)
    now = math.floor(facts.now)
    floor = math.floor(facts.epoch)
    if facts.decided is not None:
        floor = max(floor, facts.decided)
    first = schedule.next_after(floor)
    if first is None or first > now:
        return SchedulePlan(
            decided=facts.decided,
            next_tick=first,
            waiting=_wait_reason(first, now=now, decided=facts.decided),
        )
    last_missed = max(floor, now - ON_TIME_S - 1)
    on_time = []
    tick: int | None = first if first > last_missed else schedule.next_after(last_missed)
    while tick is not None and tick <= now:
        on_time.append(tick)
        tick = schedule.next_after(tick)
    missed: tuple[int, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    if first <= last_missed:
        missed, dropped = _split_missed(
            schedule, floor, last_missed, now=now, superseded=bool(on_time)
        )
    run = (*missed, *on_time)
    return SchedulePlan(
        run=run,
        dropped=dropped,
        decided=max((*run, *(each.latest for each in dropped))),
        next_tick=tick,
    )


def initial_epoch(config: job_config.JobConfig) -> float:
    """Return the second up to which ticks are ignored, independent of the journal: a schedule
    begins with its JobConfig."""
    spec = config.spec.schedule
    given = None if spec is None else spec.last_updated
    times = (config.metadata.creation_timestamp, given)
    return max((clock.parse_rfc3339(one) for one in times if one is not None), default=0.0)


def upcoming_ticks(
    schedule: CompiledSchedule, after: int, count: int = NEXT_RUNS
) -> tuple[int, ...]:
    """Return the next `count` ticks after a second, even if the schedule is disabled."""
    return tuple(itertools.islice(schedule.ticks(after), count))


def ticks_between(
    schedule: CompiledSchedule, start: int, end: int, *, limit: int
) -> tuple[int, ...]:
    """Return the first `limit` ticks from `start` to `end`, both inclusive, for a backfill.

    To find out whether there are more ticks, request one more than needed.
    """
    ticks = itertools.takewhile(lambda tick: tick <= end, schedule.ticks(start - 1))
    return tuple(itertools.islice(ticks, limit))


def _split_missed(
    schedule: CompiledSchedule, floor: int, late: int, *, now: int, superseded: bool
) -> tuple[tuple[int, ...], tuple[Dropped, ...]]:
    """Return the ticks from `floor` (exclusive) to `late` (inclusive) that run, and the dropped
    ones by reason.

    `superseded`: whether a tick on time, later than all of these, runs.
    """
    rules = schedule.missed_runs
    too_late = min(late, max(floor, now - rules.within_seconds - 1))
    most = 0
    if rules.policy is job_config.MissedPolicy.ALL:
        most = rules.max_runs
    elif rules.policy is job_config.MissedPolicy.LATEST and not superseded:
        most = 1
    newest = schedule.newest(too_late, late, most + 1)
    made_up = newest[1:] if len(newest) > most else newest
    dropped = []
    if too_late > floor and (old := schedule.newest(floor, too_late, 1)):
        count, exact = schedule.count(floor, too_late)
        dropped.append(Dropped(DropReason.TOO_LATE, count, old[-1], exact))
    if len(newest) > most:
        count, exact = schedule.count(too_late, newest[0])
        dropped.append(Dropped(DropReason.MISSED_RUNS_POLICY, count, newest[0], exact))
    return made_up, tuple(dropped)


def _wait_reason(first: int | None, *, now: int, decided: int | None) -> WaitReason:
    if decided is not None and now < decided:
        return WaitReason.CLOCK_BEHIND
    return WaitReason.ENDED if first is None else WaitReason.NOT_YET_DUE


def _expressions(
    spec: job_config.CronSchedule | None, hash_id: str
) -> tuple[cron.CronExpression, ...]:
    """Return the expressions of a schedule; none if it has no `cron`."""
    if spec is None:
        return ()
    if spec.expression and spec.expressions:
        raise InvalidSchedule("cron.expressions", "give this or expression, not both")
    if not spec.expression and not spec.expressions:
        raise InvalidSchedule("cron.expression", "give this or expressions, such as 0 2 * * *")
    texts = [("cron.expression", spec.expression)]
    if spec.expressions:
        texts = [(f"cron.expressions[{n}]", text) for n, text in enumerate(spec.expressions)]
    found = []
    for path, text in texts:
        try:
            found.append(cron.parse(text, format=spec.format, hash_id=hash_id))
        except cron.InvalidCron as error:
            raise InvalidSchedule(path, str(error)) from error
    return tuple(found)


def _zone(spec: job_config.CronSchedule | None) -> dt.tzinfo:
    try:
        return cron.timezone(spec.timezone if spec else "")
    except cron.InvalidZone as error:
        raise InvalidSchedule("cron.timezone", str(error)) from error


def _seconds(path: str, text: str | None) -> float | None:
    """Return a time in RFC 3339 as seconds since the epoch."""
    if text is None:
        return None
    try:
        return clock.parse_rfc3339(text)
    except ValueError as error:
        raise InvalidSchedule(path, f"{text!r} is no time such as 2026-01-02T03:04:05Z") from error
