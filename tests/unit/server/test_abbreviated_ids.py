"""The task that is meant by a few digits of its id."""

import pytest

from kilnwork.kit import ids
from kilnwork.server import abbreviated_ids, errors

TASKS = [ids.TaskId(bytes([number]) * 16) for number in range(1, 8)]


def test_single_match_is_returned() -> None:
    assert abbreviated_ids.find_only("01", TASKS[:1]) == TASKS[0]
    assert abbreviated_ids.find_only("ff", []) is None


@pytest.mark.parametrize("count", [2, 5, 6])
def test_at_most_five_matches_are_listed(count: int) -> None:
    with pytest.raises(errors.Conflict) as caught:
        abbreviated_ids.find_only("0", TASKS[:count])
    text = str(caught.value)
    named = [task for task in TASKS if ids.task_text(task) in text]
    assert named == TASKS[: min(count, 5)]
    assert ("…" in text) == (count > 5)
