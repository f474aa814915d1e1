"""A tick is decided once, and its Job is created once."""

import uuid
from typing import Any

import pytest

from kilnwork.jobs import errors, index_job_types, row_storage, schedule_rows
from kilnwork.kit import ids

CONFIG = str(uuid.UUID(int=7))


def nothing(name: str, *values: object) -> list[tuple[Any, ...]]:
    return []


@pytest.fixture
def schedules() -> schedule_rows.Schedules:
    return schedule_rows.Schedules(row_storage.Tables(nothing))


def decision(tick: int, **more: Any) -> index_job_types.TickDecision:
    return index_job_types.TickDecision(config=CONFIG, namespace="ns", name="c", tick=tick, **more)


def test_ticks_are_decided_in_order(schedules: schedule_rows.Schedules) -> None:
    assert schedules.row(CONFIG) is None
    assert schedules.decide(decision(60, run=(60,))).pending == (60,)
    for late in (60, 0):
        with pytest.raises(errors.TickDecided, match="tick 60 was decided before"):
            schedules.decide(decision(late))
    row = schedules.decide(decision(180, run=(180, 120)))
    assert row.pending == (60, 120, 180)


def test_edited_schedule_may_decide_same_tick_again(schedules: schedule_rows.Schedules) -> None:
    schedules.decide(decision(60, run=(60,)))
    row = schedules.decide(decision(60, fingerprint="new", abandon=(60,), dropped={"Edited": 1}))
    assert (row.pending, row.dropped) == ((), {"Edited": 1})
    row = schedules.decide(decision(120, fingerprint="new", dropped={"Edited": 2}))
    assert row.dropped == {"Edited": 3}


def test_tick_makes_only_one_job(schedules: schedule_rows.Schedules) -> None:
    schedules.decide(decision(60, run=(60,)))
    assert schedules.refusal(CONFIG, 60, "a") == ""
    assert schedules.take(CONFIG, 60, "a") is not None
    assert schedules.take(CONFIG, 60, "b") is None
    assert schedules.refusal(CONFIG, 60, "a") == "", "a repetition"
    assert "another Job of this tick has run already: a" in schedules.refusal(CONFIG, 60, "b")
    assert "has not decided that this tick runs" in schedules.refusal(CONFIG, 120, "b")


def test_only_newest_ticks_are_remembered(schedules: schedule_rows.Schedules) -> None:
    ticks = tuple(range(schedule_rows.MAX_TAKEN + 2))
    schedules.decide(decision(ticks[-1], run=ticks))
    for tick in ticks:
        schedules.take(CONFIG, tick, str(tick))
    row = schedules.row(CONFIG)
    assert row is not None
    assert tuple(row.taken) == ticks[2:]


def test_row_read_from_journal_equals_written_row(schedules: schedule_rows.Schedules) -> None:
    schedules.decide(decision(60, run=(0, 60), dropped={"Late": 1}, latest_dropped=30))
    row = schedules.take(CONFIG, 0, "a")
    assert row is not None
    ((_, ((key, *columns),)),) = schedule_rows.writes(row)
    assert key == ids.task_id(CONFIG)

    def stored(name: str, *values: object) -> list[tuple[Any, ...]]:
        return [tuple(columns)]

    assert schedule_rows.Schedules(row_storage.Tables(stored)).row(CONFIG) == row


def test_forgotten_row_is_deleted(schedules: schedule_rows.Schedules) -> None:
    schedules.decide(decision(60))
    ((name, rows),) = schedules.forget(CONFIG)
    assert (name, rows) == ("delete_job_schedule", [(ids.task_id(CONFIG),)])
    assert schedules.row(CONFIG) is None
