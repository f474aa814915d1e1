"""Converts a decorated job's templates, finalizer and hooks to the tasks in its JobConfig.

Used by `job_functions`. Raises BadOption for a value that no task can be made of. No I/O.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kilnwork.api import job as api_job
from kilnwork.api import task as api_task
from kilnwork.sdk import errors, serialization, templates
from kilnwork.sdk import task as sdk_task

RESULTS = "results"
"""Name of the parameter of a finalizer."""

HOOK_VARIABLES = {"job": "${job.name}", "phase": "${job.phase}"}
"""Names of the parameters that a hook may have, and the variables that it gets for them."""

_INPUT = re.compile(r"(?<!\$)((?:\$\$)*)\$\{task\.inputs\.([^{}$]*)\}")
"""Pattern of an input of a template: a variable that is not escaped."""

_TEMPLATE_FIELDS = frozenset(api_task.TaskTemplate.__struct_encode_fields__)


def of_template(spec: api_task.TaskSpec, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the task of a template, with its inputs replaced by variables of the Job."""
    fields = msgspec.to_builtins(spec)
    kept = {name: value for name, value in fields.items() if name in _TEMPLATE_FIELDS}
    found: dict[str, Any] = _replaced(kept, variables)
    return found


def finalizer(given: Any, of: str) -> dict[str, Any]:
    """Return the task of a finalizer. `of`: the name of the job, for error messages."""
    function = _function(given, "finalizer", of)
    parameters = inspect.signature(function).parameters.values()
    needed = [one.name for one in parameters if one.default is inspect.Parameter.empty]
    if needed != [RESULTS]:
        raise errors.BadOption(
            f"{of}: finalizer {function.__qualname__} must have one parameter, {RESULTS}, the list "
            f"of the results of the indexes; it has {', '.join(needed) or 'none'}"
        )
    return {"call": {"function": serialization.function_name(function)}}


def hooks(given: Any, of: str) -> list[dict[str, Any]]:
    """Return the hooks of a JobConfig for a mapping from phases to functions and templates.

    A key of the mapping is one phase or a tuple of phases. `of`: the name of the job, for error
    messages.
    """
    if not isinstance(given, Mapping):
        raise errors.BadOption(
            f"{of}: hooks={given!r}: must be a mapping from phases to functions, such as "
            '{"Failed": notify}'
        )
    return [
        {"phases": _phases(phases, of), "taskTemplate": _hook(hook, of)}
        for phases, hook in given.items()
    ]


def _phases(given: Any, of: str) -> list[str]:
    found = [given] if isinstance(given, str) else list(given)
    known = [str(event) for event in api_job.HookEvent]
    if not found or not set(found) <= set(known):
        raise errors.BadOption(f"{of}: hooks: {given!r}: phases are {', '.join(known)}")
    return [str(phase) for phase in found]


def _hook(given: Any, of: str) -> dict[str, Any]:
    if isinstance(given, templates.TemplateTask):
        _check_hook(repr(given), sorted(given.inputs), of)
        return of_template(given._spec, HOOK_VARIABLES)
    function = _function(given, "hook", of)
    parameters = inspect.signature(function).parameters
    used = [
        name
        for name, one in parameters.items()
        if name in HOOK_VARIABLES or one.default is inspect.Parameter.empty
    ]
    _check_hook(function.__qualname__, used, of)
    call: dict[str, Any] = {"function": serialization.function_name(function)}
    kwargs = {name: HOOK_VARIABLES[name] for name in used}
    return {"call": {**call, "kwargs": kwargs} if kwargs else call}


def _check_hook(name: str, used: list[str], of: str) -> None:
    unknown = [one for one in used if one not in HOOK_VARIABLES]
    if unknown:
        raise errors.BadOption(
            f"{of}: hook {name} must have no parameters but {' and '.join(HOOK_VARIABLES)}, the "
            f"name of the Job and its phase; it has {', '.join(unknown)}"
        )


def _function(given: Any, what: str, of: str) -> Callable[..., Any]:
    function = sdk_task.function_of(given)
    if not inspect.isfunction(function) or "<" in function.__qualname__:
        raise errors.BadOption(f"{of}: {what}={given!r}: must be a function at the top of a module")
    return function


def _replaced(value: Any, variables: Mapping[str, Any]) -> Any:
    """Return a copy of a value in which inputs in texts, at any depth, are replaced by
    variables.
    """
    if isinstance(value, str):
        return _INPUT.sub(
            lambda match: match[1] + str(variables.get(match[2], match[0][len(match[1]) :])), value
        )
    if isinstance(value, Mapping):
        return {key: _replaced(each, variables) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(each, variables) for each in value]
    return value
