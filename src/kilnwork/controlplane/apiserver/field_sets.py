"""Sets of fields in the format of `metadata.managedFields[*].fieldsV1` (KEP-555).

Used by `structured_merge` and `managed_fields`. Does no I/O. A set is a tree of dicts in wire
format, so that stored sets need no conversion: keys are path elements (`f:data`, `k:{"name":"a"}`,
`v:"x"`). A field with an empty dict is a member of the set; a field with others below it is a
member if it has the key `.`. No function changes its arguments.
"""

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

Set = dict[str, Any]

HERE = "."


def is_set(value: Any) -> bool:
    """Return whether `value` is a tree of dicts whose keys are path elements."""
    return isinstance(value, dict) and all(
        (key == HERE or _is_element(key)) and is_set(below) for key, below in value.items()
    )


def _is_element(key: str) -> bool:
    kind, mark, value = key.partition(":")
    if kind not in ("f", "k", "v", "i") or not mark:
        return False
    if kind not in ("k", "v"):
        return True
    try:
        return kind == "v" or isinstance(json.loads(value), dict)
    except ValueError:
        return False


def union(left: Set, right: Set) -> Set:
    if not left or not right:
        return left or right
    made = dict(left)
    for key, below in right.items():
        known = made.get(key)
        if known is None or key == HERE or known == below:
            made[key] = below
        else:
            made[key] = _node(
                union(_inner(known), _inner(below)), member=_is_in(known) or _is_in(below)
            )
    return made


def difference(left: Set, right: Set) -> Set:
    if not right:
        return left
    made = {}
    for key, below in left.items():
        other = right.get(key)
        if other is None:
            made[key] = below
        # Equal subtrees leave nothing.
        elif key != HERE and below != other:
            rest = difference(_inner(below), _inner(other))
            member = _is_in(below) and not _is_in(other)
            if rest or member:
                made[key] = _node(rest, member=member)
    return made


def intersection(left: Set, right: Set) -> Set:
    made = {}
    for key, below in left.items():
        other = right.get(key)
        if other is None or key == HERE:
            continue
        both = intersection(_inner(below), _inner(other))
        member = _is_in(below) and _is_in(other)
        if both or member:
            made[key] = _node(both, member=member)
    return made


def contains(fields: Set, element: str) -> bool:
    """Return whether a set contains a field itself, and not only fields below it."""
    node = fields.get(element)
    return node is not None and _is_in(node)


def _is_in(node: Set) -> bool:
    return not node or HERE in node


def _inner(node: Set) -> Set:
    return {k: v for k, v in node.items() if k != HERE} if HERE in node else node


def _node(below: Set, *, member: bool) -> Set:
    return {HERE: {}, **below} if member and below else below


def paths(fields: Set, above: str = "") -> Iterator[str]:
    """Yield the path of every field in a set, in the form of error messages.

    For example `.data.a` or `.spec.containers[name="a"].image`. At each level, members come before
    the fields below them.
    """
    inside = sorted((key, below) for key, below in fields.items() if key != HERE)
    yield from (above + _shown(key) for key, below in inside if _is_in(below))
    for key, below in inside:
        yield from paths(below, above + _shown(key))


def _shown(element: str) -> str:
    kind, _, value = element.partition(":")
    if kind == "f":
        return f".{value}"
    if kind == "k":
        keys = json.loads(value)
        listed = ",".join(f"{name}={_json(keys[name])}" for name in sorted(keys))
        return f"[{listed}]"
    return f"[={value}]" if kind == "v" else f"[{value}]"


def key_element(keys: Mapping[str, Any]) -> str:
    """Return the path element of a list item that is identified by its keys."""
    if len(keys) > 1:
        # Sorted as by structured-merge-diff, since elements are compared as texts.
        keys = {name: keys[name] for name in sorted(keys)}
    return f"k:{_json(keys)}"


@functools.lru_cache(maxsize=4096)
def name_element(key: str, name: str) -> str:
    """Return the path element of a list item with one key; cached, since the names recur."""
    return f"k:{_json({key: name})}"


def value_element(value: Any) -> str:
    """Return the path element of an item of a list of type set."""
    return f"v:{_json(value)}"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
