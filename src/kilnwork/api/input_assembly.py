"""Inputs of a task: the objects that it needs, and the JSON document that its command reads.

Used by the controllers of Tasks and Jobs, which look the objects up, by flows and by validation.
These functions only name the needed objects and assemble the document from their values.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from kilnwork.api import reasons, task
from kilnwork.kit import errors

MAX_INPUT_BYTES = 512 * 1024
"""Maximum size of the inputs document: it must fit into one frame of the channel, next to the
spec."""

FIRST_INPUT = "input"
"""The name of the input that is the TaskObject of `spec.inputObject`."""


class InputKind(StrEnum):
    """The kind of object that an input is read from."""

    OBJECT = "TaskObject"
    TASK = "Task"
    JOB = "Job"
    """A Job, used only for `withResultOf`, like `JOB_CONFIG`."""
    JOB_CONFIG = "JobConfig"


class InputSource(msgspec.Struct, frozen=True):
    """An object in the task's namespace whose data or result is read."""

    kind: InputKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class InputError(errors.KilnError):
    """The inputs cannot be assembled, and waiting does not help. `reason` says why."""

    def __init__(self, reason: reasons.Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def sources(spec: task.TaskTemplate) -> dict[str, tuple[InputSource, str | None]]:
    """Return the source of each input and the path into it, by input name. Raises InputError for
    an invalid spec."""
    found: dict[str, tuple[InputSource, str | None]] = {}
    if spec.input_object is not None:
        found[FIRST_INPUT] = (InputSource(InputKind.OBJECT, spec.input_object), None)
    for entry in spec.inputs:
        if entry.name in found:
            raise _invalid(f"spec.inputs names {entry.name!r} twice")
        found[entry.name] = (_source(entry), entry.path)
    return found


def assemble(spec: task.TaskTemplate, values: Mapping[InputSource, Any]) -> bytes | None:
    """Return the JSON object of inputs by name, or None for a task without inputs.

    `values` has the data or result of every source. Raises InputError.
    """
    wanted = sources(spec)
    if not wanted:
        return None
    return encode(
        {name: pick(name, values[source], path) for name, (source, path) in wanted.items()}
    )


def encode(document: dict[str, Any]) -> bytes:
    """Return the JSON of inputs by name. Raises InputError if it exceeds `MAX_INPUT_BYTES`."""
    encoded = msgspec.json.encode(document)
    if len(encoded) > MAX_INPUT_BYTES:
        message = f"its inputs are {len(encoded)} bytes together; {MAX_INPUT_BYTES} are allowed"
        raise InputError(reasons.Reason.INPUT_TOO_LARGE, message)
    return encoded


def _source(entry: task.TaskInput) -> InputSource:
    if entry.object is not None and entry.task is None:
        return InputSource(InputKind.OBJECT, entry.object)
    if entry.task is not None and entry.object is None:
        return InputSource(InputKind.TASK, entry.task)
    raise _invalid(f"input {entry.name!r} must name one of object and task")


def pick(name: str, value: Any, path: str | None) -> Any:
    """Return the part of a value at a path, or the whole value without a path. Raises
    InputError."""
    if path is None:
        return value
    import jsonpath  # noqa: PLC0415 - takes 30 ms, and few servers need it

    structured = isinstance(value, (dict, list))
    try:
        # python-jsonpath parses a string as JSON; in a scalar only the root can match
        match = jsonpath.match(path, value if structured else 0)
    except (
        jsonpath.JSONPathError,
        ArithmeticError,
        ValueError,
    ) as error:  # bad numbers in the path
        line = str(error).splitlines()[0]
        raise _invalid(f"path {path!r} of input {name!r} is no JSONPath: {line}") from error
    if match is None:
        message = f"path {path!r} of input {name!r} matches nothing"
        raise InputError(reasons.Reason.INPUT_PATH_MISSING, message)
    return match.obj if structured else value


def _invalid(message: str) -> InputError:
    return InputError(reasons.Reason.INVALID_SPEC, message)
