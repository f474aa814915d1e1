"""Reader of Argo Workflows, which interprets and ends a Workflow for its task.

No I/O. Used by `executors.custom_resource`. Reads `status.phase`, `message` and `outputs`, which
exist however large the workflow is; `status.nodes`, which Argo compresses or moves elsewhere if
there are many, only if it is uncompressed.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from kilnwork.api import json_limits, meta, object_task, pod, reasons, task
from kilnwork.executors import port
from kilnwork.executors.custom_resource.status_reader import Reading, State

STOPPED_AT = "kilnwork.dev/stopped-at"
"""Annotation with the time at which kilnwork asked the Workflow to stop: wall clock of the manager,
in seconds."""

_R = reasons.Reason

WORKFLOW_LABEL = "workflows.argoproj.io/workflow"
"""Label of the Pods of a Workflow (workflow/common/common.go)."""


class WorkflowReader:
    """A `Reader` of Argo Workflows, which are stopped by `spec.shutdown`, not by deleting them."""

    name = "workflow"

    def read(self, spec: task.TaskSpec, seen: meta.JsonObject) -> Reading:
        status = _dict(seen.get("status"))
        phase = status.get("phase") or ""
        known = _PHASES.get(phase) if isinstance(phase, str) else None
        state, reason = known or (State.STAGING, _R.STARTING)
        message = _message_of(seen, status)
        if state is State.RUNNING and (why := _suspended(seen, status)):
            reason, message = _R.SUSPENDED, f"Workflow {seen['metadata']['name']}: {why}"
        return Reading(
            state=state,
            reason=reason,
            message=message,
            started=_moment(status.get("startedAt")),
            finished=_moment(status.get("finishedAt")),
            exit_code=_exit_code(status) if state is State.FAILED else None,
            untouched=not any(status.values()),
            stopping=_is_stopping(seen),
        )

    def result(self, spec: task.TaskSpec, seen: meta.JsonObject) -> Any:
        """Return the global output parameters of a Workflow by name, as texts; UNSET if it has
        none.
        """
        at = f"Workflow {seen['metadata']['name']}: status.outputs"
        outputs = _dict(seen.get("status")).get("outputs")
        if not isinstance(outputs, dict | None):
            raise _unusable(at, outputs, "an object")
        given = (outputs or {}).get("parameters")
        if not isinstance(given, list | None):
            raise _unusable(f"{at}.parameters", given, "a list")
        for number, one in enumerate(given or ()):
            if not isinstance(_dict(one).get("name"), str):
                raise _unusable(f"{at}.parameters[{number}]", one, "an object with a name")
        return {one["name"]: one.get("value") for one in given or ()} or msgspec.UNSET

    def stop(self, seen: meta.JsonObject, how: port.Stop, *, now: float) -> meta.JsonObject | None:
        """Return the patch that stops a Workflow: first Stop, then Terminate after the grace
        period; None to delete one that no controller has seen.

        A suspended Workflow ignores `shutdown` until it is resumed
        (workflow/controller/operator.go, operate): it starts nothing any more.
        """
        if self.read(task.TaskSpec(), seen).untouched:
            return None
        asked = _asked(seen)
        if asked is None:
            return {
                "metadata": {"annotations": {STOPPED_AT: f"{now:.3f}"}},
                "spec": {"shutdown": "Stop", "suspend": None},
            }
        if now - asked < how.grace_s or _dict(seen.get("spec")).get("shutdown") == "Terminate":
            return {}
        return {"spec": {"shutdown": "Terminate"}}

    def stop_again_s(self, seen: meta.JsonObject, how: port.Stop, *, now: float) -> float | None:
        if _dict(seen.get("spec")).get("shutdown") == "Terminate":
            return None
        asked = _asked(seen)
        return how.grace_s if asked is None else max(0.05, asked + how.grace_s - now)

    def pods_of(self, seen: meta.JsonObject) -> str:
        """Return the label selector of a Workflow's Pods, whose end is awaited, since Argo reports
        Failed as soon as it has sent the signals.
        """
        return f"{WORKFLOW_LABEL}={seen['metadata']['name']}"

    def spec_of(self, manifest: meta.JsonObject, seen: meta.JsonObject) -> task.TaskSpec:
        return task.TaskSpec(workflow=object_task.WorkflowTemplate(manifest=manifest))


def _moment(written: Any) -> float | None:
    """Return a time written in a status, as wall clock; None if it is not valid.

    The schema allows any value.
    """
    try:
        return pod.parse_time(written)
    except (ValueError, TypeError, AttributeError):
        return None


def _unusable(field: str, value: Any, wanted: str) -> port.ResultError:
    text = f"{field} is {json_limits.show(value)}; it must be {wanted}"
    return port.ResultError(_R.INVALID_RESULT, text)


def _is_stopping(seen: meta.JsonObject) -> bool:
    return _asked(seen) is not None


def _asked(seen: meta.JsonObject) -> float | None:
    """Return the time at which kilnwork asked the Workflow to stop; None if it did not."""
    written = _dict(seen["metadata"].get("annotations")).get(STOPPED_AT)
    try:
        return None if written is None else float(written)
    except ValueError:
        return 0.0  # not a time that kilnwork wrote: treat it as long ago


def _message_of(seen: meta.JsonObject, status: dict[str, Any]) -> str:
    name, phase = f"Workflow {seen['metadata']['name']}", status.get("phase") or ""
    if not any(status.values()):
        return f"{name}: no workflow-controller has seen it yet"
    if not phase:
        return f"{name}: its status has no phase"
    if not isinstance(phase, str) or phase not in _PHASES:
        return f"{name}: status.phase is {json_limits.show(phase)}, which is no phase of Argo"
    if message := status.get("message"):
        return f"{name}: {message}"
    return f"{name} waits to be started" if phase == "Pending" else name


def _suspended(seen: meta.JsonObject, status: dict[str, Any]) -> str:
    """Return why a running Workflow is suspended; "" if it is not."""
    if _dict(seen.get("spec")).get("suspend"):
        return "spec.suspend is true"
    for node in _nodes(status):
        if node.get("type") == "Suspend" and node.get("phase") == "Running":
            name = node.get("displayName") or node.get("name") or node.get("id")
            return f"step {name} waits to be resumed" if name else "a step waits to be resumed"
    return ""


def _exit_code(status: dict[str, Any]) -> int | None:
    """Return the exit code of the first failed step, None if it is unknown; Argo stores it as
    text.
    """
    failed = [
        node
        for node in _nodes(status)
        if node.get("type") == "Pod" and node.get("phase") in ("Failed", "Error")
    ]
    failed.sort(key=lambda node: str(node.get("finishedAt") or "~"))
    for node in failed:
        code = str(_dict(node.get("outputs")).get("exitCode") or "")
        if code.isascii() and code.isdigit():
            return int(code)
    return None


def _nodes(status: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for node in _dict(status.get("nodes")).values():
        yield _dict(node)


def _dict(value: Any) -> dict[str, Any]:
    """Return `value` if it is a JSON object, otherwise an empty one."""
    return value if isinstance(value, dict) else {}


_PHASES = {
    "": (State.STAGING, _R.STARTING),
    "Pending": (State.STAGING, _R.STARTING),
    "Running": (State.RUNNING, _R.STARTED),
    "Succeeded": (State.SUCCEEDED, _R.SUCCEEDED),
    "Failed": (State.FAILED, _R.WORKFLOW_FAILED),
    "Error": (State.FAILED, _R.EXECUTOR_ERROR),
}
"""State and reason of a task by `WorkflowPhase` (pkg/apis/workflow/v1alpha1/workflow_phase.go)."""
