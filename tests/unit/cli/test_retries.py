"""What is printed of a retry, and what cannot be retried."""

import pytest

from kilnwork.cli import errors, retries


@pytest.mark.parametrize(
    ("state", "run", "is_followed"),
    [("Running", 2, True), ("Running", 1, False), ("Failed", 2, False), ("", 2, True)],
)
def test_a_retry_that_another_caller_began_is_followed(
    state: str,
    run: int,
    is_followed: bool,  # noqa: FBT001
) -> None:
    assert retries._runs_again(state, run) is is_followed


@pytest.mark.parametrize(
    ("state", "words"),
    [("Running", "task a is Running, not over"), ("", "task a is new, not over")],
)
def test_a_task_that_is_not_over_is_cancelled_first(state: str, words: str) -> None:
    with pytest.raises(errors.CommandError, match=words):
        retries._check("a", {}, state)


def test_a_suspended_task_is_resumed_first() -> None:
    retries._check("a", {}, "Failed")
    with pytest.raises(errors.CommandError, match="`kiln resume a` first"):
        retries._check("a", {"suspend": True}, "Failed")
