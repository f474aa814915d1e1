"""Rules for Task, TaskObject and TaskCluster beyond their schemas.

Used by admission. What a rule says stands in `api.validation`, so that it is the same on any API
server; only the answer is made here.
"""

import functools
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from kilnwork.api import kinds, meta, resource, task, task_cluster, validation
from kilnwork.controlplane.apiserver import builtin, causes, fieldtypes, reading, structural

RUN_UNCHANGED = (
    "spec has changed but spec.run has not: the current run goes on as it began; "
    "raise spec.run to run the new spec"
)
_NOT_THE_WORK = frozenset(
    {"run", "suspend", "killTimestamp", "ttlSecondsAfterFinished", "priority"}
)


def validate(
    served: builtin.Served, obj: meta.JsonObject, *, old: meta.JsonObject | None = None
) -> Iterator[causes.Cause]:
    """What is wrong with a custom object; rules only when the schema is fulfilled."""
    kind, schema = served.resource, served.schema
    found = structural.validate(schema, obj, old=old) if schema is not None else []
    if found:
        yield from found
        return
    for field, why in _problems(kind, obj):
        yield causes.invalid(field, _value_at(obj, field), why)
    if kind == kinds.TASK_CLUSTERS:
        yield from _unreadable_template(obj)


def _unreadable_template(cluster: meta.JsonObject) -> Iterator[causes.Cause]:
    """The schema leaves the template open; no Pod could be made of one of other types."""
    template = (cluster.get("spec") or {}).get("template") or {}
    try:
        reading.read_as(_pod_template(), template)
    except reading.WrongType as error:
        yield causes.invalid("spec.template", "", f"is no Pod template: {error}")


@functools.cache
def _pod_template() -> fieldtypes.Type:
    """core/v1 PodTemplateSpec."""
    spec = fieldtypes.named("io.k8s.api.core.v1.PodSpec")
    return fieldtypes.Type(
        fieldtypes.Form.STRUCT,
        go="v1.PodTemplateSpec",
        fields={"metadata": fieldtypes.metadata(), "spec": spec},
    )


def validate_update(
    kind: resource.Resource, old: meta.JsonObject, new: meta.JsonObject
) -> Iterator[causes.Cause]:
    """What may not change."""
    if kind == kinds.TASK_OBJECTS and old.get("data") != new.get("data"):
        yield causes.invalid("data", new.get("data"), causes.IMMUTABLE)
    if kind == kinds.TASKS:
        before, after = _read(old, task.Task), _read(new, task.Task)
        if before is not None and after is not None:
            for field, why in validation.validate_task_update(before, after):
                yield causes.invalid(field, _value_at(new, field), why)


def warnings(kind: resource.Resource, old: meta.JsonObject, new: meta.JsonObject) -> Iterator[str]:
    """What is allowed but will surprise."""
    if kind != kinds.TASKS:
        return
    before, after = old.get("spec") or {}, new.get("spec") or {}
    if before.get("run") == after.get("run") and _work(before) != _work(after):
        yield RUN_UNCHANGED


def _problems(kind: resource.Resource, obj: meta.JsonObject) -> list[validation.Problem]:
    if kind == kinds.TASKS:
        declared = _read(obj, task.Task)
        return [] if declared is None else validation.validate_task(declared)
    if kind == kinds.TASK_CLUSTERS:
        cluster = _read(obj, task_cluster.TaskCluster)
        return [] if cluster is None else validation.validate_task_cluster(cluster)
    return []


def _read(obj: meta.JsonObject, type_: Any) -> Any:
    """The object as a struct; None when it is not one, which its schema has already said."""
    try:
        return msgspec.convert(
            {k: v for k, v in obj.items() if k in ("metadata", "spec")}, type_, strict=False
        )
    except msgspec.ValidationError:
        return None


def _work(spec: meta.JsonObject) -> meta.JsonObject:
    return {k: v for k, v in spec.items() if k not in _NOT_THE_WORK}


def _value_at(obj: meta.JsonObject, path: str) -> Any:
    """The value at `spec.inputs[0].path`; None when there is none."""
    value: Any = obj
    for step in re.findall(r"[^.\[\]]+", path):
        if isinstance(value, list):
            value = value[int(step)]
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value
