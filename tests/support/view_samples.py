"""Sample views of tasks, as the dispatcher publishes them, for tests of components that follow
it.
"""

from typing import Any

from kilnwork.api import reasons, task
from kilnwork.dispatch import model
from kilnwork.kit import ids

UID = "018f3a5e-0000-7000-8000-000000000001"
NOW = 1_700_000_000.0


def waiting(**facts: Any) -> model.TaskView:
    """Return task `a` of namespace `default`, declared and waiting for a worker, with `facts`
    replaced.
    """
    known: dict[str, Any] = {
        "task": ids.task_id(UID),
        "namespace": "default",
        "name": "a",
        "cluster": "default",
        "declared": True,
        "run": 1,
        "state": task.State.PENDING,
        "reason": reasons.Reason.NO_WORKER,
        "message": "",
        "attempt": 0,
        "failures": 0,
        "losses": 0,
        "worker": "",
        "node": "",
        "exit_code": None,
        "result": None,
        "created": 0.0,
        "started": None,
        "finished": None,
        "stopped": None,
        "children": task.ChildCounts(),
        "progress": None,
        "parent": None,
        "seq": 1,
    }
    return model.TaskView(**{**known, **facts})


def running(**facts: Any) -> model.TaskView:
    """Return the same task, with its first attempt on worker `w-0` since `NOW`, with `facts`
    replaced.
    """
    known: dict[str, Any] = {
        "state": task.State.RUNNING,
        "reason": reasons.Reason.STARTED,
        "attempt": 1,
        "worker": "w-0",
        "node": "n",
        "created": NOW,
        "started": NOW,
    }
    return waiting(**{**known, **facts})
