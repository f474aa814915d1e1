"""Readers, which interpret the status of an object: the port `Reader`, and the reader by the rules
of a task.

Used by `executor`, and by `executors.workflow` for its own reader. Does no I/O and reads no clock.
"""

import enum
from typing import Any, Protocol

import msgspec

from kilnwork.api import (
    attempts,
    json_limits,
    meta,
    object_task,
    object_task_manifests,
    pod,
    reasons,
    result_rule_compiler,
    result_rule_evaluation,
    task,
)
from kilnwork.executors import port
from kilnwork.executors.custom_resource import template

_R = reasons.Reason


class State(enum.Enum):
    """The progress of the work that an object represents."""

    STAGING = enum.auto()
    RUNNING = enum.auto()
    SUCCEEDED = enum.auto()
    FAILED = enum.auto()


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The interpreted status of an object.

    `started`, `finished`: wall clock; None if the object does not state it. `untouched`: whether no
    controller has acted on the object yet, so that nothing runs and it may be deleted. `stopping`:
    whether the object was asked to end early, other than by deleting it.
    """

    state: State
    reason: str
    message: str = ""
    started: float | None = None
    finished: float | None = None
    exit_code: int | None = None
    untouched: bool = False
    stopping: bool = False

    @property
    def has_ended(self) -> bool:
        return self.state in (State.SUCCEEDED, State.FAILED)


class Reader(Protocol):
    """Interpreter of the objects of one executor."""

    name: str
    """Name of the executor."""

    def read(self, spec: task.TaskSpec, seen: meta.JsonObject) -> Reading:
        """Return the interpreted status of an object."""
        ...

    def result(self, spec: task.TaskSpec, seen: meta.JsonObject) -> Any:
        """Return the result of an object that has succeeded, as JSON; UNSET if it has none.

        Raises `port.ResultError`.
        """
        ...

    def stop(self, seen: meta.JsonObject, how: port.Stop, *, now: float) -> meta.JsonObject | None:
        """Return the merge patch that asks an object to end.

        {} if everything has been requested already; None if the object must be deleted instead.
        """
        ...

    def stop_again_s(self, seen: meta.JsonObject, how: port.Stop, *, now: float) -> float | None:
        """Return the seconds until `stop` returns a further patch, or None if it never will."""
        ...

    def pods_of(self, seen: meta.JsonObject) -> str:
        """Return the label selector of Pods whose end proves the end of the object; "" if there are
        none.
        """
        ...

    def spec_of(self, manifest: meta.JsonObject, seen: meta.JsonObject) -> task.TaskSpec:
        """Return a task's spec with only the fields that are needed to read the object."""
        ...


class RuleReader:
    """Reader that interprets objects by the rules of `spec.customResource`, and ends them by
    deleting them.
    """

    name = "customResource"

    def read(self, spec: task.TaskSpec, seen: meta.JsonObject) -> Reading:
        what = f"{seen.get('kind')} {seen['metadata']['name']}"
        given = spec.custom_resource
        queued = given is not None and given.result.running_condition is not None
        created = None if queued else pod.parse_time(seen["metadata"].get("creationTimestamp"))
        try:
            compiled = result_rule_compiler.compile_rules(object_task_manifests.rules_of(spec))
            outcome = compiled.judge(seen)
            waits = compiled.explain(seen) if outcome is None else ""
        except json_limits.LimitExceeded as error:
            message = f"{what} cannot be judged: it {error}"
            return Reading(state=State.STAGING, reason=_R.STARTING, message=message)
        if outcome is None:
            return Reading(state=State.STAGING, reason=_R.STARTING, message=f"{what}: {waits}")
        state, reason = _OUTCOMES[outcome]
        message = _failure(what, seen) if state is State.FAILED else what
        return Reading(state=state, reason=reason, message=message, started=created)

    def result(self, spec: task.TaskSpec, seen: meta.JsonObject) -> Any:
        given = spec.custom_resource
        if given is None or not given.result.json_path:
            return msgspec.UNSET
        where = f"spec.customResource.result.jsonPath {given.result.json_path}"
        try:
            path = result_rule_compiler.compile_path(given.result.json_path, where)
            found = path.select(seen, json_limits.Budget())
        except (result_rule_compiler.InvalidRules, json_limits.LimitExceeded) as error:
            raise port.ResultError(_R.INVALID_RESULT, str(error)) from error
        if not found:
            text = (
                f"{where} is nowhere in {seen.get('kind')} {seen['metadata']['name']}, which has "
                "succeeded: if it comes later, let successCondition wait for it (operator Exists)"
            )
            raise port.ResultError(_R.INVALID_RESULT, text)
        return found[0] if len(found) == 1 else found

    def stop(self, seen: meta.JsonObject, how: port.Stop, *, now: float) -> meta.JsonObject | None:
        return None

    def stop_again_s(self, seen: meta.JsonObject, how: port.Stop, *, now: float) -> float | None:
        return None

    def pods_of(self, seen: meta.JsonObject) -> str:
        return ""

    def spec_of(self, manifest: meta.JsonObject, seen: meta.JsonObject) -> task.TaskSpec:
        written = (seen["metadata"].get("annotations") or {}).get(template.RESULT_ANNOTATION, "{}")
        result = msgspec.json.decode(written, type=object_task.ObjectResult)
        given = object_task.CustomResource(manifest=manifest, result=result)
        return task.TaskSpec(custom_resource=given)


def _failure(what: str, seen: meta.JsonObject) -> str:
    """Return a message that an object has failed, with the cause if its status has one in the usual
    place.
    """
    status = seen.get("status")
    message = status.get("message") if isinstance(status, dict) else None
    return f"{what}: {message}" if isinstance(message, str) and message else f"{what} has failed"


_OUTCOMES = {
    result_rule_evaluation.RuleOutcome.RUNNING: (State.RUNNING, _R.STARTED),
    result_rule_evaluation.RuleOutcome.SUCCESS: (State.SUCCEEDED, _R.SUCCEEDED),
    result_rule_evaluation.RuleOutcome.FAILED: (State.FAILED, _R.OBJECT_FAILED),
}


def payload(value: Any, *, as_bytes: bool) -> attempts.Payload:
    """Return a result as a payload. Raises `port.ResultError` if bytes are wanted and the result is
    not a text.
    """
    if not as_bytes:
        return attempts.Payload(attempts.JSON, msgspec.json.encode(value))
    if not isinstance(value, str):
        text = f"outputType is bytes, and the result is no text: {json_limits.show(value)}"
        raise port.ResultError(_R.INVALID_RESULT, text)
    return attempts.Payload("application/octet-stream", value.encode())
