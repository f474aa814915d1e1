"""Patches: which kinds of patch are taken, and what one does to an object.

Used by `app`. Pure. JSON merge patch (RFC 7386) for everything; strategic merge patch for built-in
kinds, as `kubectl apply` sends it (`strategic`). JSON patch and server-side apply come later; until
then the refusal names what to use.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from kilnwork.api import meta, resource
from kilnwork.controlplane.apiserver import bodies, builtin, statuses, strategic

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

_REMEDIES = {
    STRATEGIC: "use a JSON merge patch instead: `kubectl patch --type=merge`, `kubectl replace` or "
    "`kiln apply`",
    JSON_PATCH: "use a JSON merge patch instead: `kubectl patch --type=merge`",
    APPLY: "use `kubectl apply --server-side=false` or `kiln apply`: apply patches are not served",
}

Change = Callable[[meta.JsonObject], Any]
"""From an object to what the patch makes of it."""


def decode(raw: bytes, content_type: str, what: resource.Resource) -> Change:
    """What the patch does to an object; 415 with the remedy for a kind that is not taken."""
    if content_type not in _taken(what):
        raise _refusal(content_type, what)
    patch = bodies.decode_object(raw, "application/json")
    apply = strategic.merge if content_type == STRATEGIC else merge
    return lambda obj: apply(obj, patch)


def _taken(what: resource.Resource) -> tuple[str, ...]:
    return (MERGE,) if builtin.of(what).custom else (MERGE, STRATEGIC)


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386: null removes, objects merge, anything else replaces. `target` stays as it is."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def _refusal(content_type: str, what: resource.Resource) -> statuses.StatusError:
    remedy = _REMEDIES.get(content_type, "send a JSON merge patch")
    return statuses.unsupported_media_type(
        f"the body of the request was in an unknown format ({content_type}) - accepted media types "
        f"include: {', '.join(_taken(what))}; for {what.qualified} {remedy}"
    )


def same(left: meta.JsonObject, right: meta.JsonObject) -> bool:
    """True when two objects are the same JSON: an update that changes nothing is not written."""
    return left == right and msgspec.json.encode(left, order="sorted") == msgspec.json.encode(
        right, order="sorted"
    )
