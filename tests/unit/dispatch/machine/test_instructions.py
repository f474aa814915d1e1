"""A batch is written if it has rows, and is empty if there is nothing to do at all."""

import pytest

from kilnwork.dispatch.machine import instructions
from support import scripted_calls

TASK = scripted_calls.task_id(1)


def test_a_new_batch_is_empty() -> None:
    batch = instructions.Batch()
    assert batch.empty
    assert not batch.durable


@pytest.mark.parametrize(
    ("member", "value", "durable"),
    [
        ("forgotten", {TASK: None}, True),
        ("released", [TASK], True),
        ("taken_over", [(TASK, 1, 2)], True),
        ("superseded", [(TASK, 2)], True),
        ("outputs", [(1, 1, b"x")], True),
        ("writes", [("name", [])], True),
        ("published", {TASK}, False),
        ("accepted", {1: 2}, False),
        ("acknowledged", {1: 2}, False),
        ("results", {1: []}, False),
    ],
)
def test_only_batches_with_rows_are_durable(member: str, value: object, *, durable: bool) -> None:
    batch = instructions.Batch()
    setattr(batch, member, value)
    assert batch.durable is durable
    assert not batch.empty
