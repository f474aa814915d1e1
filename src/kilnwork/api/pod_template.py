"""What a template of Pods must be beyond its schema, as (field, what is wrong with it). Pure.

Used by `validation` for `spec.pod` of tasks, and by the sdk for `pod=`, whose workers load neither
YAML nor definitions. What the PodSpec holds otherwise, the API server checks.
"""

from collections.abc import Iterator
from typing import Any

from kilnwork.api import documents, substitution, task

Problem = tuple[str, str]
"""Dotted path below the spec of the task, and a sentence without subject."""


def problems(template: task.PodTemplate, *, runs_call: bool) -> Iterator[Problem]:
    """What is wrong with it. `runs_call`: it is for a Python call."""
    policy = template.spec.get("restartPolicy", "Never")
    containers = template.spec.get("containers", [{}] if runs_call else None)
    if policy not in ("Never", "OnFailure"):
        yield "pod.spec.restartPolicy", f"must be Never or OnFailure, not {policy!r}"
    elif runs_call and policy != "Never":
        yield "pod.spec.restartPolicy", "must be Never for a call: spec.retry has its retries"
    if not isinstance(containers, list) or not containers:
        yield "pod.spec.containers", "must be a list of at least one container"
    elif not all(isinstance(container, dict) for container in containers):
        yield "pod.spec.containers", "must be a list of objects"
    elif runs_call:
        yield from _call_container_problems(containers)
    try:
        yield from substitution.find_problems(
            {"metadata": template.metadata, "spec": template.spec},
            substitution.TASK_VARIABLES,
            "pod",
        )
    except documents.LimitExceeded as error:
        yield "pod", str(error)
    for field in template.metadata.keys() - {"labels", "annotations"}:
        yield f"pod.metadata.{field}", "may not be given: only labels and annotations may"


def _call_container_problems(containers: list[dict[str, Any]]) -> Iterator[Problem]:
    """A call has one container, which ends with it, and a Python in that."""
    field = "pod.spec.containers"
    if len(containers) > 1:
        text = "must be one for a call: what runs beside it is an init container with restartPolicy"
        yield field, f"{text} Always, which ends with it"
    if containers[0].get("args"):
        yield f"{field}[0].args", "may not be given for a call: command is the Python that runs it"
