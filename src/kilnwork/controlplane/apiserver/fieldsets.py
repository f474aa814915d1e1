"""Sets of fields, as `metadata.managedFields[*].fieldsV1` writes them (KEP-555). Pure.

Used by `typed` and `managed`. A set is a tree of dicts: keys are path elements (`f:data`,
`k:{"name":"a"}`, `v:"x"`), and the key `.` says that the place itself is in the set. On the wire a
leaf is `{}`; in here it is `{".": {}}`. Sets are not changed by what is done with them.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

Set = dict[str, Any]

HERE = "."
LEAF: Set = {HERE: {}}


def decode(wire: Mapping[str, Any]) -> Set:
    """A set from its wire form."""
    return {key: _decoded(below) for key, below in wire.items() if key != HERE}


def _decoded(wire: Mapping[str, Any]) -> Set:
    if not wire:
        return {HERE: {}}
    return {key: {} if key == HERE else _decoded(below) for key, below in wire.items()}


def encode(fields: Set) -> dict[str, Any]:
    """The wire form of a set."""
    return {key: _encoded(below) for key, below in fields.items()}


def _encoded(fields: Set) -> dict[str, Any]:
    if fields.keys() == {HERE}:
        return {}
    return {key: {} if key == HERE else _encoded(below) for key, below in sorted(fields.items())}


def union(left: Set, right: Set) -> Set:
    """What is in either."""
    made = dict(left)
    for key, below in right.items():
        made[key] = union(made[key], below) if key in made and key != HERE else below
    return made


def difference(left: Set, right: Set) -> Set:
    """What is in `left` and not in `right`."""
    made = {}
    for key, below in left.items():
        if key not in right:
            made[key] = below
        elif key != HERE:
            rest = difference(below, right[key])
            if rest:
                made[key] = rest
    return made


def intersection(left: Set, right: Set) -> Set:
    """What is in both."""
    made: Set = {}
    for key, below in left.items():
        if key not in right:
            continue
        if key == HERE:
            made[key] = {}
            continue
        both = intersection(below, right[key])
        if both:
            made[key] = both
    return made


def paths(fields: Set, above: str = "") -> Iterator[str]:
    """Every place in the set as errors name it: `.data.a`, `.spec.containers[name="a"].image`."""
    for key, below in sorted(fields.items()):
        if key == HERE:
            yield above
        else:
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


def field(name: str) -> str:
    """The element of a field or key of a map."""
    return f"f:{name}"


def by_keys(keys: Mapping[str, Any]) -> str:
    """The element of a list's item that is known by its keys."""
    return f"k:{_json({name: keys[name] for name in sorted(keys)})}"


def by_value(value: Any) -> str:
    """The element of a set's item."""
    return f"v:{_json(value)}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
