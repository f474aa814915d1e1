"""Checks of the Pod templates of tasks beyond their schema; problems are (field, text) pairs.

No I/O. Used by `task_validation` for `spec.pod` of tasks, and by the sdk for `pod=`. Workers import
the sdk, so this module imports neither a YAML parser nor the CRDs. The API server checks the rest
of the PodSpec.
"""

from collections.abc import Collection, Iterator
from typing import Any

from kilnwork.api import json_limits, substitution, task

Problem = tuple[str, str]
"""Dotted path relative to the spec of the task, and a sentence without a subject."""


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
"""Parts of a template that the executor reads or extends."""

_CALLED: dict[type, str] = {dict: "an object", list: "a list", str: "a string"}


def problems(
    template: task.PodTemplate, *, runs_call: bool, more: Collection[str] = ()
) -> Iterator[Problem]:
    """Yield the problems of a template. `runs_call`: whether it is for a Python call; `more`:
    allowed variables in addition to those of every task."""
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
    except json_limits.LimitExceeded as error:
        yield "pod", str(error)
    for field in template.metadata.keys() - {"labels", "annotations"}:
        yield f"pod.metadata.{field}", "may not be given: only labels and annotations may"


def _shape_problems(given: Any, shape: Any, field: str) -> Iterator[Problem]:
    """Yield the parts of parsed JSON whose type differs from `shape`.

    A shape is an object with the shapes of some of its fields, a list with the shape of its items,
    or a string. Null counts as absent.
    """
    if not isinstance(given, type(shape)):
        yield field, f"must be {_CALLED[type(shape)]}, not {json_limits.show(given)}"
    elif isinstance(shape, list):
        for position, value in enumerate(given if shape else ()):
            yield from _shape_problems(value, shape[0], f"{field}[{position}]")
    elif isinstance(shape, dict):
        for key, below in shape.items():
            if given.get(key) is not None:
                yield from _shape_problems(given[key], below, f"{field}.{key}")


def _call_container_problems(containers: list[dict[str, Any]]) -> Iterator[Problem]:
    """Yield the problems of the containers of a call, which runs in exactly one of them."""
    field = "pod.spec.containers"
    if len(containers) > 1:
        text = "must be one for a call: what runs beside it is an init container with restartPolicy"
        yield field, f"{text} Always, which ends with it"
    if containers[0].get("args"):
        yield f"{field}[0].args", "may not be given for a call: command is the Python that runs it"
