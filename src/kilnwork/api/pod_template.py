"""Rules for Pod templates of tasks beyond their schema, as (field, what is wrong with it). Pure.

Used by `validation` for `spec.pod` of tasks, and by the sdk for `pod=`, whose workers load neither
YAML nor definitions. What the PodSpec holds otherwise, the API server checks.
"""

from collections.abc import Collection, Iterator
from typing import Any

from kilnwork.api import documents, substitution, task

Problem = tuple[str, str]
"""Dotted path below the spec of the task, and a sentence without subject."""


_CONTAINER_SHAPE: dict[str, Any] = {
    "env": [{"name": ""}],
    "volumeMounts": [],
    "resources": {"limits": {}},
    "securityContext": {},
}

_SHAPE: dict[str, Any] = {
    "metadata": {"labels": {}, "annotations": {}},
    "spec": {
        "containers": [_CONTAINER_SHAPE],
        "initContainers": [_CONTAINER_SHAPE],
        "volumes": [{}],
    },
}
"""What the executor reads of a template, or adds to."""

_CALLED: dict[type, str] = {dict: "an object", list: "a list", str: "a string"}


def problems(
    template: task.PodTemplate, *, runs_call: bool, more: Collection[str] = ()
) -> Iterator[Problem]:
    """Yield what is wrong with a template. `runs_call`: it is for a Python call; `more`: variables
    that it has besides those of every task."""
    policy = template.spec.get("restartPolicy", "Never")
    containers = template.spec.get("containers", [{}] if runs_call else None)
    if policy not in ("Never", "OnFailure"):
        yield "pod.spec.restartPolicy", f"must be Never or OnFailure, not {policy!r}"
    elif runs_call and policy != "Never":
        yield "pod.spec.restartPolicy", "must be Never for a call: spec.retry has its retries"
    whole = {"metadata": template.metadata, "spec": template.spec}
    shaped = list(_shape_problems(whole, _SHAPE, "pod"))
    yield from shaped
    if not containers:
        yield "pod.spec.containers", "must be a list of at least one container"
    elif runs_call and not shaped:
        yield from _call_container_problems(containers)
    try:
        yield from substitution.find_problems(whole, {*substitution.TASK_VARIABLES, *more}, "pod")
    except documents.LimitExceeded as error:
        yield "pod", str(error)
    for field in template.metadata.keys() - {"labels", "annotations"}:
        yield f"pod.metadata.{field}", "may not be given: only labels and annotations may"


def _shape_problems(given: Any, shape: Any, field: str) -> Iterator[Problem]:
    """Yield where parsed JSON is no object, list or string although `shape` is: an object with the
    shapes of some of its fields, or a list with that of its items. A field that is null is not
    there."""
    if not isinstance(given, type(shape)):
        yield field, f"must be {_CALLED[type(shape)]}, not {documents.show(given)}"
    elif isinstance(shape, list):
        for position, value in enumerate(given if shape else ()):
            yield from _shape_problems(value, shape[0], f"{field}[{position}]")
    elif isinstance(shape, dict):
        for key, below in shape.items():
            if given.get(key) is not None:
                yield from _shape_problems(given[key], below, f"{field}.{key}")


def _call_container_problems(containers: list[dict[str, Any]]) -> Iterator[Problem]:
    """Yield what is wrong with the containers of a call, which runs in exactly one."""
    field = "pod.spec.containers"
    if len(containers) > 1:
        text = "must be one for a call: what runs beside it is an init container with restartPolicy"
        yield field, f"{text} Always, which ends with it"
    if containers[0].get("args"):
        yield f"{field}[0].args", "may not be given for a call: command is the Python that runs it"
