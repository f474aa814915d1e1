"""What is stored of a task: values of columns, and the view that others get."""

import pytest

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.dispatch.journal import task_rows
from kilnwork.dispatch.machine import records
from support import scripted_calls

_S = api_task.State


def a_record(**facts: object) -> records.Task:
    world, task = scripted_calls.world_with_call(slots=0)
    record = world.task(task)
    for name, value in facts.items():
        setattr(record, name, value)
    return record


def test_view_of_a_row_equals_the_record() -> None:
    record = a_record(name="n", failures=2, losses=1, attempt=3, unstarted=1, exit_code=7)
    record.result = attempts.Payload(attempts.JSON, b"[1]")
    view = task_rows.view(task_rows.of_record(record), api_task.ChildCounts(total=4), seq=9)
    assert (view.task, view.name, view.state, view.seq) == (record.id, "n", _S.PENDING, 9)
    assert (view.failures, view.losses, view.attempts, view.exit_code) == (2, 1, 2, 7)
    assert (view.function, view.children.total) == ("m:f", 4)
    assert view.result == record.result


def test_row_parts_match_the_statements() -> None:
    record = a_record(message="m", failures=1)
    row = task_rows.of_record(record)
    assert task_rows.changed_values_of_row(row) == task_rows.changed_values(record)
    assert len(task_rows.values(record)) == len(task_rows.OWN_SPEC)


@pytest.mark.parametrize("change", ["attempt", "resumptions", "suspended", "exit_code"])
def test_narrow_statement_is_used_only_for_unchanged_columns(change: str) -> None:
    world, task = scripted_calls.world_with_call()
    record = world.task(task)  # in its first attempt
    assert task_rows.unchanged(record)
    setattr(record, change, 2)
    assert not task_rows.unchanged(record)


def test_long_arguments_are_not_in_the_row_of_a_new_call() -> None:
    at = next(n for n, column in enumerate(task_rows.NEW_CALL) if column.name == "arguments")
    for size, kept in (
        (task_rows.MAX_ROW_ARGUMENTS, True),
        (task_rows.MAX_ROW_ARGUMENTS + 1, False),
    ):
        record = a_record(arguments=attempts.Payload(attempts.JSON, b"x" * size))
        value = task_rows.new_call_values(record)[at]
        assert (value is not None) is kept


def test_children_are_summed_by_state() -> None:
    states = [("Success", 3), ("Failed", 1), ("Killed", 2), ("Pending", 4), ("Running", 5)]
    found = task_rows.counts(states)
    assert (found.total, found.running, found.succeeded, found.failed) == (15, 9, 3, 3)


def test_packed_ids_and_digests_are_split() -> None:
    assert task_rows.tasks(None) == ()
    assert task_rows.tasks(b"a" * 16 + b"b" * 16) == (b"a" * 16, b"b" * 16)
    payload = task_rows.payload_of(attempts.JSON, b"1", None, None, b"c" * 64)
    assert payload is not None
    assert payload.blobs == (b"c" * 32, b"c" * 32)
    assert task_rows.payload_of(None, b"1", None, None, None) is None
    assert task_rows.usage(None, 5) is None
    assert task_rows.usage(1.5, 5) == attempts.Usage(1.5, 5)
