"""Records of a shard: lines of text files, each in exactly one shard of a range.

Used by whoever maps over a shard. A record belongs to the range in which its first byte lies: a
reader of [start, end) looks at the byte before `start` to know whether a record begins there, and
reads its last record to the end, past `end`. So ranges need no knowledge of the content when they
are planned.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from kilnwork.data import errors
from kilnwork.data.pond import shards

MAX_LINE_BYTES = 64 << 20
"""A longer line is refused: it would be in memory whole."""


def lines(path: Path, span: tuple[int, int] | None = None) -> Iterator[bytes]:
    """Yield the lines of a file that begin within [start, end), without their line feed; all for
    None. Raises BadRecord for a line above `MAX_LINE_BYTES`."""
    with path.open("rb") as file:
        start, end = span if span is not None else (0, path.stat().st_size)
        at = start
        if start:
            file.seek(start - 1)
            at = start - 1 + len(_line(file, path))
        while at < end and (line := _line(file, path)):
            at += len(line)
            yield line.removesuffix(b"\n")


def of_shard(shard: shards.Shard, directory: Path) -> Iterator[bytes]:
    """Yield the records of a shard whose snapshot is in `directory`, file by file.

    With `where` files are NDJSON, or CSV with a header for names that end in `.csv`; the header is
    no record. Raises BadRecord for a record without the key.
    """
    for file in shard.files:
        path = directory / file.path
        if shard.where is None:
            yield from lines(path, file.range)
        elif file.path.endswith(".csv"):
            yield from _keyed_csv(path, shard.where)
        else:
            yield from _keyed_json(path, shard.where)


def _keyed_json(path: Path, where: shards.Where) -> Iterator[bytes]:
    for number, line in enumerate(lines(path), 1):
        if not line.strip():
            continue
        try:
            record = msgspec.json.decode(line)
        except msgspec.MsgspecError as error:
            raise errors.BadRecord(f"{path} line {number} is no JSON: {error}") from error
        if not isinstance(record, dict) or where.key not in record:
            raise errors.BadRecord(f"{path} line {number} has no field {where.key!r}")
        if shards.bucket(_text(record[where.key]), where.count) == where.index:
            yield line


def _keyed_csv(path: Path, where: shards.Where) -> Iterator[bytes]:
    """A record is one line: fields with line breaks in them are refused."""
    column = -1
    for number, line in enumerate(lines(path), 1):
        text = line.decode(errors="surrogateescape").removesuffix("\r")
        if text.count('"') % 2:
            raise errors.BadRecord(f"{path} line {number}: a field is not closed on its line")
        fields = next(csv.reader([text]), [])
        if column < 0:
            if where.key not in fields:
                raise errors.BadRecord(f"{path}: the header has no column {where.key!r}")
            column = fields.index(where.key)
        elif not fields:
            continue
        elif len(fields) <= column:
            raise errors.BadRecord(f"{path} line {number} has no column {where.key!r}")
        elif shards.bucket(fields[column], where.count) == where.index:
            yield line


def _text(value: object) -> str:
    """What is hashed of a field: a text itself, so that JSON and CSV agree; else its JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _line(file: BinaryIO, path: Path) -> bytes:
    found = file.readline(MAX_LINE_BYTES)
    if len(found) >= MAX_LINE_BYTES and not found.endswith(b"\n"):
        raise errors.BadRecord(f"{path} has a line above {MAX_LINE_BYTES:,} bytes")
    return found
