"""Due ticks of a schedule: missed runs, bounds, edits, and clocks that are set."""

import datetime as dt
import math
import timeit

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from kilnwork.api import due_ticks, job_config

Policy = job_config.MissedPolicy
TOO_LATE = due_ticks.DropReason.TOO_LATE
BY_POLICY = due_ticks.DropReason.MISSED_RUNS_POLICY
Waiting = due_ticks.WaitReason
DAY_S = 86_400


def seconds(text: str) -> int:
    return int(dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC).timestamp())


NOON = seconds("2026-06-01T12:00:00")


def schedule(
    *expressions: str,
    policy: Policy = Policy.LATEST,
    most: int = 5,
    within: int = DAY_S,
    **more: object,
) -> due_ticks.CompiledSchedule:
    """Return the schedule of the JobConfig default/report."""
    missed = {"policy": policy.value, "maxRuns": most, "withinSeconds": within}
    cron = {"expressions": list(expressions), "timezone": more.pop("timezone", "")}
    spec = msgspec.convert({"cron": cron, "missedRuns": missed, **more}, job_config.Schedule)
    return due_ticks.CompiledSchedule.of(spec, namespace="default", name="report")


def plan(
    what: due_ticks.CompiledSchedule, now: float, *, epoch: float = 0, decided: int | None = None
) -> due_ticks.SchedulePlan:
    return due_ticks.plan(what, due_ticks.ScheduleFacts(now=now, epoch=epoch, decided=decided))


def drops(found: due_ticks.SchedulePlan) -> dict[due_ticks.DropReason, int]:
    return {dropped.reason: dropped.count for dropped in found.dropped}


class Clock:
    """A manager that plans at the times of its last plan, and whenever the test requests it."""

    def __init__(self, what: due_ticks.CompiledSchedule, *, epoch: float, now: float) -> None:
        self.schedule = what
        self.epoch = epoch
        self.now = now
        self.decided: int | None = None
        self.ran: list[int] = []
        self.dropped = 0
        self.last = self.look()

    def look(self) -> due_ticks.SchedulePlan:
        self.last = plan(self.schedule, self.now, epoch=self.epoch, decided=self.decided)
        self.decided = self.last.decided
        self.ran += self.last.run
        self.dropped += sum(dropped.count for dropped in self.last.dropped)
        return self.last

    def go_on(self, until: float) -> None:
        """Let time pass, and plan at every tick."""
        while self.last.next_tick is not None and self.last.next_tick <= until:
            self.now = max(self.now, self.last.next_tick)
            self.look()
        self.now = until


def test_tick_on_time_runs() -> None:
    hourly = schedule("0 * * * *")
    found = plan(hourly, NOON + 0.02, epoch=NOON - 60)
    assert found == due_ticks.SchedulePlan(run=(NOON,), decided=NOON, next_tick=NOON + 3600)


def test_nothing_is_due_before_a_tick() -> None:
    hourly = schedule("0 * * * *")
    found = plan(hourly, NOON - 0.001, epoch=NOON - 60)
    assert found == due_ticks.SchedulePlan(next_tick=NOON, waiting=Waiting.NOT_YET_DUE)
    assert found.message == "the next run is at 2026-06-01T12:00:00Z"


@pytest.mark.parametrize("policy", list(Policy))
def test_ticks_within_a_few_seconds_are_on_time_under_every_policy(policy: Policy) -> None:
    """A short pause of the manager's process is not an outage."""
    each_second = schedule("* * * * * * *", policy=policy)
    found = plan(each_second, NOON + 7.9, epoch=0, decided=NOON)
    assert found.run == tuple(range(NOON + 1, NOON + 8))
    assert found.dropped == ()
    daily = schedule("0 12 * * *", policy=policy)
    late = due_ticks.ON_TIME_S + 0.5
    assert plan(daily, NOON + late, epoch=0, decided=NOON - DAY_S).run == (NOON,)


@pytest.mark.parametrize(
    ("policy", "most", "within", "run", "dropped"),
    [
        (Policy.NONE, 5, DAY_S, [], {BY_POLICY: 10}),
        (Policy.NONE, 5, 4 * 3600, [], {BY_POLICY: 4, TOO_LATE: 6}),
        (Policy.LATEST, 5, DAY_S, [9], {BY_POLICY: 9}),
        (Policy.LATEST, 5, 4 * 3600, [9], {BY_POLICY: 3, TOO_LATE: 6}),
        (Policy.LATEST, 5, 60, [], {TOO_LATE: 10}),
        (Policy.ALL, 3, DAY_S, [7, 8, 9], {BY_POLICY: 7}),
        (Policy.ALL, 1000, DAY_S, list(range(10)), {}),
        (Policy.ALL, 1000, 4 * 3600, [6, 7, 8, 9], {TOO_LATE: 6}),
        (Policy.ALL, 2, 4 * 3600, [8, 9], {BY_POLICY: 2, TOO_LATE: 6}),
    ],
)
def test_missed_ticks_follow_the_policy(
    policy: Policy,
    most: int,
    within: int,
    run: list[int],
    dropped: dict[due_ticks.DropReason, int],
) -> None:
    """Table (c), row 9: ten ticks passed, the last one half an hour ago."""
    hourly = schedule("0 * * * *", policy=policy, most=most, within=within)
    now = NOON + 9 * 3600 + 1800
    found = plan(hourly, now, epoch=0, decided=NOON - 3600)
    assert found.run == tuple(NOON + hour * 3600 for hour in run)
    assert drops(found) == dropped
    assert all(each.exact for each in found.dropped)
    assert found.decided == NOON + 9 * 3600
    assert found.next_tick == NOON + 10 * 3600


@pytest.mark.parametrize(
    ("policy", "run", "dropped"),
    [
        (Policy.NONE, [3], {BY_POLICY: 3}),
        (Policy.LATEST, [3], {BY_POLICY: 3}),
        (Policy.ALL, [1, 2, 3], {BY_POLICY: 1}),
    ],
)
def test_missed_ticks_before_a_tick_on_time(
    policy: Policy, run: list[int], dropped: dict[due_ticks.DropReason, int]
) -> None:
    hourly = schedule("0 * * * *", policy=policy, most=2)
    found = plan(hourly, NOON + 3 * 3600 + 1, epoch=0, decided=NOON - 3600)
    assert found.run == tuple(NOON + hour * 3600 for hour in run)
    assert drops(found) == dropped


def test_missed_tick_runs_only_within_the_limit() -> None:
    daily = schedule("0 12 * * *", within=3600)
    assert plan(daily, NOON + 3600.9, epoch=0, decided=NOON - DAY_S).run == (NOON,)
    late = plan(daily, NOON + 3601, epoch=0, decided=NOON - DAY_S)
    assert (late.run, drops(late), late.decided) == ((), {TOO_LATE: 1}, NOON)


def test_latest_dropped_tick_is_reported() -> None:
    hourly = schedule("0 * * * *", policy=Policy.ALL, most=1, within=2 * 3600)
    found = plan(hourly, NOON + 1800, epoch=0, decided=NOON - 6 * 3600)
    assert {each.reason: each.latest for each in found.dropped} == {
        TOO_LATE: NOON - 2 * 3600,
        BY_POLICY: NOON - 3600,
    }


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("expression", ["* * * * *", "* * * * * * *", "1,2,17 4 * * *"])
def test_years_of_missed_ticks_are_counted_quickly(policy: Policy, expression: str) -> None:
    """Table (c), row 8: more than a hundred missed ticks, and the schedule continues."""
    each = schedule(expression, policy=policy, most=1000, within=60)
    begin = NOON - 10 * 365 * DAY_S

    def look() -> due_ticks.SchedulePlan:
        return plan(each, NOON + 30.5, epoch=begin)

    found = look()
    assert found.decided is not None
    assert found.next_tick is not None
    assert found.next_tick > NOON + 30
    assert found.run == tuple(sorted(found.run))
    days = 10 * 365
    wanted = {"* * * * *": days * 1440, "* * * * * * *": days * DAY_S + 30}
    total = len(found.run) + sum(drops(found).values())
    assert total == wanted.get(expression, days * 3)
    assert min(timeit.repeat(look, number=1, repeat=3)) < 0.2


def test_uneven_schedules_continue_after_a_long_outage() -> None:
    """Table (c), row 8: the next time of an uneven schedule is right, without a hot loop."""
    uneven = schedule("0 9 * * 1-5", "0 0 29 2 *", policy=Policy.LATEST)
    found = plan(uneven, seconds("2028-03-01T12:00:00"), epoch=seconds("2024-03-05T00:00:00"))
    assert found.run == (seconds("2028-03-01T09:00:00"),)
    assert found.next_tick == seconds("2028-03-02T09:00:00")


def test_several_expressions_run_each_second_once() -> None:
    both = schedule("0 * * * *", "*/30 * * * *", "0 12 * * *", policy=Policy.ALL, most=100)
    assert due_ticks.upcoming_ticks(both, NOON - 1, 3) == (NOON, NOON + 1800, NOON + 3600)
    found = plan(both, NOON + 3600 * 3 + 60, epoch=NOON - 1)
    assert found.run == tuple(NOON + 1800 * half for half in range(7))
    assert plan(both, NOON + 1, epoch=NOON - 1).run == (NOON,)


def test_count_of_several_expressions_is_exact_or_a_lower_bound() -> None:
    both = schedule("* * * * *", "*/2 * * * *", policy=Policy.NONE)
    (few,) = plan(both, NOON + 10 * 3600 + 30, epoch=NOON).dropped
    assert (few.count, few.exact) == (600, True)
    (many,) = plan(both, NOON + 20 * 3600 + 30, epoch=NOON).dropped
    assert (many.count, many.exact) == (1200, False)
    apart = schedule("0 * * * * ? 2027", "* * * * *", policy=Policy.NONE)
    (one,) = plan(apart, NOON + 20 * 3600 + 30, epoch=NOON).dropped
    assert (one.count, one.exact) == (1200, True)


def test_bounds_are_inclusive_for_every_tick() -> None:
    """Table (c), row 4: also if the schedule is changed while it runs."""
    bounds = {"notBefore": "2026-06-01T12:00:00Z", "notAfter": "2026-06-01T14:00:00+00:00"}
    bound = schedule("0 * * * *", constraints=bounds, policy=Policy.ALL)
    wanted = (NOON, NOON + 3600, NOON + 7200)
    assert due_ticks.upcoming_ticks(bound, 0, 10) == wanted
    assert due_ticks.ticks_between(bound, 0, NOON * 2, limit=10) == wanted
    assert plan(bound, NOON - 1, epoch=0, decided=NOON - 7200).next_tick == NOON
    late = plan(bound, NOON + 9000, epoch=0, decided=NOON - 7200)
    assert late.run == wanted
    assert late.dropped == ()
    assert late.next_tick is None
    over = plan(bound, NOON + 9000, epoch=0, decided=NOON + 7200)
    assert (over.run, over.next_tick, over.waiting) == ((), None, Waiting.ENDED)
    assert "spec.schedule" in over.message


def test_bounds_between_seconds() -> None:
    bounds = {"notBefore": "2026-06-01T12:00:00.5Z", "notAfter": "2026-06-01T12:00:02.5Z"}
    bound = schedule("* * * * * * *", constraints=bounds)
    assert due_ticks.upcoming_ticks(bound, 0, 10) == (NOON + 1, NOON + 2)


def test_edits_and_enabling_never_run_past_ticks() -> None:
    """Table (c), row 6: ticks before the epoch are neither run nor counted."""
    hourly = schedule("0 * * * *", policy=Policy.ALL)
    edited = plan(hourly, NOON + 3600 * 5 + 60, epoch=NOON + 3600 * 5 + 30, decided=NOON)
    assert (edited.run, edited.dropped) == ((), ())
    assert edited.next_tick == NOON + 3600 * 6
    at_the_tick = plan(hourly, NOON + 0.5, epoch=NOON)
    assert at_the_tick.run == ()
    ahead = plan(hourly, NOON + 60, epoch=NOON + 3 * 3600 + 60, decided=NOON)
    assert ahead.next_tick == NOON + 4 * 3600


def test_disabled_schedule_runs_nothing_but_shows_its_ticks() -> None:
    hourly = schedule("0 * * * *", disabled=True)
    found = plan(hourly, NOON + 1, epoch=0, decided=NOON - 3600)
    assert found == due_ticks.SchedulePlan(decided=NOON - 3600, waiting=Waiting.DISABLED)
    assert "spec.schedule.disabled" in found.message
    assert due_ticks.upcoming_ticks(hourly, NOON, 1) == (NOON + 3600,)


def test_clock_set_back_runs_no_tick_twice() -> None:
    """Table (c), row 11."""
    clock = Clock(schedule("*/10 * * * *"), epoch=NOON - 1, now=NOON)
    clock.go_on(NOON + 3600)
    ran = list(clock.ran)
    clock.now -= 3600
    back = clock.look()
    assert (back.run, back.waiting) == ((), Waiting.CLOCK_BEHIND)
    assert back.next_tick == NOON + 4200
    assert "2026-06-01T13:00:00Z" in back.message
    clock.go_on(NOON + 4200)
    assert clock.ran == [*ran, NOON + 4200]


def test_clock_is_behind_only_before_the_last_decided_tick() -> None:
    hourly = schedule("0 * * * *")
    assert plan(hourly, NOON - 0.5, epoch=0, decided=NOON).waiting is Waiting.CLOCK_BEHIND
    assert plan(hourly, NOON, epoch=0, decided=NOON).waiting is Waiting.NOT_YET_DUE


def test_clock_set_forward_is_an_outage() -> None:
    """Table (c), row 11."""
    clock = Clock(schedule("*/10 * * * *"), epoch=NOON - 1, now=NOON)
    clock.now += 3600 + 60
    assert clock.look().run == (NOON + 3600,)
    assert clock.dropped == 5
    clock.now -= 3600  # and right again
    assert clock.look().waiting is Waiting.CLOCK_BEHIND
    clock.go_on(NOON + 2 * 3600)
    assert clock.ran == [NOON, *range(NOON + 3600, NOON + 2 * 3600 + 1, 600)]


def test_wrong_clock_at_the_start_is_tolerated() -> None:
    """Table (c), row 11: the clock is in 1970, as on boards without a battery."""
    clock = Clock(schedule("0 * * * *"), epoch=NOON - 60, now=5)
    assert clock.last.next_tick == NOON
    clock.now = NOON + 1
    assert clock.look().run == (NOON,)


def test_change_of_clocks_follows_the_policy_of_the_schedule() -> None:
    """Table (c), row 10."""
    plain = schedule("30 2 * * *", timezone="Europe/Zurich")
    furiko = schedule(
        "30 2 * * *", timezone="Europe/Zurich", daylightSaving={"gap": "Skip", "overlap": "Both"}
    )
    spring, autumn = seconds("2026-03-28T12:00:00"), seconds("2026-10-24T12:00:00")
    assert due_ticks.upcoming_ticks(plain, spring, 1) == (seconds("2026-03-29T01:00:00"),)
    assert due_ticks.upcoming_ticks(furiko, spring, 1) == (seconds("2026-03-30T00:30:00"),)
    first = seconds("2026-10-25T00:30:00")
    assert due_ticks.upcoming_ticks(plain, autumn, 2) == (first, first + 25 * 3600)
    assert due_ticks.upcoming_ticks(furiko, autumn, 2) == (first, first + 3600)


def test_ticks_between_two_times_for_a_backfill() -> None:
    daily = schedule("0 12 * * *")
    assert due_ticks.ticks_between(daily, NOON, NOON + 2 * DAY_S, limit=10) == (
        NOON,
        NOON + DAY_S,
        NOON + 2 * DAY_S,
    )
    assert due_ticks.ticks_between(daily, NOON, NOON + 1000 * DAY_S, limit=2) == (
        NOON,
        NOON + DAY_S,
    )
    assert due_ticks.ticks_between(daily, NOON + 1, NOON + DAY_S - 1, limit=2) == ()
    assert due_ticks.ticks_between(daily, NOON + DAY_S, NOON, limit=2) == ()


@pytest.mark.parametrize(
    ("spec", "path", "detail"),
    [
        ({"cron": {"expression": "61 * * * *"}}, "cron.expression", "minute: '61'"),
        ({"cron": {"expressions": ["@daily", "x"]}}, "cron.expressions[1]", "1 field:"),
        ({"cron": {}}, "cron.expression", "give this or expressions"),
        ({"cron": {"expressions": [""]}}, "cron.expressions[0]", "0 fields"),
        (
            {"cron": {"expression": "@daily", "expressions": ["@daily"]}},
            "cron.expressions",
            "not both",
        ),
        ({"cron": {"expression": "@daily", "timezone": "Mars"}}, "cron.timezone", "'Mars'"),
        ({"constraints": {"notBefore": "soon"}}, "constraints.notBefore", "'soon'"),
        ({"constraints": {"notAfter": "2026-01-01T00:00:00"}}, "constraints.notAfter", "no time"),
        ({"lastUpdated": "2026-13-01T00:00:00Z"}, "lastUpdated", "'2026-13-01T00:00:00Z'"),
        (
            {
                "constraints": {
                    "notBefore": "2026-02-01T00:00:00Z",
                    "notAfter": "2026-01-01T00:00:00Z",
                }
            },
            "constraints.notAfter",
            "is before notBefore",
        ),
    ],
)
def test_invalid_schedule_is_refused_with_its_path(
    spec: dict[str, object], path: str, detail: str
) -> None:
    with pytest.raises(due_ticks.InvalidSchedule) as caught:
        due_ticks.CompiledSchedule.of(
            msgspec.convert(spec, job_config.Schedule), namespace="default", name="report"
        )
    assert caught.value.path == path
    assert detail in caught.value.detail
    assert str(caught.value).startswith(f"spec.schedule.{path}: ")


def test_schedule_without_cron_has_no_ticks() -> None:
    empty = due_ticks.CompiledSchedule.of(job_config.Schedule(), namespace="default", name="report")
    assert plan(empty, NOON, epoch=0).waiting is Waiting.ENDED


EXPRESSIONS = ["*/7 * * * *", "0 * * * *", "13 5 * * *", "H H * * *", "*/11 * * * * * *"]


@given(
    expressions=some.lists(some.sampled_from(EXPRESSIONS), min_size=1, max_size=3, unique=True),
    policy=some.sampled_from(Policy),
    most=some.integers(1, 50),
    within=some.integers(1, 2 * DAY_S),
    jumps=some.lists(some.integers(-7200, 3 * 3600), max_size=30),
)
def test_every_tick_is_decided_once_whatever_clocks_do(
    expressions: list[str], policy: Policy, most: int, within: int, jumps: list[int]
) -> None:
    """Row 11: run and dropped ticks together are all ticks, each once and in order."""
    what = schedule(*expressions, policy=policy, most=most, within=within)
    clock = Clock(what, epoch=NOON, now=NOON)
    for jump in jumps:
        clock.now += jump
        clock.look()
        clock.go_on(clock.now + 60)
    assert clock.ran == sorted(set(clock.ran))
    decided = clock.decided or NOON
    ticks = due_ticks.ticks_between(what, NOON + 1, decided, limit=10**6)
    assert set(clock.ran) <= set(ticks)
    if len(expressions) == 1 or len(ticks) * len(expressions) <= due_ticks.MAX_MERGED:
        assert len(clock.ran) + clock.dropped == len(ticks)
    else:
        assert len(clock.ran) + clock.dropped <= len(ticks)
    after = clock.last.next_tick
    assert after is not None
    assert after == what.next_after(max(decided, math.floor(clock.now) - 60))


@given(
    expressions=some.lists(some.sampled_from(EXPRESSIONS), min_size=1, max_size=3, unique=True),
    begin=some.integers(0, 3 * DAY_S),
    length=some.integers(0, DAY_S),
    most=some.integers(1, 40),
)
def test_newest_and_count_agree_with_iteration(
    expressions: list[str], begin: int, length: int, most: int
) -> None:
    what = schedule(*expressions)
    after, until = NOON + begin, NOON + begin + length
    walked = due_ticks.ticks_between(what, after + 1, until, limit=10**6)
    assert what.newest(after, until, most) == walked[-most:]
    count, exact = what.count(after, until)
    assert count == len(walked) if exact else count <= len(walked)
