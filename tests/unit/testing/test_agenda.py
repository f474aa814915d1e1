"""Timers of an inline session."""

from kilnwork.testing import agenda, clock


def test_timers_are_called_at_their_time_and_in_order() -> None:
    time = clock.VirtualClock()
    found = agenda.Agenda(time)
    start, done = found.now, list[tuple[str, float]]()
    for name, delay_s in (("late", 5.0), ("soon", 1.0), ("soon too", 1.0), ("never", 11.0)):
        found.at(delay_s, lambda name=name: done.append((name, found.now - start)))  # type: ignore[misc]
    assert found.next_time() == start + 1.0
    found.go_on_until(start + 10.0)
    assert done == [("soon", 1.0), ("soon too", 1.0), ("late", 5.0)]
    assert found.now == start + 10.0


def test_timers_added_meanwhile_are_called_too() -> None:
    found = agenda.Agenda(clock.VirtualClock())
    start, done = found.now, list[float]()
    found.at(1.0, lambda: found.at(1.0, lambda: done.append(found.now - start)))
    found.go_on_until(start + 2.0)
    assert done == [2.0]


def test_an_empty_agenda_has_nothing_to_do() -> None:
    found = agenda.Agenda(clock.VirtualClock())
    assert found.next_time() is None
    assert found.take() is None
