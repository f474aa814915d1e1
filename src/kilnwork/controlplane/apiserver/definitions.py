"""CustomResourceDefinitions: defaults, served versions, accepted names and status.

Used by admission, `definition_controller`, `deletion` and `discovery`. Does no I/O. Follows
k8s.io/apiextensions-apiserver (apis/apiextensions/v1/defaults.go, controller/status,
controller/establish).
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from kilnwork.api import api_resources, meta
from kilnwork.controlplane.apiserver import builtin

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
"""Finalizer of a definition: the objects of its kind are deleted first."""

_RESOURCES, _KINDS = ("plural", "singular", "shortNames"), ("kind", "listKind")
_CONTESTED = (
    ("plural", _RESOURCES, "PluralConflict"),
    ("singular", _RESOURCES, "SingularConflict"),
    ("shortNames", _RESOURCES, "ShortNamesConflict"),
    ("kind", _KINDS, "KindConflict"),
    ("listKind", _KINDS, "ListKindConflict"),
)
"""Field, the fields of other definitions that it must differ from, and the reason of a conflict."""

_NAMES = ("plural", "singular", "shortNames", "kind", "listKind", "categories")
_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")


def default(definition: meta.JsonObject) -> None:
    """Fill in the fields of a CustomResourceDefinition that a user may omit."""
    spec = definition.get("spec") or {}
    names = spec.get("names") or {}
    kind = names.get("kind") or ""
    if not names.get("singular"):
        names["singular"] = kind.lower()
    if not names.get("listKind") and kind:
        names["listKind"] = f"{kind}List"
    spec["names"] = {key: names[key] for key in _NAMES if names.get(key)}
    spec.setdefault("conversion", {"strategy": "None"})
    definition["spec"] = spec


def stored_version(definition: meta.JsonObject) -> str:
    """Return the name of the version in which objects of a definition are stored."""
    versions = definition["spec"].get("versions") or ()
    return next((str(v["name"]) for v in versions if v.get("storage")), "")


def served_by(definition: meta.JsonObject) -> Iterator[builtin.ServedResource]:
    """Yield every served version of a definition by version priority: v1, v1beta1, v1alpha1.

    Uses the accepted names, if there are any, else those of the spec.
    """
    spec = definition["spec"]
    names = (definition.get("status") or {}).get("acceptedNames") or spec["names"]
    versions = spec["versions"]
    terminating = bool(definition["metadata"].get("deletionTimestamp"))
    several = len(versions) > 1
    for version in sorted(versions, key=lambda v: priority(v["name"]), reverse=True):
        if not version.get("served"):
            continue
        kind = api_resources.Resource(
            group=spec["group"],
            version=version["name"],
            kind=names["kind"],
            plural=names["plural"],
            singular=names.get("singular", ""),
            namespaced=spec["scope"] == "Namespaced",
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
        )
        # With a single version nothing has to be converted.
        storage = stored_version(definition) if several else ""
        served = builtin.custom(kind, version, storage_version=storage)
        yield msgspec.structs.replace(served, terminating=True) if terminating else served


def priority(version: str) -> tuple[int, int, int, str]:
    """Return a sort key for version names.

    In descending order it sorts stable versions first, then beta, alpha, and all other names.
    """
    found = _VERSION.fullmatch(version)
    if found is None:
        return (0, 0, 0, version)
    level = {None: 3, "beta": 2, "alpha": 1}[found[2]]
    return (level, int(found[1]), int(found[3] or 0), "")


class NameConflict(NamedTuple):
    """Conflict about a name of a definition, as `reason` and `message` of its condition.

    `holder` is the definition that has the name, or "" for a built-in kind.
    """

    reason: str
    message: str
    holder: str


def accept_names(
    definition: meta.JsonObject, others: Mapping[str, Collection[meta.JsonObject]]
) -> tuple[meta.JsonObject, NameConflict | None]:
    """Return the names that a definition gets, and the conflict about the others, or None.

    `others` are the accepted names in its group, by definition. A name stays with the definition
    that had it accepted first (controller/status/naming_controller.go). Of several conflicts the
    last one is reported, as by kube-apiserver.
    """
    wanted = definition["spec"]["names"]
    had = (definition.get("status") or {}).get("acceptedNames") or {}
    accepted = {**wanted}
    conflict = None
    for field, rivals, reason in _CONTESTED:
        holders = {
            name: holder
            for holder, held in others.items()
            for names in held
            for rival in rivals
            for name in _as_list(names.get(rival))
        }
        used = [n for n in _as_list(wanted.get(field)) if n in holders]
        used = [n for n in used if n not in _as_list(had.get(field))]
        if used:
            texts = [f'"{name}" is already in use' for name in used]
            message = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
            conflict = NameConflict(reason, message, holders[used[-1]])
            accepted[field] = had.get(field)
    # Go encodes these two even when they are empty.
    return {k: v for k, v in accepted.items() if v} | {
        key: accepted.get(key) or "" for key in ("plural", "kind")
    }, conflict


def _as_list(names: Any) -> list[str]:
    return names if isinstance(names, list) else [names] if names else []


def status(
    definition: meta.JsonObject, names: meta.JsonObject, conflict: NameConflict | None, *, now: str
) -> meta.JsonObject:
    """Return the status of a definition. Transition times change only with their condition.

    An established definition stays established even when it does not get further names.
    """
    old = definition.get("status") or {}
    was = {c["type"]: c for c in old.get("conditions") or ()}
    if conflict is None:
        accepted = _condition(
            "NamesAccepted", ok=True, reason="NoConflicts", message="no conflicts found"
        )
        established = _condition(
            "Established",
            ok=True,
            reason="InitialNamesAccepted",
            message="the initial names have been accepted",
        )
    else:
        accepted = _condition(
            "NamesAccepted", ok=False, reason=conflict.reason, message=conflict.message
        )
        established = _condition(
            "Established", ok=False, reason="NotAccepted", message="not all names are accepted"
        )
    if is_established(definition):
        established = was["Established"]
    conditions = [_since(one, was.get(one["type"]), now) for one in (accepted, established)]
    # Terminating, and conditions of other writers.
    others = [c for name, c in was.items() if name not in ("NamesAccepted", "Established")]
    versions = list(old.get("storedVersions") or ())
    storage = stored_version(definition)
    # None is removed: objects may still be stored in an older version.
    if storage not in versions:
        versions.append(storage)
    return {
        "conditions": [*conditions, *others],
        "acceptedNames": names,
        "storedVersions": versions,
    }


def mark_deleted(definition: meta.JsonObject, *, now: str) -> meta.JsonObject:
    """Return a definition after its first DELETE: a finalizer keeps it until its objects are
    deleted.
    """
    metadata = definition["metadata"]
    finalizers = [f for f in metadata.get("finalizers") or () if f != CLEANUP]
    marked = {**metadata, "deletionTimestamp": now, "finalizers": [*finalizers, CLEANUP]}
    text = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
    status = _terminating(definition, "InstanceDeletionPending", text, now=now)
    return definition | {"metadata": marked, "status": status}


def terminating(definition: meta.JsonObject, *, now: str) -> meta.JsonObject:
    """Return the status of a definition whose objects are being deleted."""
    text = "CustomResource deletion is in progress"
    return _terminating(definition, "InstanceDeletionInProgress", text, now=now)


def _terminating(
    definition: meta.JsonObject, reason: str, message: str, *, now: str
) -> meta.JsonObject:
    old = definition.get("status") or {}
    conditions = list(old.get("conditions") or ())
    was = next((c for c in conditions if c["type"] == "Terminating"), None)
    condition = _condition("Terminating", ok=True, reason=reason, message=message)
    kept = [c for c in conditions if c is not was]
    return {**old, "conditions": [*kept, _since(condition, was, now)]}


def is_established(definition: meta.JsonObject) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def _condition(type_: str, *, ok: bool, reason: str, message: str) -> dict[str, Any]:
    status_ = "True" if ok else "False"
    return {"type": type_, "status": status_, "reason": reason, "message": message}


def _since(condition: dict[str, Any], was: dict[str, Any] | None, now: str) -> dict[str, Any]:
    same = was is not None and was.get("status") == condition["status"]
    since = was.get("lastTransitionTime", now) if same and was is not None else now
    return {
        "type": condition["type"],
        "status": condition["status"],
        "lastTransitionTime": since,
        "reason": condition["reason"],
        "message": condition["message"],
    }
