"""Validation of metadata (k8s.io/apimachinery/pkg/api/validation/objectmeta.go).

Used by admission for every create, and every update that is not of a subresource. Checks names,
labels, annotations, owner references, finalizers and fixed fields; admission itself checks that the
namespace exists.
"""

from collections.abc import Callable, Iterator

from kilnwork.api import api_resources, meta, names
from kilnwork.controlplane.apiserver import causes

MAX_ANNOTATION_BYTES = 256 * 1024

_NameProblem = Callable[[str], str | None]
_NAME_RULES: dict[str, _NameProblem] = {
    api_resources.NAMESPACES.kind: lambda text: (
        "must not contain dots" if "." in text else names.label_problem(text)
    ),
    api_resources.ROLES.kind: names.path_segment_problem,
    api_resources.ROLE_BINDINGS.kind: names.path_segment_problem,
    api_resources.CLUSTER_ROLES.kind: names.path_segment_problem,
    api_resources.CLUSTER_ROLE_BINDINGS.kind: names.path_segment_problem,
}

_STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")

_FIXED = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


def validate(kind: api_resources.Resource, obj: meta.JsonObject) -> Iterator[causes.Cause]:
    """Yield the problems of a new object's metadata."""
    metadata = obj.get("metadata") or {}
    problem_of = _NAME_RULES.get(kind.kind, names.subdomain_problem)
    prefix = metadata.get("generateName")
    # Like maskTrailingDash: the last character may be a dash, since a suffix follows.
    if prefix and (problem := problem_of(f"{prefix.rstrip('-')}a")):
        yield causes.invalid("metadata.generateName", prefix, problem)
    name = metadata.get("name")
    if not name:
        yield causes.required("metadata.name", "name or generateName is required")
    elif problem := problem_of(name):
        yield causes.invalid("metadata.name", name, problem)
    yield from _texts(metadata)
    yield from _finalizers(metadata, core=kind.group == "")


def validate_update(old: meta.JsonObject, new: meta.JsonObject) -> Iterator[causes.Cause]:
    """Yield the problems of a changed object's metadata."""
    before, after = old.get("metadata") or {}, new.get("metadata") or {}
    for field in _FIXED:
        if before.get(field) != after.get(field):
            yield causes.invalid(f"metadata.{field}", after.get(field), causes.IMMUTABLE)
    if before.get("deletionTimestamp"):
        added = set(after.get("finalizers") or ()) - set(before.get("finalizers") or ())
        if added:
            listed = ", ".join(f'"{name}"' for name in sorted(added))
            yield causes.forbidden(
                "metadata.finalizers",
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{listed}}}",
            )
    yield from _texts(after)
    yield from _finalizers(after, core=False)


def _texts(metadata: meta.JsonObject) -> Iterator[causes.Cause]:
    for key, value in (metadata.get("labels") or {}).items():
        if problem := names.qualified_problem(key):
            yield causes.invalid("metadata.labels", key, problem)
        if problem := names.label_value_problem(value):
            yield causes.invalid("metadata.labels", value, problem)
    size = 0
    for key, value in (metadata.get("annotations") or {}).items():
        # Unlike label keys, annotation keys may have capitals in the prefix.
        if problem := names.qualified_problem(key.lower()):
            yield causes.invalid("metadata.annotations", key, problem)
        size += len(key.encode()) + len(value.encode())
    if size > MAX_ANNOTATION_BYTES:
        yield causes.too_long("metadata.annotations", MAX_ANNOTATION_BYTES)
    yield from _owners(metadata)


def _owners(metadata: meta.JsonObject) -> Iterator[causes.Cause]:
    controller = ""
    field = "metadata.ownerReferences"  # the real server gives no index either
    for owner in metadata.get("ownerReferences") or ():
        for key, label in (
            ("apiVersion", "version"),
            ("kind", "kind"),
            ("name", "name"),
            ("uid", "uid"),
        ):
            if not owner.get(key):
                yield causes.invalid(f"{field}.{key}", "", f"{label} must not be empty")
        if owner.get("controller"):
            this = f"{owner.get('kind')}/{owner.get('name')}"
            if controller:
                yield causes.invalid(
                    "metadata.ownerReferences",
                    metadata["ownerReferences"],
                    "Only one reference can have Controller set to true. "
                    f'Found "true" in references for {controller} and {this}',
                )
            controller = controller or this


def _finalizers(metadata: meta.JsonObject, *, core: bool) -> Iterator[causes.Cause]:
    finalizers = metadata.get("finalizers") or ()
    for finalizer in finalizers:
        if problem := names.qualified_problem(finalizer):
            yield causes.invalid("metadata.finalizers", finalizer, problem)
    for position, finalizer in enumerate(finalizers):
        if core and "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            problem = "name is neither a standard finalizer name nor is it fully qualified"
            yield causes.invalid(f"metadata.finalizers[{position}]", finalizer, problem)
