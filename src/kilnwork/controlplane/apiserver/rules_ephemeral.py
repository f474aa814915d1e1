"""Validation of a Pod's `spec.ephemeralContainers`, which only its own subresource writes.

Used by admission. Containers can be added, but never changed or removed. Only new ones are
validated, so that a Pod with hundreds of them costs no more than decoding it. Messages are those of
k8s.io/kubernetes/pkg/apis/core/validation (validateEphemeralContainers,
ValidatePodEphemeralContainersUpdate).
"""

from collections.abc import Iterator
from typing import Any

from kilnwork.api import meta
from kilnwork.controlplane.apiserver import causes, rules_pods

_NOT_ALLOWED = (
    *("ports", "resources", "resizePolicy", "restartPolicy"),
    *("livenessProbe", "readinessProbe", "startupProbe", "lifecycle"),
)
"""Fields of containers that ephemeral containers may not have."""

_TEXT = "cannot be set for an Ephemeral Container"
_FIELD = "spec.ephemeralContainers"


def default(pod: meta.JsonObject, old: meta.JsonObject) -> None:
    """Fill in the defaults of new ephemeral containers."""
    old_containers = _by_name(old)
    for container in _listed(pod):
        if container is not old_containers.get(container.get("name", "")):
            rules_pods.default_container(container)


def validate(old: meta.JsonObject, new: meta.JsonObject) -> Iterator[causes.Cause]:
    """Yield the problems of new ephemeral containers, and forbidden changes of the list."""
    spec = new["spec"]
    groups = ("containers", "initContainers")
    others = {c.get("name") for group in groups for c in spec.get(group) or ()}
    volumes = {str(volume.get("name")) for volume in spec.get("volumes") or ()}
    before, seen = _by_name(old), set(others)
    for position, container in enumerate(_listed(new)):
        field, name = f"{_FIELD}[{position}]", container.get("name")
        # Compared by identity: `typed_decoding` keeps unchanged items as the same Python objects.
        unchanged = container is before.get(name or "")
        if not unchanged:
            yield from rules_pods.container_causes(container, field, volumes)
            yield from _image(container, f"{field}.image")
        if name in seen:
            yield causes.duplicate(f"{field}.name", name)
        seen.add(name)
        if not unchanged:
            yield from _restrictions(container, field, others)
    yield from _changes(before, _by_name(new))


def _image(container: meta.JsonObject, field: str) -> Iterator[causes.Cause]:
    image = container.get("image") or ""
    if image != image.strip():
        yield causes.invalid(field, image, "must not have leading or trailing whitespace")


def _restrictions(
    container: meta.JsonObject, field: str, others: set[Any]
) -> Iterator[causes.Cause]:
    target = container.get("targetContainerName")
    if target and target not in others:
        yield causes.not_found(f"{field}.targetContainerName", target)
    for name in _NOT_ALLOWED:
        value = container.get(name)
        # `resources: {}` is filled in as a default.
        if value is not None and not (name == "resources" and value == {}):
            yield causes.forbidden(f"{field}.{name}", _TEXT)
    for position, mount in enumerate(container.get("volumeMounts") or ()):
        for name in ("subPath", "subPathExpr"):
            if mount.get(name):
                yield causes.forbidden(f"{field}.volumeMounts[{position}].{name}", _TEXT)


def _changes(
    before: dict[str, meta.JsonObject], after: dict[str, meta.JsonObject]
) -> Iterator[causes.Cause]:
    for name, container in before.items():
        what = f'existing ephemeral containers "{name}" may not be'
        if name not in after:
            yield causes.forbidden(_FIELD, f"{what} removed\n")
        elif after[name] is not container and after[name] != container:
            yield causes.forbidden(_FIELD, f"{what} changed\n")


def _listed(pod: meta.JsonObject) -> list[meta.JsonObject]:
    return (pod.get("spec") or {}).get("ephemeralContainers") or []


def _by_name(pod: meta.JsonObject) -> dict[str, meta.JsonObject]:
    return {container.get("name", ""): container for container in _listed(pod)}
