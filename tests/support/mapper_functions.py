"""Mappers that tests name by their import path."""

import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

import kilnwork as kiln
from kilnwork.jobs.work import errors

calls: list[int] = []
"""How many records each call of `noted` was given."""


def same(record: Any) -> Any:
    return record


def double(record: dict[str, int]) -> dict[str, int]:
    return {"n": 2 * record["n"]}


async def later(record: Any) -> Any:
    return [record]


@kiln.task
def decorated(record: Any) -> Any:
    return {"task": record}


def some(record: dict[str, int]) -> Any:
    """Return None for 0 and an iterator for 3, raise for 5, return what JSON cannot carry for 7."""
    n = record["n"]
    if n == 5:
        raise ValueError("five\nlines")
    return {0: None, 3: iter(range(n)), 7: object()}.get(n, record)


def repeated(record: dict[str, int]) -> Iterator[int]:
    for n in range(record["n"]):
        yield n
        if n == 3:
            raise RuntimeError("three")


async def repeated_later(record: dict[str, int]) -> AsyncIterator[int]:
    for n in range(record["n"]):
        yield n


def lines(record: str) -> Any:
    return {
        "str": "a é",
        "ended": "a\n",
        "two": "a\nb",
        "bytes": b"\xff",
        "json": {"a": "é"},
        "number": 1,
        "surrogate": "\ud800",
        "none": None,
        "raw": msgspec.Raw(b"1\n2"),
        "decimal": Decimal("1.50"),
    }[record]


def upper(record: str) -> str:
    return record.upper()


def noted(records: list[Any]) -> list[Any]:
    calls.append(len(records))
    return records


def batch(records: list[dict[str, int]]) -> list[Any]:
    """Map a batch: raise if a 5 is in it, report a 7 as bad, drop 0, return several for 3."""
    if any(record["n"] == 5 for record in records):
        raise ValueError("five")
    return [
        ValueError("seven")
        if record["n"] == 7
        else None
        if record["n"] == 0
        else iter("ab")
        if record["n"] == 3
        else record
        for record in records
    ]


def too_few(records: list[Any]) -> list[Any]:
    return records[1:]


def nothing(records: list[Any]) -> None:
    del records


def text_of(records: list[Any]) -> str:
    return str(records)


def away(record: Any) -> Any:
    raise errors.FailPart("the database is away")


def two_arguments(record: Any, other: Any) -> Any:
    return record, other


# reducers


def total(results: Iterator[dict[str, int]]) -> dict[str, int]:
    return {"total": sum(result["n"] for result in results)}


def evens(results: Iterator[dict[str, int]]) -> Iterator[int | None]:
    for result in results:
        yield result["n"] if result["n"] % 2 == 0 else None


def first_only(results: Iterator[Any]) -> Any:
    return next(results)


def joined(results: Iterator[str]) -> str:
    return "+".join(results)


def failing(results: Iterator[Any]) -> None:
    next(results)
    raise RuntimeError("the reducer failed")


def unwritable(results: Iterator[Any]) -> Any:
    return object(), list(results)


# that take their time


def signalling(record: Any) -> Any:
    """Create the sign file, then sleep; in a batch for its first record."""
    first = record[0] if isinstance(record, list) else record
    Path(first["sign"]).write_text(str(os.getpid()))
    time.sleep(first["s"])
    return record


def swallowing(record: dict[str, Any]) -> Any:
    try:
        return signalling(record)
    except kiln.Cancelled:
        return "went on"


def gated(record: dict[str, Any]) -> Any:
    made = Path(record["sign"] + ".new")
    made.write_text(str(os.getpid()))
    made.rename(record["sign"])
    while not Path(record["gate"]).exists():
        time.sleep(0.01)
    return record


def printing(record: Any) -> Any:
    print(record)
    return record


def poison(record: Any) -> Any:
    """Leave a slot in which no program is found and that ignores requests to end."""
    os.environ["PATH"] = "/nowhere"
    os.environ["POISON"] = "1"
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return record
