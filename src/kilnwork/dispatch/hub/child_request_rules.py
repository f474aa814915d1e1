"""Decides which children running commands may request, and which specs may be templates of calls.

Also makes the bodies of responses to requests. Does no I/O. Used by the hub. A spawned task may not
have anything that only a Task object can wait for or change later. Bodies are JSON. The worker
passes them on unchanged, and tasks in any language read them, so fields are only ever added.
"""

import base64
import hashlib
from collections.abc import Collection

import msgspec

from kilnwork.api import attempts, names
from kilnwork.api import task as api_task
from kilnwork.channel import messages
from kilnwork.dispatch import model
from kilnwork.dispatch.machine import inputs, task_starts
from kilnwork.kit import ids

MAX_KEY_LENGTH = 253
MAX_NAME_LENGTH = 253

_encode = msgspec.json.Encoder(order="sorted").encode
_encode_response = msgspec.json.Encoder().encode
_ONLY_DECLARED = (
    ("input_object", "inputObject"),
    ("inputs", "inputs"),
    ("output_object", "outputObject"),
    ("suspend", "suspend"),
    ("kill_timestamp", "killTimestamp"),
    ("ttl_seconds_after_finished", "ttlSecondsAfterFinished"),
)


def child_key(message: messages.Spawn) -> str:
    """Return the key by which a repeated request finds the child.

    It is `=KEY` for a child with a key, or `#N` for the N-th child without a key.
    """
    return f"#{message.ordinal}" if message.key is None else f"={message.key}"


def refusal(message: messages.Spawn, *, executors: bool = True) -> str:
    """Return why there can be no such child, or "".

    `executors`: whether there are executors besides the workers.
    """
    if message.key is not None and len(message.key) > MAX_KEY_LENGTH:
        return f"key: at most {MAX_KEY_LENGTH} characters"
    if message.name is not None and not 0 < len(message.name) <= MAX_NAME_LENGTH:
        return f"name: 1 to {MAX_NAME_LENGTH} characters"
    if problem := _only_declared(message.spec):
        return problem
    given = {} if message.inputs is None else _object(message.inputs)
    if given is None:
        return "inputs: must be a JSON object"
    if message.spec.executor != api_task.WORKER and (
        problem := _executor_problem(message.spec, given, executors=executors)
    ):
        return problem
    # Last, because it encodes the whole spec.
    return task_starts.too_large(message.spec, message.inputs)


def _executor_problem(
    spec: api_task.TaskSpec, given_inputs: Collection[str] | None, *, executors: bool
) -> str:
    if not executors:
        return (
            f"spec.{spec.executor}: kiln.start() runs tasks on its own worker only; `kiln up` and "
            "a manager in a cluster have other executors"
        )
    from kilnwork.api import task_validation  # noqa: PLC0415 - what it needs, few dispatchers do

    problems = task_validation.spec_problems(spec, given_inputs=given_inputs)
    return "; ".join(f"{field}: {why}" for field, why in problems)


def template_refusal(spec: api_task.TaskSpec, *, executors: bool = True) -> str:
    """Return the reason for which no call can have this spec as its template, or ""."""
    if spec.executor != api_task.WORKER and (
        problem := _executor_problem(spec, None, executors=executors)
    ):
        return problem
    return _call_refusal(spec) or _only_declared(spec) or task_starts.too_large(spec, None)


def _call_refusal(spec: api_task.TaskSpec) -> str:
    call = spec.call
    if call is None:
        if spec.executor in api_task.WITHOUT_PROGRAM:
            return ""
        return "spec.call is missing: a template is of a Python call, or of a task without program"
    if spec.command or spec.args or call.args or call.kwargs:
        return "spec.command and arguments: a template has none, its calls bring their own"
    for digest in (call.code, call.environment):
        if digest is not None and names.digest(digest) is None:
            return "spec.call: code and environment are written sha256: and 64 hexadecimal digits"
    return ""


def _only_declared(spec: api_task.TaskSpec) -> str:
    for field, shown in _ONLY_DECLARED:
        if getattr(spec, field):
            return f"spec.{shown}: only Task objects can have it, spawned tasks cannot"
    return "" if spec.run == 1 else "spec.run: a spawned task begins with run 1"


def _object(data: bytes) -> dict[str, object] | None:
    """Return the JSON object that `data` encodes, or None if it is not an object."""
    try:
        value = msgspec.json.decode(data)
    # A peer wrote it: it may be nested to any depth.
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def digest(spec: api_task.TaskSpec, given: bytes | None) -> bytes:
    """Return the SHA-256 of spec and inputs with sorted keys; children with equal digests are the
    same.

    Sorting keys has the aim of RFC 8785.
    """
    value = None if given is None else msgspec.json.decode(given)
    return hashlib.sha256(_encode((spec, value))).digest()


def with_image(message: messages.Spawn, namespace: str, rule: model.ImageRule) -> model.ImageUse:
    """Return how the image in the child's spec is used; only a command may have an image."""
    spec = message.spec
    if not spec.image or spec.executor != api_task.WORKER:
        return model.ImageUse(spec)
    return rule(namespace, spec)


def spawn(
    link: int,
    message: messages.Spawn,
    *,
    use: model.ImageUse,
    new_id: ids.TaskId,
    found: inputs.StoredChild | None,
) -> inputs.Spawn:
    """Return the machine's input for a request.

    `new_id`: the id of the child; used only if there is no such child yet.
    """
    return inputs.Spawn(
        link=link,
        serial=message.serial,
        parent=message.parent,
        child_key=child_key(message),
        task=new_id,
        name=message.name or ids.task_text(new_id),
        spec=use.spec,
        inputs=message.inputs,
        # The digest is that of the request: an image name that means another image by now still
        # identifies the same child.
        digest=digest(message.spec, message.inputs),
        found=found,
        warning=use.warning,
    )


def created_response(task: ids.TaskId, *, warning: str = "") -> bytes:
    """Return the body of the response for a child that was created, or that existed already."""
    body: dict[str, object] = {"id": ids.task_text(task)}
    if warning:
        body["warnings"] = [warning]
    return _encode_response(body)


def error_response(message: str) -> bytes:
    """Return the body of the response to a refused request."""
    return _encode_response({"message": message})


def status_response(view: model.TaskView) -> bytes:
    """Return the body of the response that describes a task, with its result, or the error of a
    call that has failed.
    """
    return _encode_response(
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
    """Return the JSON form of a result, for a response.

    A JSON result stays as it is; any other becomes a type and base64 content, or a digest if it is
    large.
    """
    if result.digest is not None:
        digest = f"sha256:{result.digest.hex()}"
        return {"mediaType": result.media_type, "digest": digest, "sizeBytes": result.size}
    if result.media_type == attempts.JSON:
        return msgspec.Raw(result.data) if result.data else None
    return {"mediaType": result.media_type, "base64": base64.b64encode(result.data).decode()}
