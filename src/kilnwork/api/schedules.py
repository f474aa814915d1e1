"""Due ticks of a schedule: those to run, those dropped and why, and when to look again.

`CompiledSchedule` is a JobConfig's schedule with its expressions parsed; `plan` decides from it,
the time and what was decided before. Used by the controller of JobConfigs, which carries a Plan out
and writes down `decided` with it; by the commands that show and backfill. Pure: no clock, no I/O.
How expressions become times is in `cron`.

A *tick* is a UTC second. Every tick is decided once, in order: none at or before the last decided
one, or at or before the epoch of the schedule, is looked at again, whatever clocks do.
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
"""How late a tick may be decided and still be on time; later ones are missed.

Longer than a manager takes for 10,000 schedules that are due in one second, and than a busy machine
or a slow disk holds it up; much shorter than a minute, so that after a restart no schedule by the
minute has more than one tick that counts as on time.
"""

NEXT_RUNS = 5
"""How many ticks to come the status shows."""

MAX_MERGED = 1000
"""How many ticks of several expressions are put together to count each second once."""


class InvalidSchedule(errors.KilnError):
    """A field of the schedule is wrong; `path` says which, below `spec.schedule`."""

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(f"spec.schedule.{path}: {detail}")
        self.path = path
        self.detail = detail


class DropReason(StrEnum):
    """Why a missed tick makes no Job."""

    TOO_LATE = "TooLate"
    """The tick is older than `missedRuns.withinSeconds`."""
    MISSED_RUNS_POLICY = "MissedRunsPolicy"
    """`missedRuns.policy` drops it, or a later one runs in its place."""


class WaitReason(StrEnum):
    """Why a schedule makes no Job now."""

    NOT_YET_DUE = "NotYetDue"
    """The next tick is to come."""
    DISABLED = "Disabled"
    CLOCK_BEHIND = "ClockBehind"
    """The clock shows less than the last decided tick: it was set back."""
    ENDED = "Ended"
    """No tick is to come."""


class Dropped(msgspec.Struct, frozen=True, gc=False):
    """Missed ticks that make no Job."""

    reason: DropReason
    count: int
    """How many; where not `exact`, at least so many."""
    latest: int
    """The latest of them."""
    exact: bool = True


class Facts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The facts for a plan of a schedule. Times are seconds since the Unix epoch."""

    now: float
    """Wall time."""
    epoch: float
    """Ticks up to then are over: the latest of the creation of the JobConfig, `lastUpdated`, and
    the last time that it was enabled. It may lie ahead."""
    decided: int | None = None
    """Last decided tick; None before the first."""


class Plan(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The plan for a schedule at one moment."""

    run: tuple[int, ...] = ()
    """Ticks to make Jobs for, the oldest first."""
    dropped: tuple[Dropped, ...] = ()
    """Missed ticks, at most one entry for each reason."""
    decided: int | None = None
    """Last decided tick after this plan; to be stored with what the plan does."""
    next_tick: int | None = None
    """When to look again; None: only after a change of the JobConfig."""
    waiting: WaitReason | None = None
    """Why there is nothing to run; None if there is."""

    @property
    def message(self) -> str:
        """What the plan waits for, as a sentence for people; empty if it does not wait."""
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
    """A schedule whose expressions, zone and bounds are read."""

    expressions: tuple[cron.CronExpression, ...]
    zone: dt.tzinfo
    not_before: int
    """First second that may be a tick."""
    not_after: int
    """Last second that may be a tick."""
    last_updated: float | None
    """Second up to which ticks are over, as written in the schedule; one part of `Facts.epoch`."""
    disabled: bool
    daylight_saving: job_config.DaylightSaving
    missed_runs: job_config.MissedRuns

    @classmethod
    def of(cls, spec: job_config.Schedule, *, namespace: str, name: str) -> "CompiledSchedule":
        """Return the schedule of the JobConfig `namespace/name`; raise InvalidSchedule."""
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
        """Yield the ticks after a second, in order, each once."""
        walks = (self._walk(each, after) for each in self.expressions)
        for tick, _ in itertools.groupby(heapq.merge(*walks)):
            yield tick

    def newest(self, after: int, until: int, count: int) -> tuple[int, ...]:
        """Return the last `count` ticks (1 or more) after a second and not after another.

        The work grows with `count`, and hardly with the span.
        """
        found: set[int] = set()
        for each in self.expressions:
            found.update(self._newest(each, after, until, count=count))
        return tuple(sorted(found)[-count:])

    def count(self, after: int, until: int) -> tuple[int, bool]:
        """Return how many ticks come after a second and not after another, and whether exactly.

        One expression is counted by days. Several may name the same second: up to MAX_MERGED ticks
        are put together; more are at least as many as those of one expression.
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

        A second is looked for after which at least `count` ticks are left, and not many more.
        """
        reach = 60  # seconds before `until`; the span is not counted at once, since that costs time
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


def plan(schedule: CompiledSchedule, facts: Facts) -> Plan:
    """Plan what to do about a schedule now.

    Repeatable: the same facts give the same plan, and facts with the `decided` of a plan give none
    of its ticks again.
    """
    if schedule.disabled:
        return Plan(decided=facts.decided, waiting=WaitReason.DISABLED)
    now = math.floor(facts.now)
    floor = math.floor(facts.epoch)
    if facts.decided is not None:
        floor = max(floor, facts.decided)
    first = schedule.next_after(floor)
    if first is None or first > now:
        return Plan(
            decided=facts.decided,
            next_tick=first,
            waiting=_waiting(first, now=now, decided=facts.decided),
        )
    late = max(floor, now - ON_TIME_S - 1)
    on_time = []
    tick: int | None = first if first > late else schedule.next_after(late)
    while tick is not None and tick <= now:
        on_time.append(tick)
        tick = schedule.next_after(tick)
    made_up: tuple[int, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    if first <= late:
        made_up, dropped = _missed(schedule, floor, late, now=now, superseded=bool(on_time))
    run = (*made_up, *on_time)
    return Plan(
        run=run,
        dropped=dropped,
        decided=max((*run, *(each.latest for each in dropped))),
        next_tick=tick,
    )


def begin(config: job_config.JobConfig) -> float:
    """Return the second up to which ticks are over, whatever the journal has: a schedule begins
    with its JobConfig."""
    spec = config.spec.schedule
    given = None if spec is None else spec.last_updated
    times = (config.metadata.creation_timestamp, given)
    return max((clock.parse_rfc3339(one) for one in times if one is not None), default=0.0)


def upcoming(schedule: CompiledSchedule, after: int, count: int = NEXT_RUNS) -> tuple[int, ...]:
    """Return the next `count` ticks after a second, also if the schedule is disabled."""
    return tuple(itertools.islice(schedule.ticks(after), count))


def between(schedule: CompiledSchedule, start: int, end: int, *, limit: int) -> tuple[int, ...]:
    """Return the ticks from `start` to `end`, both included: the first `limit` of them.

    For a backfill. Whether there are more is seen by asking for one more than may be.
    """
    ticks = itertools.takewhile(lambda tick: tick <= end, schedule.ticks(start - 1))
    return tuple(itertools.islice(ticks, limit))


def _missed(
    schedule: CompiledSchedule, floor: int, late: int, *, now: int, superseded: bool
) -> tuple[tuple[int, ...], tuple[Dropped, ...]]:
    """Return which ticks after `floor` and not after `late` run, and the others by reason.

    `superseded`: a tick on time runs, which is later than all of them.
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


def _waiting(first: int | None, *, now: int, decided: int | None) -> WaitReason:
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
    """Return a time in RFC 3339 as seconds."""
    if text is None:
        return None
    try:
        return clock.parse_rfc3339(text)
    except ValueError as error:
        raise InvalidSchedule(path, f"{text!r} is no time such as 2026-01-02T03:04:05Z") from error
