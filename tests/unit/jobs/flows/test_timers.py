"""Deadlines follow the monotonic clock, even if the wall clock is changed."""

from kilnwork.jobs.flows import timers
from kilnwork.kit import clock as clocks


def test_keys_become_due_in_order_and_once() -> None:
    clock = clocks.ManualClock()
    made = timers.Timers[str](clock)
    assert [made.next_deadline_s] == [None]
    made.set("late", 20, started=clock.wall())
    made.set("soon", 10, started=clock.wall() - 4)
    assert made.next_deadline_s == 6
    clock.advance(6)
    assert made.take_due() == ["soon"]
    assert made.take_due() == []
    clock.advance(30)
    assert made.next_deadline_s == 0
    assert made.take_due() == ["late"]


def test_clock_change_does_not_change_deadlines() -> None:
    clock = clocks.ManualClock()
    made = timers.Timers[str](clock)
    made.set("a", 10, started=clock.wall())
    clock.jump(-3600)
    assert made.next_deadline_s == 10
    made.set("b", 5, started=clock.wall() + 3600)  # started before the clock was set back
    assert made.next_deadline_s == 5
    made.set("c", 5, started=clock.wall() - 3600)
    assert made.take_due() == ["c"]


def test_dropped_keys_never_become_due() -> None:
    clock = clocks.ManualClock()
    made = timers.Timers[str](clock)
    for key in ("a", "b", "c"):
        made.set(key, 1, started=clock.wall())
    made.drop(lambda key: key in "ac")
    clock.advance(1)
    assert made.take_due() == ["b"]
