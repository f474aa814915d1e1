"""Patches of objects: the patch types that a kind accepts, and their application.

Used by `resource_handler` and `scale_subresource`. Does no I/O. JSON merge patch (RFC 7386) and
JSON patch (`jsonpatch`) for every kind; strategic merge patch, which `kubectl edit` sends, for
built-in kinds (`strategic`). For apply patches see `managed_fields`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from kilnwork.api import meta
from kilnwork.controlplane.apiserver import (
    bodies,
    builtin,
    duplicates,
    jsonpatch,
    statuses,
    strategic,
)

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

Change = Callable[[meta.JsonObject], Any]
"""Returns an object with the patch applied."""


class DecodedPatch(NamedTuple):
    """A decoded patch: the function that applies it, and messages about its body (`oddities`), such
    as `duplicate field "data"`.
    """

    change: Change
    oddities: tuple[str, ...] = ()


def decode(raw: bytes, content_type: str, served: builtin.ServedResource) -> DecodedPatch:
    """Return the patch in a request body.

    Raises 415 for a patch type that is not accepted, 400 for an unreadable patch, 413 for a JSON
    patch with too many operations.
    """
    if content_type == JSON_PATCH:
        return _json_patch(raw)
    if content_type not in _taken(served):
        raise _refusal(content_type, served)
    patch = _merge_patch(raw)
    apply = strategic.merge if content_type == STRATEGIC else merge
    oddities = duplicates.find_duplicates(raw, "application/json", patch, typed=False)
    return DecodedPatch(lambda obj: apply(obj, patch), oddities)


def _taken(served: builtin.ServedResource) -> tuple[str, ...]:
    # Strategic merge needs the patch keys of Go structs, which custom resources do not have.
    taken = (JSON_PATCH, MERGE) if served.custom else (JSON_PATCH, MERGE, STRATEGIC)
    return (*taken, APPLY)


def merge(target: Any, patch: Any) -> Any:
    """Return `target` with a merge patch applied (RFC 7386). `target` is not changed.

    Null removes a field, objects merge, anything else replaces.
    """
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            # Also where the field is new: nulls within the patch are not stored (RFC 7386).
            merged[name] = merge(merged.get(name), value)
    return merged


def _merge_patch(raw: bytes) -> dict[str, Any]:
    patch = _decoded(raw)
    if patch is None:
        raise statuses.bad_request("Invalid JSON Patch")
    if not isinstance(patch, dict):
        raise _wrong_go_type(patch, "map[string]interface {}")
    return patch


def _json_patch(raw: bytes) -> DecodedPatch:
    operations = _decoded(raw)
    if not isinstance(operations, list):
        raise _wrong_go_type(operations, "[]handlers.jsonPatchOp")
    for operation in operations:
        if not isinstance(operation, dict):
            raise _wrong_go_type(operation, "handlers.jsonPatchOp")
    if len(operations) > jsonpatch.MAX_OPERATIONS:
        raise statuses.too_many_operations(len(operations), jsonpatch.MAX_OPERATIONS)

    nests = _may_nest(raw, operations)

    def change(obj: meta.JsonObject) -> meta.JsonObject:
        try:
            changed = jsonpatch.apply(obj, operations)
        except (jsonpatch.DoesNotApply, RecursionError) as error:
            raise statuses.rejected() from error
        if nests:
            bodies.check_nesting(changed)
        return changed

    return DecodedPatch(change, tuple(_operation_oddities(raw, operations)))


def _may_nest(raw: bytes, operations: list[dict[str, Any]]) -> bool:
    """Return whether a JSON patch may write values that are nested too deep."""
    # These can double the depth without a bracket in the patch.
    if any(operation.get("op") in ("copy", "move") for operation in operations):
        return True
    deepest = max((str(operation.get("path")).count("/") for operation in operations), default=0)
    return deepest + raw.count(b"{") + raw.count(b"[") >= bodies.MAX_DEPTH


def _operation_oddities(raw: bytes, operations: list[dict[str, Any]]) -> list[str]:
    found = [f'json patch duplicate field "{path}"' for path in duplicates.find_in_json(raw)]
    for position, operation in enumerate(operations):
        unknown = [name for name in operation if name not in jsonpatch.FIELDS]
        found += [f'json patch unknown field "[{position}].{name}"' for name in unknown]
    return found


def _decoded(raw: bytes) -> Any:
    bodies.check_depth(raw)
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise statuses.bad_request(
            f"error decoding patch: {bodies.json_problem(raw, error)}"
        ) from error


def _wrong_go_type(found: Any, wanted: str) -> statuses.StatusError:
    names = {list: "array", dict: "object", str: "string", bool: "bool"}
    name = names.get(type(found), "number")
    return statuses.bad_request(
        f"error decoding patch: json: cannot unmarshal {name} into Go value of type {wanted}"
    )


def _refusal(content_type: str, served: builtin.ServedResource) -> statuses.StatusError:
    if content_type == STRATEGIC:
        return statuses.unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: "
            + ", ".join(_taken(served))
        )
    return statuses.unsupported_media_type("415: Unsupported Media Type")


def same(left: meta.JsonObject, right: meta.JsonObject) -> bool:
    """Return whether two objects are the same JSON; an update that changes nothing is not
    written.
    """
    # Python takes 1, 1.0 and True as equal; their encodings differ.
    return left == right and msgspec.json.encode(left, order="sorted") == msgspec.json.encode(
        right, order="sorted"
    )
