"""Steps of a SyncSet as JSON documents."""

import pytest

from kilnwork.jobs.flows import run_types
from kilnwork.server import steps


def _view(**facts: object) -> run_types.InstanceView:
    known: dict[str, object] = {
        "key": "a[1]",
        "step": "a",
        "state": run_types.InstanceState.RUNNING,
    }
    return run_types.InstanceView(**{**known, **facts})  # type: ignore[arg-type]  # as the fields


def test_members_without_a_value_are_left_out() -> None:
    assert steps.document(_view()) == {"key": "a[1]", "step": "a", "state": "Running"}


@pytest.mark.parametrize(
    ("facts", "members"),
    [
        ({"task": "t", "task_name": "n", "attempt": 2}, {"task": "t", "name": "n", "attempt": 2}),
        ({"worker": "w-0", "node": "n"}, {"podName": "w-0", "nodeName": "n"}),
        ({"reason": "R", "message": "m"}, {"reason": "R", "message": "m"}),
        ({"reused": True}, {"reused": True}),
        ({"started": 0.0}, {"startTime": "1970-01-01T00:00:00.000000Z"}),
        ({"finished": 1.5}, {"finishTime": "1970-01-01T00:00:01.500000Z"}),
    ],
)
def test_each_fact_of_instance_is_a_member(
    facts: dict[str, object], members: dict[str, object]
) -> None:
    assert steps.document(_view(**facts)) == {**steps.document(_view()), **members}
