"""Metadata of written objects: the fields that clients may set, server fields, generated names.

Used by `object_writer` and `write_checks`. Does no I/O: time, uids and randomness come from the
caller. Follows k8s.io/apiserver/pkg/registry/rest (BeforeCreate, BeforeUpdate).
"""

from collections.abc import Mapping
from typing import Any

from kilnwork.controlplane.apiserver import statuses
from kilnwork.kit import ids

MAX_GENERATED_BASE = 58
"""Characters of `generateName` that are used: five more follow, 63 in all."""

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""As k8s.io/apimachinery/pkg/util/rand: no vowels, and no characters that look alike."""

_NEVER_KEPT = ("selfLink", "managedFields")
_OF_THE_SERVER = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)
_EMPTY_IS_ABSENT = ("labels", "annotations", "ownerReferences", "finalizers")


def metadata_of(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of an object that a client sent, or {} when there is none.

    Raises 400 if the metadata is not a JSON object.
    """
    found = obj.get("metadata")
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise statuses.bad_request("metadata must be an object")
    return found


def cleaned(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata without nulls, empty collections and fields that are never stored."""
    kept = {k: v for k, v in given.items() if v is not None and k not in _NEVER_KEPT}
    for name in _EMPTY_IS_ABSENT:
        if name in kept and not kept[name]:
            del kept[name]
    return kept


def for_create(
    given: Mapping[str, Any], *, namespace: str, uid: str, now: str, counted: bool
) -> dict[str, Any]:
    """Return the metadata of a new object.

    `counted`: whether the object gets an object generation.
    """
    kept = cleaned(given)
    # In the real server the storage layer refuses it, hence a 500 without a reason.
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
    """Return the metadata of an updated object.

    It is that of the client, with the fields that only the server sets taken from `old`.
    """
    kept = cleaned(given)
    for name in (*_OF_THE_SERVER, "namespace", "name", "resourceVersion"):
        kept.pop(name, None)
        if name in old:
            kept[name] = old[name]
    return kept


def generated_name(base: str, entropy: ids.Entropy) -> str:
    """Return `base` with five random characters, as `generateName` requests."""
    suffix = "".join(entropy.choice(_SUFFIX_LETTERS) for _ in range(5))
    return base[:MAX_GENERATED_BASE] + suffix


def new_finalizers(given: Mapping[str, Any], old: Mapping[str, Any]) -> list[str]:
    """Return the finalizers that an update adds.

    Adding one is refused once the object is being deleted.
    """
    before = set(old.get("finalizers") or ())
    return [f for f in given.get("finalizers") or () if f not in before]
