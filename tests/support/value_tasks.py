"""Task functions that take and give large values and parts of files."""

from typing import Any

import kilnwork as kiln


@kiln.task
def size(value: Any) -> int:
    return len(value)


@kiln.task
def sizes(values: dict[str, Any]) -> dict[str, int]:
    return {name: len(value) for name, value in values.items()}


@kiln.task
def lines(part: kiln.Part) -> tuple[int | None, list[str]]:
    """The number of the first line, and the lines."""
    return part.first_line, list(part)


@kiln.task
def changed(value: bytearray) -> int:
    """A value may be changed in place; nobody else sees it."""
    value[0] += 1
    return value[0]


@kiln.task
def large(count: int) -> bytes:
    return bytes(count)


@kiln.task
def put_away(count: int) -> "kiln.Ref[bytes]":
    """A result that refers to a blob, of a process that forgets it."""
    return kiln.put(b"x" * count)


@kiln.task
def through_a_child(ref: bytes) -> int:
    """A value that a parent puts away for its child."""
    return size.submit(kiln.put(ref + ref)).result()
