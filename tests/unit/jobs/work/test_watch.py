"""Progress of a part is reported at intervals as a fraction; each time stop requests are
checked."""

import pytest

from kilnwork.jobs.work import watch
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids
from kilnwork.sdk import context, errors


def watching(count: int = 10) -> tuple[watch.Watch, clocks.ManualClock, list[tuple[object, str]]]:
    said: list[tuple[object, str]] = []
    clock = clocks.ManualClock()
    here = context.Context(
        ids.TaskId(bytes(16)), run=1, attempt=1, report=lambda part, text: said.append((part, text))
    )
    return watch.Watch(here, first=101, count=count, clock=clock), clock, said


def test_progress_is_reported_twice_a_second() -> None:
    look, clock, said = watching()
    look(101)
    assert said == []
    clock.advance(watch.PROGRESS_INTERVAL_S)
    look(106)
    look(107)
    assert said == [(0.5, "5 of 10 records")]
    clock.advance(watch.PROGRESS_INTERVAL_S)
    look(111)
    assert said[1:] == [(1.0, "10 of 10 records")]


def test_progress_stays_between_0_and_1() -> None:
    look, clock, said = watching()
    for number in (5, 500):
        clock.advance(watch.PROGRESS_INTERVAL_S)
        look(number)
    assert [fraction for fraction, _ in said] == [0.0, 1.0]


def test_progress_of_no_records_is_1() -> None:
    look, clock, said = watching(count=0)
    clock.advance(watch.PROGRESS_INTERVAL_S)
    look(101)
    assert said == [(1.0, "0 of 0 records")]


def test_cancelled_task_raises() -> None:
    look, _, _ = watching()
    look._here.stop()
    with pytest.raises(errors.Cancelled):
        look(101)
