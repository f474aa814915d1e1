"""The status of a Pod, from its object and what the node knows of its container. Pure.

Used by `local`, which writes it when it differs from the one before. Shapes and reasons are the
kubelet's (core/v1 PodStatus), so that `kubectl get pods` shows what people expect.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from kilnwork.controlplane.node import container, lifecycle, pods
from kilnwork.kit import clock

_NOT_READY = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}
_OURS = ("Initialized", "Ready", "ContainersReady")

UNSUPPORTED = "UnsupportedPod"
"""Reason of a Pod that this node can never run."""


def refused(pod: pods.Pod, message: str) -> dict[str, Any]:
    """The status of a Pod that fails without having been started."""
    return {"phase": "Failed", "reason": UNSUPPORTED, "message": message}


def status(
    pod: pods.Pod,
    view: lifecycle.View,
    *,
    address: str,
    now: float,
    written: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The whole status that the node writes. `now` is wall time.

    `written` is the status that was written last, where known: times of transitions and the start
    are kept from there, else from the object.
    """
    before = pod.status if written is None else written
    phase = _phase(pod, view)
    ready = view.running and not (pod.metadata.deletion_timestamp and view.stop_s == 0)
    moment = clock.rfc3339(now)
    return {
        "phase": phase,
        "hostIP": address,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": before.get("startTime") or moment,
        "conditions": [
            *(c for c in pod.status.get("conditions") or () if c.get("type") not in _OURS),
            *_conditions(before.get("conditions") or (), phase=phase, ready=ready, moment=moment),
        ],
        "containerStatuses": [_container(pod, view, ready=ready)],
    }


def _phase(pod: pods.Pod, view: lifecycle.View) -> str:
    if pod.final:
        return pod.phase
    if view.last is None:
        return "Pending"
    if view.running:
        return "Running"
    deleted = pod.metadata.deletion_timestamp is not None
    if lifecycle.restarts(pod, view.last) and not deleted:
        return "Running"
    return "Succeeded" if view.last.exit_code == 0 else "Failed"


def _conditions(
    before: Iterable[Mapping[str, Any]], *, phase: str, ready: bool, moment: str
) -> list[dict[str, Any]]:
    known = {str(c.get("type")): c for c in before}
    result = []
    for kind in _OURS:
        value = "True" if ready or kind == "Initialized" else "False"
        condition = {"type": kind, "status": value}
        if value == "False":
            condition["reason"] = _NOT_READY.get(phase, "ContainersNotReady")
        old = known.get(kind)
        kept = old is not None and old.get("status") == value
        condition["lastTransitionTime"] = old["lastTransitionTime"] if old and kept else moment
        result.append(condition)
    return result


def _container(pod: pods.Pod, view: lifecycle.View, *, ready: bool) -> dict[str, Any]:
    last = view.last
    answer: dict[str, Any] = {
        "name": pod.container.name,
        "image": pod.container.image,
        "imageID": "",
        "ready": ready,
        "started": view.running,
        "restartCount": last.number if last is not None else 0,
        "state": _state(pod, view),
        "lastState": {},
    }
    if last is not None:
        answer["containerID"] = f"kiln://{last.id}"
        older = view.before if "waiting" not in answer["state"] else last
        if older is not None and older.exit_code is not None:
            answer["lastState"] = {"terminated": _terminated(older)}
    return answer


def _state(pod: pods.Pod, view: lifecycle.View) -> dict[str, Any]:
    last = view.last
    if last is not None and view.running:
        return {"running": {"startedAt": clock.rfc3339(last.started_at)}}
    deleted = pod.metadata.deletion_timestamp is not None
    again = last is None or (lifecycle.restarts(pod, last) and not deleted and not pod.final)
    if last is not None and not again:
        return {"terminated": _terminated(last)}
    if view.reason:
        return {"waiting": {"reason": view.reason, "message": view.message}}
    if last is None:
        return {"waiting": {"reason": "ContainerCreating"}}
    wait_s = lifecycle.RESTARTS.delay_s(view.row - 1)
    name = f"{pod.container.name} pod={pod.metadata.name}_{pod.metadata.namespace}"
    message = f"back-off {wait_s:g}s restarting failed container={name}({pod.metadata.uid})"
    return {"waiting": {"reason": "CrashLoopBackOff", "message": message}}


def _terminated(record: container.Record) -> dict[str, Any]:
    reason = record.reason or ("Completed" if record.exit_code == 0 else "Error")
    answer: dict[str, Any] = {
        "exitCode": record.exit_code,
        "reason": reason,
        "startedAt": clock.rfc3339(record.started_at or record.finished_at),
        "finishedAt": clock.rfc3339(record.finished_at),
        "containerID": f"kiln://{record.id}",
    }
    if record.signal:
        answer["signal"] = record.signal
    if record.message:
        answer["message"] = record.message
    return answer
