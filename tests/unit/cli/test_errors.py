"""Exit codes of errors."""

import pytest

from kilnwork.cli import errors, exits


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.CommandError("x"), exits.Exit.FAILED),
        (errors.InvalidInput("x"), exits.Exit.USAGE),
        (errors.Unreachable("x"), exits.Exit.UNREACHABLE),
        (errors.Missing("x"), exits.Exit.NOT_FOUND),
        (errors.TimedOut("x"), exits.Exit.TIMED_OUT),
        (errors.AccessRefused("x"), exits.Exit.FORBIDDEN),
        (errors.TaskFailed("x"), exits.Exit.TASK_FAILED),
        (errors.TaskFailed("x", code=0), exits.Exit.TASK_FAILED),
        (errors.TaskFailed("x", code=9), 9),
    ],
)
def test_each_error_has_its_exit_code(error: errors.CommandError, code: int) -> None:
    assert error.code == code
