"""What may run again, and the request for it."""

import pytest

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.dispatch.journal import restore, task_rows
from support import scripted_calls

_S = api_task.State


def a_row(state: api_task.State) -> task_rows.TaskRow:
    world, task = scripted_calls.world_with_call(slots=0)
    record = world.task(task)
    record.state, record.name, record.child_key = state, "n", "=k"
    return task_rows.of_record(record)


@pytest.mark.parametrize(
    ("state", "force", "why"),
    [
        (_S.FAILED, False, ""),
        (_S.KILLED, False, ""),
        (_S.SUCCESS, True, ""),
        (_S.SUCCESS, False, "task n has succeeded: `kiln retry --force` runs it again"),
        (_S.RUNNING, True, "task n is Running, not over: cancel it first"),
    ],
)
def test_finished_run_may_be_followed_by_another(
    state: api_task.State, why: str, *, force: bool
) -> None:
    assert restore.rerun_refusal(a_row(state), force=force) == why


def test_only_failed_runs_are_retried_as_failed() -> None:
    assert restore.failed_refusal(a_row(_S.FAILED)) == ""
    assert "nothing of it failed" in restore.failed_refusal(a_row(_S.SUCCESS))
    assert "not over" in restore.failed_refusal(a_row(_S.PENDING))
    assert "does not know this task" in restore.failed_refusal(None)


def test_a_rerun_is_the_next_run_of_the_same_task() -> None:
    row = a_row(_S.FAILED)
    item = restore.rerun(row, {})
    assert (item.task, item.run, item.name, item.key) == (row.task, 2, "n", "=k")
    assert item.arguments == scripted_calls.ARGUMENTS
    assert not item.of_family
    parent = attempts.AttemptRef(scripted_calls.task_id(9), 1, 0)
    child = restore.rerun(row, {}, family=parent)
    assert (child.parent, child.of_family) == (parent, True)
