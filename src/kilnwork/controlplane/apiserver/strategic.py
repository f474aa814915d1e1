"""Strategic merge patch, which `kubectl apply` sends for built-in kinds.

Used by `patches`. Does no I/O. A strategic merge patch is RFC 7386 with two additions: some lists
merge by a key of their elements or as sets, and directives (`$patch`, `$deleteFromPrimitiveList/…`,
`$retainKeys`) delete and replace. Follows k8s.io/apimachinery/pkg/util/strategicpatch; the merge
keys are the `patchMergeKey` tags of k8s.io/api. `$setElementOrder/…` orders the elements that it
names; new elements of a patch come last.
"""

from collections.abc import Hashable
from typing import Any

from kilnwork.controlplane.apiserver import causes, statuses

MERGE_KEYS = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "ports": "containerPort",
    "secrets": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""Field name of a list of objects that merges → its merge key, the same in all kinds served
here."""

SETS = frozenset({"finalizers"})
"""Lists of strings that merge as sets; any other list is replaced as a whole."""

_PATCH, _RETAIN = "$patch", "$retainKeys"
_DELETE_FROM, _ORDER = "$deleteFromPrimitiveList/", "$setElementOrder/"


def merge(target: Any, patch: Any) -> Any:
    """Return `target` with `patch` applied. `target` itself is not changed.

    Raises 400 for an invalid patch, 500 for list items that are no objects or lack the merge key,
    as kube-apiserver does.
    """
    if not isinstance(patch, dict):
        return patch
    directive = patch.get(_PATCH)
    if directive not in (None, "merge", "replace", "delete"):
        raise statuses.bad_request(f"unknown patch directive $patch: {directive}")
    if directive == "delete":
        return {}
    base = target if isinstance(target, dict) and directive != "replace" else {}
    merged = dict(base)
    if _RETAIN in patch:
        merged = {k: v for k, v in merged.items() if k in _listed(patch, _RETAIN)}
    directives = []
    for name, value in patch.items():
        if name.startswith("$"):
            directives.append(name)
        # Most values are strings or booleans, which need no call of `merge`.
        elif type(value) is str or type(value) is bool:
            merged[name] = value
        else:
            _merge_field(merged, name, value)
    # Directives come after the fields: an order also covers the elements that the patch adds.
    for name in directives:
        if name.startswith(_DELETE_FROM):
            _take_out(merged, name.removeprefix(_DELETE_FROM), _listed(patch, name))
        elif name.startswith(_ORDER):
            _put_in_order(merged, name.removeprefix(_ORDER), _listed(patch, name))
        elif name not in (_PATCH, _RETAIN):
            raise statuses.bad_request(f"unknown patch directive {name}")
    return merged


def _merge_field(merged: dict[str, Any], name: str, value: Any) -> None:
    current = merged.get(name)
    if value is None:
        merged.pop(name, None)
    elif isinstance(value, list) and name in MERGE_KEYS:
        merged[name] = _merge_objects(current, value, key=MERGE_KEYS[name], field=name)
    elif isinstance(value, list) and name in SETS:
        old = current if isinstance(current, list) else []
        merged[name] = [*old, *(item for item in value if item not in old)]
    elif isinstance(value, dict) and value.get(_PATCH) == "delete":
        merged.pop(name, None)
    else:
        merged[name] = merge(current, value)


def _merge_objects(known: Any, patch: list[Any], *, key: str, field: str) -> list[Any]:
    if not all(isinstance(item, dict) for item in patch):
        raise statuses.plain_internal(f"{field}: a list of objects is expected")
    replaced = any(item == {_PATCH: "replace"} for item in patch)
    merged = [] if replaced or not isinstance(known, list) else list(known)
    for item in patch:
        if item == {_PATCH: "replace"}:
            continue
        if key not in item:
            raise statuses.plain_internal(
                f"map: {causes.go_text(item)} does not contain declared merge key: {key}"
            )
        name = item[key]
        position = next((i for i, old in enumerate(merged) if _name(old, key) == name), None)
        if item.get(_PATCH) == "delete":
            merged = [old for old in merged if _name(old, key) != name]
        elif position is None:
            # Merged into an empty object, so that directives within the item are not stored.
            merged.append(merge({}, item))
        else:
            merged[position] = merge(merged[position], item)
    return merged


def _listed(patch: dict[str, Any], name: str) -> list[Any]:
    if not isinstance(patch[name], list):
        raise statuses.bad_request(f"{name} must be a list")
    return list(patch[name])


def _take_out(merged: dict[str, Any], field: str, gone: list[Any]) -> None:
    if isinstance(merged.get(field), list):
        merged[field] = [item for item in merged[field] if item not in gone]


def _put_in_order(merged: dict[str, Any], field: str, wanted: list[Any]) -> None:
    """Arrange the items that `wanted` lists in the order of `wanted`.

    All other items of the field keep their positions.
    """
    key = MERGE_KEYS.get(field)
    items = merged.get(field)
    if not isinstance(items, list) or (key is None and field not in SETS):
        return
    positions: dict[Hashable, int] = {}
    for position, item in enumerate(wanted):
        if isinstance(name := _name(item, key), Hashable):
            positions.setdefault(name, position)
    found = [
        positions.get(name) if isinstance(name := _name(item, key), Hashable) else None
        for item in items
    ]
    named = [(position, n) for n, position in enumerate(found) if position is not None]
    ordered = iter(sorted(named))
    merged[field] = [
        item if position is None else items[next(ordered)[1]]
        for item, position in zip(items, found, strict=True)
    ]


def _name(item: Any, key: str | None) -> Any:
    return item.get(key) if key is not None and isinstance(item, dict) else item
