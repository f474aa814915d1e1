"""Patches: which kinds of patch are taken, and what a merge patch does to an object.

Used by `app`. Pure. JSON merge patch (RFC 7386) for everything; strategic merge only where it
differs from that in nothing but directives: Role and RoleBinding, whose lists are atomic. JSON
patch and server-side apply come later; until then the refusal names what to use.
"""

from typing import Any

import msgspec

from kilnwork.api import meta, resource
from kilnwork.controlplane.apiserver import bodies, statuses

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

_STRATEGIC_KINDS = (resource.ROLES, resource.ROLE_BINDINGS)
_REMEDIES = {
    STRATEGIC: "use a JSON merge patch instead: `kubectl patch --type=merge`, `kubectl replace` or "
    "`kiln apply`",
    JSON_PATCH: "use a JSON merge patch instead: `kubectl patch --type=merge`",
    APPLY: "use `kubectl apply --server-side=false` or `kiln apply`: apply patches are not served",
}


def decode(raw: bytes, content_type: str, what: resource.Resource) -> meta.JsonObject:
    """The patch document, 415 with the remedy for a kind of patch that is not taken."""
    taken = content_type == MERGE or (content_type == STRATEGIC and what in _STRATEGIC_KINDS)
    if not taken:
        raise _refusal(content_type, what)
    document = bodies.decode_object(raw, "application/json")
    return _without_directives(document) if content_type == STRATEGIC else document


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
    accepted = [MERGE, STRATEGIC] if what in _STRATEGIC_KINDS else [MERGE]
    remedy = _REMEDIES.get(content_type, "send a JSON merge patch")
    return statuses.unsupported_media_type(
        f"the body of the request was in an unknown format ({content_type}) - accepted media types "
        f"include: {', '.join(accepted)}; for {what.qualified} {remedy}"
    )


def _without_directives(patch: Any) -> Any:
    """Drop what strategic merge adds to RFC 7386; `$patch: replace` and `delete` are refused."""
    if not isinstance(patch, dict):
        return patch
    if "$patch" in patch:
        raise statuses.bad_request(f"the directive $patch: {patch['$patch']} is not supported")
    return {
        name: _without_directives(value)
        for name, value in patch.items()
        if not name.startswith(("$setElementOrder/", "$retainKeys"))
    }


def same(left: meta.JsonObject, right: meta.JsonObject) -> bool:
    """True when two objects are the same JSON: an update that changes nothing is not written."""
    return left == right and msgspec.json.encode(left, order="sorted") == msgspec.json.encode(
        right, order="sorted"
    )
