"""Who takes room first."""

from kilnwork.controllers.gangs import port, waiting_gangs
from kilnwork.kit import clock


def spec(name: str, priority: int) -> port.GangSpec:
    return port.GangSpec(
        namespace="default",
        name=name,
        uid=name,
        generation=1,
        groups=(),
        wait_s=1.0,
        requeue=True,
        priority=priority,
    )


LOW, HIGH, TOP = spec("low", 0), spec("high", 1), spec("top", 2)


def test_only_gangs_of_higher_priority_hold_back_others() -> None:
    found = waiting_gangs.WaitingGangs(clock.ManualClock())
    found.note(LOW, waits=True)
    found.note(HIGH, waits=True)
    assert found.ahead_of(HIGH) == ""
    assert found.ahead_of(spec("equal", 1)) == ""
    assert found.ahead_of(LOW) == (
        "SyncSet default/high of priority 1 waits for its turn before this one of priority 0"
    )
    found.note(TOP, waits=True)
    assert found.ahead_of(LOW).startswith("SyncSet default/top")


def test_gang_that_stopped_waiting_delays_no_other() -> None:
    found = waiting_gangs.WaitingGangs(clock.ManualClock())
    found.note(HIGH, waits=True)
    found.note(HIGH, waits=False)
    assert found.ahead_of(LOW) == ""


def test_lowered_priority_counts_immediately() -> None:
    found = waiting_gangs.WaitingGangs(clock.ManualClock())
    found.note(TOP, waits=True)
    fallen = spec("top", -1)
    assert found.ahead_of(fallen) == ""
    assert found.ahead_of(LOW) == ""


def test_gang_without_calls_is_forgotten() -> None:
    time = clock.ManualClock()
    found = waiting_gangs.WaitingGangs(time)
    found.note(HIGH, waits=True)
    time.advance(10.5)
    assert found.ahead_of(LOW) == ""
