"""Pods with the statuses that kubelets and controllers write."""

from typing import Any

import msgspec

from kilnwork.api import pod

NAME = "t-1-1"
NODE = "n1"
CREATED, STARTED, FINISHED = (
    "2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z", "2026-01-01T00:00:20Z",
)  # fmt: skip
NO_TIME = "1970-01-01T00:00:00Z"


def made(phase: str, *containers: dict[str, Any], node: str = NODE, **more: Any) -> pod.Pod:
    """Return a Pod in a phase. `more`: fields of the status, or `deleted` and `grace` of its
    deletion.
    """
    metadata: dict[str, Any] = {"name": NAME, "creationTimestamp": CREATED}
    if deleted := more.pop("deleted", None):
        metadata["deletionTimestamp"] = deleted
        metadata["deletionGracePeriodSeconds"] = more.pop("grace", 0)
    status = {"phase": phase, "containerStatuses": list(containers), **more}
    body = {"metadata": metadata, "spec": {"nodeName": node}, "status": status}
    return msgspec.convert(body, pod.Pod)


def waiting(reason: str, message: str = "", *, last: Any = None, restarts: int = 0) -> Any:
    """Return the status of a waiting container; `last`: how it ended before."""
    state = {"waiting": {"reason": reason, "message": message}}
    before = {} if last is None else {"lastState": last["state"]}
    return {"name": "main", "state": state, "restartCount": restarts, **before}


def running(name: str = "main", *, since: str = STARTED) -> dict[str, Any]:
    """Return the status of a running container."""
    return {"name": name, "state": {"running": {"startedAt": since}}}


def ended(code: int, name: str = "main", **more: Any) -> dict[str, Any]:
    """Return the status of an ended container; `more`: fields of its terminated state."""
    state = {"exitCode": code, "startedAt": STARTED, "finishedAt": FINISHED, **more}
    return {"name": name, "state": {"terminated": state}}


def condition(type_: str, status: str, reason: str = "", message: str = "") -> dict[str, Any]:
    """Return a condition of a Pod."""
    return {"type": type_, "status": status, "reason": reason, "message": message}
