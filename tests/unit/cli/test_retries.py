"""Texts about a retry, and refused retries."""

import pytest

from kilnwork.cli import errors, retries


@pytest.mark.parametrize(
    ("state", "run", "is_followed"),
    [("Running", 2, True), ("Running", 1, False), ("Failed", 2, False), ("", 2, True)],
)
def test_retry_of_another_caller_is_followed(
    state: str,
    run: int,
    is_followed: bool,  # noqa: FBT001
) -> None:
    assert retries._runs_again(state, run) is is_followed


@pytest.mark.parametrize(
    ("state", "words"),
    [("Running", "task a is Running, not finished"), ("", "task a is new, not finished")],
)
def test_unfinished_task_is_refused_with_a_hint_to_cancel(state: str, words: str) -> None:
    with pytest.raises(errors.CommandError, match=words):
        retries._check("a", {}, state)


def test_suspended_task_is_refused_with_a_hint_to_resume() -> None:
    retries._check("a", {}, "Failed")
    with pytest.raises(errors.CommandError, match="`kiln resume a` first"):
        retries._check("a", {"suspend": True}, "Failed")
