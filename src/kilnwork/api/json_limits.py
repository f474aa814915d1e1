"""Limits for JSON documents from outside: their size, and the work of processing them.

Used by code that evaluates or copies documents written by controllers, services or users, such as
result rules (`result_rule_compiler`, `jsonpaths`, `cel_evaluation`) and `substitution`. Nothing
here waits or reads a clock: work is counted in steps, so that the same document gives the same
result on a busy machine.
"""

import math
from typing import Any

import msgspec

from kilnwork.kit import errors

MAX_SIZE = 1 << 20
"""Maximum size of a document: its values plus the characters of its strings and keys. JSON of
this size has at least as many bytes; etcd keeps objects of up to 1.5 MiB."""

MAX_DEPTH = 64
"""Maximum nesting depth of lists and objects."""

MAX_WORK = 1_000_000
"""Maximum work of one evaluation, in steps of 0.05 to 0.3 µs: the work that an API server allows
for one CEL expression (https://kubernetes.io/docs/reference/using-api/cel/#runtime-cost-budget)."""


class LimitExceeded(errors.KilnError):
    """The document is too large or too deep, or its evaluation takes too much work; the message
    gives the limit."""


class Size(msgspec.Struct, frozen=True):
    """The size of a document, as measured by `measure`."""

    work: int
    """Number of steps of one pass over the document: its values, and a 16th of its characters."""
    longest: int
    """Length of the longest list or object."""


class Budget:
    """The steps that an evaluation may still use."""

    def __init__(self, steps: int = MAX_WORK) -> None:
        self._steps = self._left = steps

    def spend(self, steps: int) -> None:
        """Count `steps` before the work is done; raises LimitExceeded if fewer are left."""
        self._left -= steps
        if self._left < 0:
            raise LimitExceeded(f"takes more than {self._steps} steps on this document")


def measure(document: Any, *, max_size: int = MAX_SIZE, max_depth: int = MAX_DEPTH) -> Size:
    """Return the size of parsed JSON; raises LimitExceeded if it is too large or too deep."""
    values, characters, longest, depth = 0, 0, 0, 0
    level = [document]
    while level:
        below: list[Any] = []
        values += len(level)
        nested = False
        for value in level:
            if type(value) is str:
                characters += len(value)
            elif type(value) is dict:
                nested, longest = True, max(longest, len(value))
                characters += sum(map(len, value))
                below.extend(value.values())
            elif type(value) is list:
                nested, longest = True, max(longest, len(value))
                below.extend(value)
        depth += nested
        if values + characters + len(below) > max_size:
            raise LimitExceeded(f"has more than {max_size} values and characters")
        if depth > max_depth:
            raise LimitExceeded(f"has lists and objects more than {max_depth} deep in each other")
        level = below
    return Size(values + characters // 16, longest)


def find_non_json(value: Any) -> str | None:
    """Return a description of a part of the value that is not JSON, or None.

    The value must be small enough for `measure`.
    """
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)
        elif isinstance(one, float) and not math.isfinite(one):
            return f"the number {one}"
        elif one is not None and not isinstance(one, str | int | float):
            return f"a {type(one).__name__}"
    return None


def equal(left: Any, right: Any, budget: Budget) -> bool:
    """Return whether two JSON values are equal: 1 equals 1.0, and true does not equal 1 (RFC
    9535)."""
    budget.spend(1)
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(
            equal(value, right[key], budget) for key, value in left.items()
        )
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(
            equal(one, other, budget) for one, other in zip(left, right, strict=True)
        )
    if isinstance(left, str) and isinstance(right, str):
        budget.spend(len(left) >> 6)
    return bool(left == right)


def show(value: Any, limit: int = 60) -> str:
    """Return a JSON value for a message: short scalars in full, other values by type."""
    if isinstance(value, dict):
        return f"an object with {len(value)} members"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, str) and len(value) > limit:
        return f"{show(value[:limit])}… ({len(value)} characters)"
    return msgspec.json.encode(value).decode()
