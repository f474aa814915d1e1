"""The `scale` subresource of custom kinds: an object shown as autoscaling/v1 Scale.

Used by `resource_handler` for `kubectl scale` and for autoscalers. The definition names the replica
fields (`spec.versions[*].subresources.scale`). Writes go through `object_writer`, like any update.
"""

from typing import Any

import msgspec

from kilnwork.api import api_resources, meta
from kilnwork.controlplane.apiserver import (
    bodies,
    builtin,
    causes,
    object_writer,
    patches,
    statuses,
    typed_decoding,
    write_checks,
    write_types,
)

SCALE = builtin.ServedResource(
    resource=api_resources.Resource(
        group="autoscaling", version="v1", kind="Scale", plural="scales", singular="scale"
    )
)
_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(served: builtin.ServedResource, obj: meta.JsonObject) -> meta.JsonObject:
    """Return the Scale of an object. Raises 500 when the object has no replica count."""
    paths = _paths(served)
    replicas = _at(obj, paths.spec)
    if replicas is None:
        raise statuses.internal(f'the spec replicas field "{paths.spec}" does not exist')
    return _scale(served, obj)


def _scale(served: builtin.ServedResource, obj: meta.JsonObject) -> meta.JsonObject:
    paths = _paths(served)
    status: meta.JsonObject = {"replicas": _at(obj, paths.status) or 0}
    selector = _at(obj, paths.selector) if paths.selector else None
    if selector:
        status["selector"] = selector
    return {
        "kind": SCALE.resource.kind,
        "apiVersion": SCALE.resource.api_version,
        "metadata": {k: v for k, v in obj["metadata"].items() if k in _METADATA},
        "spec": {"replicas": _at(obj, paths.spec) or 0},
        "status": status,
    }


def applied(raw: bytes, _form: str, _served: builtin.ServedResource) -> patches.DecodedPatch:
    """Return the patch for a server-side apply of a Scale.

    In managedFields the write counts as an update, not as an apply.
    """
    scale = bodies.decode_applied(raw)

    def change(base: meta.JsonObject) -> meta.JsonObject:
        write_checks.check_applied(write_types.WriteTarget(SCALE), scale)
        return {**base, "spec": {**base["spec"], **(scale.get("spec") or {})}}

    return patches.DecodedPatch(change)


async def change(
    writer: object_writer.ObjectWriter,
    target: write_types.WriteTarget,
    wanted: write_types.Change,
    options: write_types.WriteContext,
) -> bytes:
    """Change the replica count of an object, and return the new Scale as JSON.

    `wanted` gets the current Scale and returns the wanted one.
    """

    def scaled(obj: meta.JsonObject) -> meta.JsonObject:
        scale = _read(wanted(_scale(target.served, obj)))
        replicas = (scale.get("spec") or {}).get("replicas", 0)
        path = _paths(target.served).spec
        if not replicas and _at(obj, path) is None:
            raise statuses.bad_request(f'the spec replicas field "{path}" cannot be empty')
        # Checked here, since the object that is written below has the stored resourceVersion.
        version = (scale.get("metadata") or {}).get("resourceVersion")
        if version and version != obj["metadata"]["resourceVersion"]:
            raise statuses.conflict(target.kind, target.name)
        if replicas < 0:
            cause = causes.invalid(path, replicas, "should be a non-negative integer")
            raise statuses.invalid(target.kind, target.name, [cause])
        return _with(obj, path.strip(".").split("."), replicas)

    # This writes the main path, so that the rules of the spec apply to the replicas.
    outcome = await writer.change(target, scaled, options)
    return msgspec.json.encode(scale_of(target.served, msgspec.json.decode(outcome.raw)))


def _read(given: meta.JsonObject) -> meta.JsonObject:
    if (given.get("apiVersion"), given.get("kind")) != (SCALE.resource.api_version, "Scale"):
        raise statuses.bad_request(
            'no kind is registered for the type v1.Scale in scheme "pkg/runtime/scheme.go:110"'
        )
    try:
        return typed_decoding.read(SCALE, given).obj
    except typed_decoding.Unreadable as error:
        raise typed_decoding.cannot_be_handled(SCALE.resource, given, error) from error


def _paths(served: builtin.ServedResource) -> builtin.ScalePaths:
    if served.scale is None:
        raise statuses.unknown_path()
    return served.scale


def _at(obj: Any, path: str) -> Any:
    for name in path.strip(".").split("."):
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj


def _with(obj: Any, path: list[str], value: int) -> meta.JsonObject:
    changed: meta.JsonObject = dict(obj) if isinstance(obj, dict) else {}
    changed[path[0]] = value if len(path) == 1 else _with(changed.get(path[0]), path[1:], value)
    return changed
