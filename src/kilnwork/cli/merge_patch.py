"""Changes that `kiln apply` makes: a three-way comparison with a JSON merge patch (RFC 7386).

No I/O; used by the command `apply` and by `deploy_diff`. It uses the annotation of kubectl, so that
both tools may change the same object in turn. Fields that the last apply set and the new manifest
omits are removed; fields that other clients set are kept.
"""

import copy
from typing import Any

import msgspec

from kilnwork.api import meta

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""Annotation of kubectl's client-side apply: the last applied manifest as JSON."""


def annotated(body: meta.JsonObject) -> meta.JsonObject:
    """Return a copy of a manifest that has the manifest itself in kubectl's annotation.

    The copy is what is sent to create the object.
    """
    bare = copy.deepcopy(body)
    annotations = bare.setdefault("metadata", {}).setdefault("annotations", {}) or {}
    annotations.pop(LAST_APPLIED, None)
    text = msgspec.json.encode(bare, order="sorted").decode() + "\n"
    result = copy.deepcopy(bare)
    result["metadata"]["annotations"] = {**annotations, LAST_APPLIED: text}
    return result


def patch(live: meta.JsonObject, body: meta.JsonObject) -> meta.JsonObject:
    """Return the merge patch that makes the object `live` match a manifest.

    It is empty if the object already does.
    """
    wanted = annotated(body)
    text = live.get("metadata", {}).get("annotations", {}).get(LAST_APPLIED, "")
    change = difference(last_applied(text), live, wanted)
    return change if _matters(change) else {}


def last_applied(text: str) -> meta.JsonObject:
    """Return the manifest in the text of kubectl's annotation.

    It is empty for an empty or unreadable text.
    """
    try:
        found = msgspec.json.decode(text.encode())
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def difference(
    before: dict[str, Any], live: dict[str, Any], wanted: dict[str, Any]
) -> dict[str, Any]:
    """Return the merge patch from `live` to `wanted`.

    It removes keys of `before` that `wanted` lacks.
    """
    change: dict[str, Any] = {}
    for key, value in wanted.items():
        if value is None:
            if live.get(key) is not None:
                change[key] = None
            continue
        now = live.get(key)
        if isinstance(value, dict) and isinstance(now, dict):
            old = before.get(key)
            inner = difference(old if isinstance(old, dict) else {}, now, value)
            if inner:
                change[key] = inner
        elif not same(now, value):
            change[key] = value
    for key in before:
        if key not in wanted and key in live:
            change[key] = None
    return change


def same(left: Any, right: Any) -> bool:
    """Return whether two values are equal as JSON: `true` differs from 1, but 1 equals 1.0."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def _matters(change: meta.JsonObject) -> bool:
    """Return whether a patch changes more than the text of kubectl's annotation."""
    rest = copy.deepcopy(change)
    metadata = rest.get("metadata", {})
    annotations = metadata.get("annotations", {})
    annotations.pop(LAST_APPLIED, None)
    if not annotations:
        metadata.pop("annotations", None)
    if not metadata:
        rest.pop("metadata", None)
    return bool(rest)
