"""Which children a new run of their parent runs again."""

import pytest

from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import inputs

_S = api_task.State


@pytest.mark.parametrize(
    ("state", "requested_by", "again"),
    [
        (_S.FAILED, 0, True),
        (_S.KILLED, 0, True),
        (_S.SUCCESS, 0, False),
        (_S.RUNNING, 0, False),
        (_S.FAILED, 1, False),
    ],
)
def test_child_that_failed_under_an_earlier_run_is_retried(
    state: api_task.State, requested_by: int, *, again: bool
) -> None:
    assert inputs.to_be_retried(state, requested_by) is again
