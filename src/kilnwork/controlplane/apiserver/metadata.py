"""Object metadata on its way in: what clients may set, what only the server sets, and names.

Used by `crud`. Pure: the time, uids and randomness come from the caller. Follows
k8s.io/apiserver/pkg/registry/rest (BeforeCreate, BeforeUpdate).
"""

from collections.abc import Mapping
from typing import Any

from kilnwork.controlplane.apiserver import statuses
from kilnwork.kit import ids

MAX_GENERATED_BASE = 58
"""Longest part of `generateName` that is used: five characters follow, 63 in all."""

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""As k8s.io/apimachinery/pkg/util/rand: no vowels, nothing that looks like another."""

_NEVER_KEPT = ("selfLink", "managedFields")
_OF_THE_SERVER = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)
_EMPTY_IS_ABSENT = ("labels", "annotations", "ownerReferences", "finalizers")


def of(obj: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata that a client sent; empty when there is none, 400 when it is no object."""
    found = obj.get("metadata")
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise statuses.bad_request("metadata must be an object")
    return found


def cleaned(given: Mapping[str, Any]) -> dict[str, Any]:
    """Without nulls, empties and what is never kept."""
    kept = {k: v for k, v in given.items() if v is not None and k not in _NEVER_KEPT}
    for name in _EMPTY_IS_ABSENT:
        if name in kept and not kept[name]:
            del kept[name]
    return kept


def for_create(
    given: Mapping[str, Any], *, namespace: str, uid: str, now: str, counted: bool
) -> dict[str, Any]:
    """Metadata of a new object; `counted` gives it an object generation."""
    kept = cleaned(given)
    if kept.get("resourceVersion"):
        raise statuses.plain_internal("resourceVersion should not be set on objects to be created")
    kept.pop("resourceVersion", None)
    for name in _OF_THE_SERVER:
        kept.pop(name, None)
    kept.pop("namespace", None)
    if namespace:
        kept["namespace"] = namespace
    kept["uid"] = uid
    kept["creationTimestamp"] = now
    if counted:
        kept["generation"] = 1
    return kept


def for_update(given: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """What a client may change of metadata, over what only the server may."""
    kept = cleaned(given)
    for name in (*_OF_THE_SERVER, "namespace", "name", "resourceVersion"):
        kept.pop(name, None)
        if name in old:
            kept[name] = old[name]
    return kept


def generated_name(base: str, entropy: ids.Entropy) -> str:
    """`base` and five random characters, as `generateName` asks for."""
    suffix = "".join(entropy.choice(_SUFFIX_LETTERS) for _ in range(5))
    return base[:MAX_GENERATED_BASE] + suffix


def new_finalizers(given: Mapping[str, Any], old: Mapping[str, Any]) -> list[str]:
    """Finalizers that an update adds: refused once the object is being deleted."""
    before = set(old.get("finalizers") or ())
    return [f for f in given.get("finalizers") or () if f not in before]
