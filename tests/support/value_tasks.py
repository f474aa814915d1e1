"""Task functions that take and return large values and parts of files."""

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
    """Return the number of the first line, and the lines."""
    return part.first_line, list(part)


@kiln.task
def changed(value: bytearray) -> int:
    """Change a value in place, which no other task sees."""
    value[0] += 1
    return value[0]


@kiln.task
def large(count: int) -> bytes:
    return bytes(count)


@kiln.task
def put_away(count: int) -> "kiln.Ref[bytes]":
    """Return a reference to a blob that this process does not keep."""
    return kiln.put(b"x" * count)


@kiln.task
def through_a_child(ref: bytes) -> int:
    """Put a value and pass it to a child."""
    return size.submit(kiln.put(ref + ref)).result()
