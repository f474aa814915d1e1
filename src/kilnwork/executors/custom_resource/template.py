"""Construction of the object of an attempt, as JSON, from the manifest of its task. Pure.

Used by `executor`. Labels, finalizer and owner are the same as those of an attempt's Pod.
"""

from typing import Any

import msgspec

from kilnwork.api import attempts, meta, object_task_manifests, substitution
from kilnwork.executors import port
from kilnwork.executors.pod import template as pods

FINALIZER = pods.FINALIZER

RESULT_ANNOTATION = "kilnwork.dev/result"
"""Annotation with `spec.customResource.result` of the task as JSON, by which a manager judges
objects that an earlier manager has left."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The object to create for an attempt, before its kind is known to be served."""

    api_version: str
    kind: str
    name: str
    body: meta.JsonObject
    """The whole object, with our labels, finalizer and owner."""
    namespace: str
    """Namespace in the manifest; "" if the manifest has none."""


def wanted(attempt: port.Attempt, executor: str) -> Wanted:
    """Return the object to create for an attempt, with its variables substituted.

    Raises `object_task_manifests.InvalidManifest`, `substitution.InvalidTemplate` or
    `json_limits.LimitExceeded`.
    """
    body, field = object_task_manifests.manifest_of(attempt.spec)
    variables = {
        **substitution.task_variables(pods.facts(attempt)),
        **substitution.input_variables(attempt.inputs),
    }
    rendered = substitution.substitute(
        body, variables, field=field, text_fields=object_task_manifests.TEXT_FIELDS
    )
    given = rendered.get("metadata") or {}
    prefix = given.get("name") or given.get("generateName") or attempt.name
    name = pods.pod_name(str(prefix).rstrip("-."), attempt.ref)
    metadata = pods.metadata_of(attempt, given, name=name, executor=executor)
    if attempt.spec.custom_resource is not None:
        rules = msgspec.json.encode(attempt.spec.custom_resource.result).decode()
        metadata["annotations"][RESULT_ANNOTATION] = rules
    metadata["finalizers"] += given.get("finalizers") or ()
    return Wanted(
        api_version=rendered["apiVersion"],
        kind=rendered["kind"],
        name=name,
        body={**rendered, "metadata": metadata},
        namespace=str(given.get("namespace") or ""),
    )


def ref_of(obj: meta.JsonObject, executor: str) -> attempts.AttemptRef | None:
    """Return the attempt that an object belongs to, by its name; None if it is not an attempt of
    this executor.
    """
    if labels_of(obj).get(pods.EXECUTOR_LABEL) != executor and not is_held(obj):
        return None
    return pods.ref_in(obj["metadata"]["name"])


def labels_of(obj: meta.JsonObject) -> dict[str, str]:
    labels: dict[str, str] = obj["metadata"].get("labels") or {}
    return labels


def is_ours(obj: meta.JsonObject, attempt: port.Attempt, executor: str) -> bool:
    """Return whether an object was created for this attempt, by its name and the uid of its owner.

    A client that may patch objects can remove labels or the owner, but is unlikely to add our
    finalizer.
    """
    if ref_of(obj, executor) != attempt.ref:
        return False
    owner = owner_uid(obj)
    return owner == attempt.owner_uid or (not owner and is_held(obj))


def owner_uid(obj: meta.JsonObject) -> str:
    """Return the uid of the Task that owns an object; "" if no Task does."""
    owners: list[dict[str, Any]] = obj["metadata"].get("ownerReferences") or []
    return str(next((one["uid"] for one in owners if one.get("controller")), ""))


def task_name(obj: meta.JsonObject) -> str:
    annotations = obj["metadata"].get("annotations") or {}
    return str(annotations.get(pods.TASK_ANNOTATION, ""))


def prefix_of(obj: meta.JsonObject) -> str:
    """Return the part of an object's name before the identity of the attempt."""
    return pods.prefix_of(obj["metadata"]["name"])


def is_held(obj: meta.JsonObject) -> bool:
    """Return whether the finalizer of kilnwork keeps an object."""
    return FINALIZER in (obj["metadata"].get("finalizers") or ())


def is_terminating(obj: meta.JsonObject) -> bool:
    return obj["metadata"].get("deletionTimestamp") is not None


def finalizers_of_others(obj: meta.JsonObject) -> list[str]:
    """Return the finalizers that keep an object, except that of kilnwork."""
    return [one for one in obj["metadata"].get("finalizers") or () if one != FINALIZER]
