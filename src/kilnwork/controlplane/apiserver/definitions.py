"""CustomResourceDefinitions: what one says, what is filled in, and which names it gets. Pure.

Used by admission and by `definition_keeper`. Follows k8s.io/apiextensions-apiserver
(apis/apiextensions/v1/defaults.go, controller/status, controller/establish).
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from kilnwork.api import meta, resource
from kilnwork.controlplane.apiserver import builtin

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
"""Finalizer: the objects of a kind go before its definition does."""

_NAMES = ("plural", "singular", "shortNames", "kind", "listKind", "categories")
_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")


def default(definition: meta.JsonObject) -> None:
    """Fill in what a user may leave out."""
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
    """The name of the version in which objects are kept."""
    versions = definition["spec"].get("versions") or ()
    return next((str(v["name"]) for v in versions if v.get("storage")), "")


def served_by(definition: meta.JsonObject) -> Iterator[builtin.Served]:
    """Every version that is served, the newest first (KEP-1111: v1, v1beta1, v1alpha1)."""
    spec = definition["spec"]
    names, versions = spec["names"], spec["versions"]
    several = len(versions) > 1
    for version in sorted(versions, key=lambda v: priority(v["name"]), reverse=True):
        if not version.get("served"):
            continue
        kind = resource.Resource(
            group=spec["group"],
            version=version["name"],
            kind=names["kind"],
            plural=names["plural"],
            singular=names.get("singular", ""),
            namespaced=spec["scope"] == "Namespaced",
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
        )
        storage = stored_version(definition) if several else ""
        yield builtin.custom(kind, version, storage_version=storage)


def priority(version: str) -> tuple[int, int, int, str]:
    """A key by which versions sort: general availability, beta, alpha; anything else last."""
    found = _VERSION.fullmatch(version)
    if found is None:
        return (0, 0, 0, version)
    level = {None: 3, "beta": 2, "alpha": 1}[found[2]]
    return (level, int(found[1]), int(found[3] or 0), "")


def taken_name(definition: meta.JsonObject, others: Iterable[resource.Resource]) -> str:
    """Why the names cannot be had, or an empty text; `others`: of the same group, not its own.

    Of several conflicts the last, as the real server.
    """
    names = definition["spec"]["names"]
    wanted = [
        ("PluralNameConflict", [names["plural"]]),
        ("SingularNameConflict", [names.get("singular", "")]),
        ("ShortNamesConflict", names.get("shortNames") or []),
    ]
    held: set[str] = set()
    kinds: set[str] = set()
    for other in others:
        held |= {other.plural, other.singular, *other.short_names}
        kinds |= {other.kind, f"{other.kind}List"}
    conflicts = [
        f'{reason}: "{name}" is already in use'
        for reason, found in wanted
        for name in found
        if name and name in held
    ]
    for reason, kind in (("KindConflict", names["kind"]), ("ListKindConflict", names["listKind"])):
        if kind in kinds:
            conflicts.append(f'{reason}: "{kind}" is already in use')
    return conflicts[-1] if conflicts else ""


def status(definition: meta.JsonObject, *, taken: str, now: str) -> meta.JsonObject:
    """The status that a definition should have; times move only with what they are of."""
    old = definition.get("status") or {}
    names = definition["spec"]["names"]
    reason, _, why = taken.partition(": ")
    if taken:
        accepted = _condition("NamesAccepted", ok=False, reason=reason, message=why)
        established = _condition(
            "Established", ok=False, reason="NotAccepted", message="not all names are accepted"
        )
    else:
        accepted = _condition(
            "NamesAccepted", ok=True, reason="NoConflicts", message="no conflicts found"
        )
        established = _condition(
            "Established",
            ok=True,
            reason="InitialNamesAccepted",
            message="the initial names have been accepted",
        )
    was = {c["type"]: c for c in old.get("conditions") or ()}
    conditions = [_since(one, was.get(one["type"]), now) for one in (accepted, established)]
    others = [c for name, c in was.items() if name not in ("NamesAccepted", "Established")]
    versions = list(old.get("storedVersions") or ())
    storage = stored_version(definition)
    if storage not in versions:
        versions.append(storage)
    nothing = {"plural": "", "kind": ""}
    return {
        "conditions": [*conditions, *others],
        "acceptedNames": (old.get("acceptedNames") or nothing) if taken else names,
        "storedVersions": versions,
    }


def is_established(definition: meta.JsonObject) -> bool:
    """True when its objects are served."""
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
