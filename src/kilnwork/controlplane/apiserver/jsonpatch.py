"""JSON patch (RFC 6902) as kube-apiserver implements it.

Used by `patches`. Does no I/O. It deviates from the RFC like the library behind kube-apiserver
(gopkg.in/evanphx/json-patch.v4): positions may count from the end of a list (-1), `replace` may add
a missing field, and a path need not begin with a slash. The response to a patch that does not apply
does not say why.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

Operation = dict[str, Any]

MAX_OPERATIONS = 10_000
MAX_COPIED_BYTES = 3 << 20
"""Limit for all `copy` operations of a patch together; otherwise twenty of them could produce a
gigabyte (AccumulatedCopySizeLimit of kube-apiserver, k8s.io/apiserver pkg/server/config.go)."""

_MAX_DIGITS = 9
FIELDS = frozenset({"op", "path", "from", "value"})


class DoesNotApply(ValueError):
    """The patch does not apply to the document; nothing was changed."""


def apply(document: dict[str, Any], operations: Sequence[Operation]) -> dict[str, Any]:
    """Return a new document to which all operations are applied in order. Raises DoesNotApply."""
    draft = _Draft(document)
    copied = 0
    for operation in operations:
        kind = operation.get("op")
        if not isinstance(kind, str) or kind not in _OPERATIONS:
            raise DoesNotApply(f"unexpected kind: {kind}")
        if kind == "copy":
            copied += len(msgspec.json.encode(_copied(draft.root, operation)))
            if copied > MAX_COPIED_BYTES:
                raise DoesNotApply(f"copies more than {MAX_COPIED_BYTES} bytes")
        _OPERATIONS[kind](draft, operation)
    return draft.root


class _Draft:
    """Copy-on-write document, which shares unchanged parts with the original."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.root = dict(document)
        self._own: dict[int, Any] = {id(self.root): self.root}
        """Containers that were copied here, by id, and may be changed."""

    def holder(self, path: str) -> tuple[Any, str]:
        """Return the container that holds the last step of a path, and that step.

        Every container on the path is copied, so that it may be changed.
        """
        holder: Any = self.root
        *steps, last = _steps(path)
        for step in steps:
            below = _step(holder, step)
            if isinstance(below, dict | list) and id(below) not in self._own:
                below = below.copy()
                # Kept here, so that no later container can get the same id.
                self._own[id(below)] = below
                holder[_position(step, len(holder)) if isinstance(holder, list) else step] = below
            holder = below
        return _checked(holder, path), last


def _add(draft: _Draft, operation: Operation) -> None:
    _insert_at(draft, _path(operation, "path"), operation.get("value"))


def _remove(draft: _Draft, operation: Operation) -> None:
    _remove_at(draft, _path(operation, "path"))


def _replace(draft: _Draft, operation: Operation) -> None:
    holder, key = draft.holder(_path(operation, "path"))
    if isinstance(holder, list):
        holder[_position(key, len(holder))] = operation.get("value")
    else:
        holder[key] = operation.get("value")


def _move(draft: _Draft, operation: Operation) -> None:
    source, target = _path(operation, "from"), _path(operation, "path")
    _insert_at(draft, target, _remove_at(draft, source))


def _copy(draft: _Draft, operation: Operation) -> None:
    # Later operations on the copy must not affect the source.
    found = copy.deepcopy(_copied(draft.root, operation))
    _insert_at(draft, _path(operation, "path"), found)


def _copied(document: Any, operation: Operation) -> Any:
    """Return the value that a `copy` operation copies; a missing field reads as null."""
    holder, key = _holder(document, _path(operation, "from"))
    return holder.get(key) if isinstance(holder, dict) else _step(holder, key)


def _test(draft: _Draft, operation: Operation) -> None:
    path = _path(operation, "path")
    holder, key = _holder(draft.root, path)
    found = holder.get(key) if isinstance(holder, dict) else _step(holder, key)
    if not _same(found, operation.get("value")):
        raise DoesNotApply(f"testing value {path} failed")


_OPERATIONS: dict[str, Callable[[_Draft, Operation], None]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}


def _path(operation: Operation, name: str) -> str:
    found = operation.get(name)
    if not isinstance(found, str) or not found:
        raise DoesNotApply(f"operation without {name}")
    return found


def _holder(document: Any, path: str) -> tuple[Any, str]:
    """Return the container that holds the last step of `path`, and that step."""
    *steps, last = _steps(path)
    for step in steps:
        document = _step(document, step)
    return _checked(document, path), last


def _checked(holder: Any, path: str) -> Any:
    if not isinstance(holder, dict | list):
        raise DoesNotApply(f"nothing is at the parent of {path}")
    return holder


def _steps(path: str) -> list[str]:
    return [_unescape(step) for step in path.removeprefix("/").split("/")]


def _unescape(step: str) -> str:
    # In this order: "~01" stands for "~1" and not for "/" (RFC 6901).
    return step.replace("~1", "/").replace("~0", "~")


def _step(holder: Any, key: str) -> Any:
    if isinstance(holder, list):
        return holder[_position(key, len(holder))]
    if not isinstance(holder, dict) or key not in holder:
        raise DoesNotApply(f"missing value: {key}")
    return holder[key]


def _insert_at(draft: _Draft, path: str, value: Any) -> None:
    holder, key = draft.holder(path)
    if isinstance(holder, dict):
        holder[key] = value
    elif key == "-":
        holder.append(value)
    else:
        # There is one more position to insert at: behind the last item.
        holder.insert(_position(key, len(holder) + 1), value)


def _remove_at(draft: _Draft, path: str) -> Any:
    holder, key = draft.holder(path)
    found = _step(holder, key)
    del holder[_position(key, len(holder)) if isinstance(holder, list) else key]
    return found


def _position(key: str, length: int) -> int:
    """Return the list index that a step of a path names; negative ones count from the end."""
    digits = key.removeprefix("-")
    if not digits.isdecimal() or not key.isascii() or len(digits) > _MAX_DIGITS:
        raise DoesNotApply(f"no position in a list: {key}")
    found = int(key)
    if not -length <= found < length:
        raise DoesNotApply(f"position out of range: {key}")
    return found % length


def _same(left: Any, right: Any) -> bool:
    """Return whether two values are equal as JSON, where 1 is not true."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)
