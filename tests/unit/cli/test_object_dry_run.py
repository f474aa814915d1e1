"""Recognition of Tasks that make an object."""

from typing import Any

import pytest

from kilnwork.api import api_resources, kinds
from kilnwork.cli import object_dry_run

OTHER = api_resources.Resource(
    group="x.io", version="v1", kind="Task", plural="tasks", singular="task"
)


@pytest.mark.parametrize(
    ("kind", "spec", "makes_one"),
    [
        (kinds.TASKS, {"customResource": {}}, True),
        (kinds.TASKS, {"workflow": {}}, True),
        (kinds.TASKS, {"command": ["true"]}, False),
        (kinds.TASKS, None, False),
        (kinds.TASKS, "customResource", False),
        (kinds.JOBS, {"customResource": {}}, False),
        (OTHER, {"customResource": {}}, False),
    ],
)
def test_task_makes_an_object_if_its_executor_does(
    kind: api_resources.Resource,
    spec: Any,
    makes_one: bool,  # noqa: FBT001
) -> None:
    assert object_dry_run.is_object_task(kind, {"spec": spec}) is makes_one
