"""Bodies of answers to tasks that ask about tasks: JSON, passed on as they are by the worker.

Used by the hub. What a task written in any language sees on its socket; fields are only added.
"""

import base64

import msgspec

from kilnwork.api import attempts
from kilnwork.dispatch import model
from kilnwork.kit import ids

JSON = "application/json"
_encode = msgspec.json.Encoder().encode


def made(task: ids.TaskId) -> bytes:
    """A child was made or found."""
    return _encode({"id": ids.task_text(task)})


def refused(message: str) -> bytes:
    """Something was not done."""
    return _encode({"message": message})


def status(view: model.TaskView) -> bytes:
    """Where a task is, and its result once it has succeeded."""
    return _encode(
        {
            "id": ids.task_text(view.task),
            "name": view.name,
            "state": view.state,
            "reason": view.reason,
            "message": view.message,
            "run": view.run,
            "result": None if view.result is None else _result(view.result),
        }
    )


def _result(result: attempts.Payload) -> object:
    """A JSON result is itself; anything else says what it is and comes as base64."""
    if result.media_type == JSON:
        return msgspec.Raw(result.data) if result.data else None
    return {"mediaType": result.media_type, "base64": base64.b64encode(result.data).decode()}
