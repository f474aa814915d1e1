"""The TaskObject that `spec.outputObject` names, from which another task can read the result.

Used by `reconciler`. The object records task and run, so that repeating changes nothing; an object
created by an earlier run of the same task is replaced; objects of other owners are left unchanged.
"""

import contextlib
from typing import Any

from kilnwork.api import kinds, meta, task
from kilnwork.kube import client, errors

TASK_ANNOTATION = "kilnwork.dev/task"
"""Annotation of an output object: uid of the task whose result it contains."""

RUN_ANNOTATION = "kilnwork.dev/run"
"""Annotation of an output object: the run whose result it contains."""


async def make(
    kube: client.Client, seen: task.Task, *, run: int, name: str, data: Any
) -> str | None:
    """Create the TaskObject `name` with `data`, unless it exists; return why that is impossible, or
    None.
    """
    body = _body(seen, run, name=name, data=data)
    for _ in range(2):
        try:
            await kube.create(kinds.TASK_OBJECTS, body, seen.metadata.namespace)
        except errors.AlreadyExists:
            obstacle = await _resolve(kube, body)
            if obstacle is None:
                continue
            return obstacle or None
        except (errors.Invalid, errors.Forbidden) as error:
            return str(error)
        return None
    return f"TaskObject {name} is created again and again by another client"


async def _resolve(kube: client.Client, body: meta.JsonObject) -> str | None:
    """Handle an existing TaskObject with the name of the output.

    Return "" if it is correct, None if it was removed, otherwise why it must stay.
    """
    wanted = body["metadata"]
    name, namespace = wanted["name"], wanted["namespace"]
    try:
        found = await kube.get(kinds.TASK_OBJECTS, name, namespace)
    except errors.NotFound:
        return None
    if found.get("data") == body["data"]:
        return ""
    marks = found["metadata"].get("annotations") or {}
    if marks.get(TASK_ANNOTATION) != wanted["annotations"][TASK_ANNOTATION]:
        return f"TaskObject {name} exists already and holds something else"
    with contextlib.suppress(errors.NotFound):
        await kube.delete(kinds.TASK_OBJECTS, name, namespace, uid=found["metadata"]["uid"])
    return None


def _body(seen: task.Task, run: int, *, name: str, data: Any) -> meta.JsonObject:
    return {
        "apiVersion": kinds.TASK_OBJECTS.api_version,
        "kind": kinds.TASK_OBJECTS.kind,
        "metadata": {
            "name": name,
            "namespace": seen.metadata.namespace,
            "annotations": {TASK_ANNOTATION: seen.metadata.uid, RUN_ANNOTATION: str(run)},
        },
        "data": data,
    }
