"""Typed objects: collecting, comparing, merging and pruning their fields.

Used by `managed_fields` and `object_writer`. Does no I/O and changes no argument. Follows
sigs.k8s.io/structured-merge-diff (typed/tofieldset.go, compare.go, merge.go, remove.go) as far as
Kubernetes uses it: structs and maps merge field by field, lists as sets, by keys, or as a whole.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from kilnwork.controlplane.apiserver import field_sets, field_types
from kilnwork.controlplane.apiserver.field_types import FieldType, Merging, ValueForm

HERE = field_sets.HERE


class NotOfType(ValueError):
    """An applied object does not fit its type; the message has a line for each problem."""


class Comparison(NamedTuple):
    """The difference between two objects, as sets of fields."""

    added: field_sets.Set
    modified: field_sets.Set
    removed: field_sets.Set

    @property
    def taken(self) -> field_sets.Set:
        """Return the fields that the writer owns: added and modified ones."""
        return field_sets.union(self.added, self.modified)


def check(type_: FieldType, value: Any) -> None:
    """Raise NotOfType for unknown fields, wrong types and items without their keys."""
    problems = list(_problems(type_, value, ""))
    if len(problems) == 1:
        raise NotOfType(problems[0])
    if problems:
        raise NotOfType("errors:\n" + "\n".join(f"  {text}" for text in problems))


def fields(type_: FieldType, value: Any) -> field_sets.Set:
    """Return the set of all fields in a value."""
    return _collected(type_, value)


def compare(type_: FieldType, old: Any, new: Any) -> Comparison:
    """Return the fields that differ between two objects."""
    comparison = Comparison({}, {}, {})
    _compare_maps(type_, old, new, comparison)
    return comparison


def merge(type_: FieldType, old: Any, new: Any) -> Any:
    """Return `old` with the fields of `new` merged into it."""
    if _is_map(type_, old, new):
        merged = dict(old or {})
        for name, value in (new or {}).items():
            field_type = type_.below(name) or field_types.ANY
            merged[name] = merge(field_type, merged.get(name), value)
        return merged
    if _is_list(type_) and isinstance(old, list) and isinstance(new, list):
        return _merge_lists(type_, old, new)
    return new


def prune(type_: FieldType, merged: Any, last: field_sets.Set, kept: field_sets.Set) -> Any:
    """Return `merged` without the fields that its applier no longer owns.

    These are fields that the applier owned before (`last`) and that no manager owns now (`kept`).
    Follows prune of merge/update.go, whose order matters: a field is removed with everything below
    it, including defaults without an owner; a field that is kept also keeps the struct fields above
    it, but no list or map items.
    """
    last, kept = _with_structs(type_, last), _with_structs(type_, kept)
    if not field_sets.difference(last, kept):
        return merged
    present = _with_structs(type_, fields(type_, merged))
    left = _fields_left(type_, merged, last)
    unowned = field_sets.difference(present, field_sets.union(left, kept))
    left = _fields_left(type_, merged, unowned)
    return _remove(
        type_, merged, field_sets.intersection(field_sets.difference(present, left), last)
    )


def _fields_left(type_: FieldType, value: Any, gone: field_sets.Set) -> field_sets.Set:
    return _with_structs(type_, fields(type_, _remove(type_, value, gone)))


def _with_structs(type_: FieldType, known: field_sets.Set) -> field_sets.Set:
    """Add the struct fields above the members of a set (EnsureNamedFieldsAreMembers)."""
    result: field_sets.Set = {}
    for element, below in known.items():
        if element == HERE or not below:
            result[element] = below
            continue
        kind, _, name = element.partition(":")
        is_field = kind == "f"
        item = type_.below(name) if is_field else type_.item
        inside = _with_structs(item or field_types.ANY, below)
        result[element] = {HERE: {}, **inside} if is_field and name in type_.fields else inside
    return result


def _remove(type_: FieldType, value: Any, gone: field_sets.Set) -> Any:
    """Return a value without the fields of a set and everything below them.

    Returns None if nothing is left, as RemoveItems does; the object's schema may then reject it.
    """
    if not gone or type_.merging is Merging.ATOMIC:
        return value
    if isinstance(value, dict):
        left = ((f"f:{name}", name, item) for name, item in value.items())
        remaining = {
            name: _remove(type_.below(name) or field_types.ANY, item, gone.get(element) or {})
            for element, name, item in left
            if not field_sets.contains(gone, element)
        }
        return remaining or None
    if _is_list(type_) and isinstance(value, list):
        item_type = type_.item or field_types.ANY
        return [
            _remove(item_type, item, gone.get(element) or {})
            for element, item in _elements(type_, value)
            if not field_sets.contains(gone, element)
        ] or None
    return value


# --- shapes -------------------------------------------------------------------------------------


def _is_map(type_: FieldType, *values: Any) -> bool:
    if type_.merging is Merging.ATOMIC or type_.form not in (
        ValueForm.STRUCT,
        ValueForm.MAP,
        ValueForm.ANY,
    ):
        return False
    present = [value for value in values if value is not None]
    return any(isinstance(v, dict) for v in present) and all(isinstance(v, dict) for v in present)


def _is_list(type_: FieldType) -> bool:
    return type_.form is ValueForm.LIST and type_.merging in (Merging.SET, Merging.KEYED)


_MAX_NAMED = 64
"""Maximum length of a name whose path element is cached."""


def _elements(type_: FieldType, items: list[Any]) -> Iterator[tuple[str, Any]]:
    key = type_.keys[0] if type_.merging is Merging.KEYED and len(type_.keys) == 1 else None
    for item in items:
        name = item.get(key) if key is not None and isinstance(item, dict) else None
        if key is not None and type(name) is str and len(name) <= _MAX_NAMED:
            yield field_sets.name_element(key, name), item
            continue
        if type_.merging is Merging.KEYED and isinstance(item, dict):
            # A port without a protocol is the same item as the port with TCP.
            keys = {name: item.get(name, type_.defaults.get(name)) for name in type_.keys}
            keys = {name: value for name, value in keys.items() if value is not None}
            yield field_sets.key_element(keys), item
        else:
            yield field_sets.value_element(item), item


# --- walks --------------------------------------------------------------------------------------


def _collected(type_: FieldType, value: Any) -> field_sets.Set:
    """Return the set of the fields in a value, without an entry for the value itself."""
    collected: field_sets.Set = {}
    if isinstance(value, dict) and type_.merging is not Merging.ATOMIC:
        for name, item in value.items():
            below = _collected(type_.below(name) or field_types.ANY, item)
            # An empty map has no fields to own, so it is owned itself.
            is_leaf = item in (None, {}) or not _goes_on(type_.below(name), item)
            if is_leaf:
                collected[f"f:{name}"] = {}
            elif name not in type_.fields:
                collected[f"f:{name}"] = {HERE: {}, **below}
            elif below:
                collected[f"f:{name}"] = below
    elif _is_list(type_) and isinstance(value, list):
        for element, item in _elements(type_, value):
            below = _collected(type_.item or field_types.ANY, item)
            collected[element] = {HERE: {}, **below} if below else {}
    return collected


def _goes_on(type_: FieldType | None, value: Any) -> bool:
    """Return whether a value has fields or items of its own in a set."""
    field_type = type_ or field_types.ANY
    if isinstance(value, dict):
        return field_type.merging is not Merging.ATOMIC
    return isinstance(value, list) and _is_list(field_type)


_LEAVES = frozenset({str, bool, int, float})
"""Python types of values without fields, whatever their declared type."""


def _present(type_: FieldType, value: Any) -> field_sets.Set:
    """Return the set of fields that are added or removed with a value: its own and all below it."""
    if isinstance(value, dict):
        if not value or type_.merging is Merging.ATOMIC:
            return {}
        node: field_sets.Set = {HERE: {}}
        declared = type_.fields
        for name, item in value.items():
            if type(item) in _LEAVES:
                node[f"f:{name}"] = {}
            elif item is not None:
                below = declared.get(name) or type_.below(name) or field_types.ANY
                node[f"f:{name}"] = _present(below, item)
        return node
    if value and isinstance(value, list) and _is_list(type_):
        node = {HERE: {}}
        below = type_.item or field_types.ANY
        for element, item in _elements(type_, value):
            node[element] = _present(below, item)
        return node
    return {}


def _compare_maps(
    type_: FieldType, old: dict[str, Any], new: dict[str, Any], found: Comparison
) -> None:
    for name, after in new.items():
        before = old.get(name)
        if before is None and type(after) in _LEAVES:
            found.added[f"f:{name}"] = {}
        elif before is not after and before != after:
            field_type = type_.below(name) or field_types.ANY
            _compare(field_type, before, after, found, f"f:{name}")
    for name, before in old.items():
        if name not in new and before is not None:
            found.removed[f"f:{name}"] = _present(type_.below(name) or field_types.ANY, before)


def _compare_lists(type_: FieldType, old: list[Any], new: list[Any], found: Comparison) -> None:
    item_type = type_.item or field_types.ANY
    same = _same_beginning(old, new)
    old, new = old[same:], new[same:]
    before, after = dict(_elements(type_, old)), dict(_elements(type_, new))
    for element, item in after.items():
        if element not in before:
            found.added[element] = _present(item_type, item)
        elif before[element] != item:
            _compare(item_type, before[element], item, found, element)
    for element, item in before.items():
        if element not in after:
            found.removed[element] = _present(item_type, item)


def _same_beginning(old: list[Any], new: list[Any]) -> int:
    """Return the number of equal items at the start of both lists.

    In a long list that grows, most items are equal.
    """
    pairs = enumerate(zip(old, new, strict=False))
    return next((n for n, (a, b) in pairs if a is not b and a != b), min(len(old), len(new)))


def _compare(type_: FieldType, old: Any, new: Any, found: Comparison, element: str) -> None:
    """Add the difference of two values, which differ, to `found` at `element`."""
    if old is None:
        found.added[element] = _present(type_, new)
        return
    if new is None:
        found.removed[element] = _present(type_, old)
        return
    kind = type(new)
    if kind in _LEAVES or kind is not type(old) or not _goes_on(type_, new):
        found.modified[element] = {}
        return
    inside = Comparison({}, {}, {})
    compare_inside = _compare_maps if kind is dict else _compare_lists
    compare_inside(type_, old, new, inside)
    # Empty sets are not added: an empty set would mean the field itself.
    if inside.added:
        found.added[element] = inside.added
    if inside.modified:
        found.modified[element] = inside.modified
    if inside.removed:
        found.removed[element] = inside.removed


def _merge_lists(type_: FieldType, old: list[Any], new: list[Any]) -> list[Any]:
    """Return two lists merged in the order of mergeListItems.

    Common items are in the new order, all others where they were.
    """
    item_type = type_.item or field_types.ANY
    before, after = list(_elements(type_, old)), list(_elements(type_, new))
    old_items, new_names = dict(before), {element for element, _ in after}
    shared = iter([element for element, _ in after if element in old_items])
    following = next(shared, None)
    merged: list[Any] = []
    taken: set[str] = set()
    left = right = 0
    while left < len(before) or right < len(after):
        if left < len(before):
            element, item = before[left]
            if element not in new_names:
                merged.append(item)
                left += 1
                continue
            if right < len(after) and element != after[right][0]:
                if element in taken or element != following:
                    left += 1
                    continue
            elif right >= len(after):
                left += 1
                continue
        if right < len(after):
            element, item = after[right]
            merged.append(merge(item_type, old_items.get(element), item))
            taken.add(element)
            right += 1
            if left < len(before) and before[left][0] == element:
                left += 1
            if element == following:
                following = next(shared, None)
    return merged


# --- problems -----------------------------------------------------------------------------------


def _problems(type_: FieldType, value: Any, path: str) -> Iterator[str]:
    form = type_.form
    if value is None or form in (ValueForm.ANY, ValueForm.QUANTITY):
        return
    if form in (ValueForm.STRUCT, ValueForm.MAP):
        if not isinstance(value, dict):
            yield f"{path}: expected map, got {_got(value)}"
            return
        for name, item in value.items():
            field_type = type_.below(name)
            if field_type is None:
                yield f"{path}.{name}: field not declared in schema"
            else:
                yield from _problems(field_type, item, f"{path}.{name}")
    elif form is ValueForm.LIST:
        if not isinstance(value, list):
            yield f"{path}: expected list, got {_got(value)}"
            return
        yield from _list_problems(type_, value, path)
    elif not _FITS[form](value):
        yield f"{path}: expected {_WANTED[form]}, got {_got(value)}"


def _list_problems(type_: FieldType, value: list[Any], path: str) -> Iterator[str]:
    seen: set[str] = set()
    for position, item in enumerate(value):
        where = f"{path}[{position}]"
        if type_.merging is Merging.KEYED and isinstance(item, dict):
            missing = [k for k in type_.keys if k not in item and k not in type_.defaults]
            if missing:
                yield (
                    f"{path}: element {position}: associative list with keys has an element that "
                    f'omits key field "{missing[0]}" (and doesn\'t have default value)'
                )
                continue
        if _is_list(type_):
            element = next(_elements(type_, [item]))[0]
            shown = next(field_sets.paths({element: {}}))
            if element in seen:
                yield f"{path}: duplicate entries for key {shown}"
            seen.add(element)
            where = f"{path}{shown}"
        yield from _problems(type_.item or field_types.ANY, item, where)


_FITS = {
    ValueForm.TEXT: lambda v: isinstance(v, str),
    ValueForm.BOOLEAN: lambda v: isinstance(v, bool),
    ValueForm.INTEGER: lambda v: isinstance(v, int) and not isinstance(v, bool),
    ValueForm.NUMBER: lambda v: isinstance(v, int | float) and not isinstance(v, bool),
}
_WANTED = {
    ValueForm.TEXT: "string",
    ValueForm.BOOLEAN: "boolean",
    ValueForm.INTEGER: "numeric (int or float)",
    ValueForm.NUMBER: "numeric (int or float)",
}


def _got(value: Any) -> str:
    """Return a value as the Go library prints it."""
    shown = {True: "true", False: "false"}.get(value, value) if isinstance(value, bool) else value
    return f"&value.valueUnstructured{{Value:{_quoted(shown)}}}"


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) and value not in ("true", "false") else str(value)
