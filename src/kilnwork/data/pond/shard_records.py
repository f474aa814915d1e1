"""Records of a shard: lines of text files, each in exactly one shard of a range.

Used by code that maps over a shard. A record belongs to the range in which its first byte lies: a
reader of [start, end) checks the byte before `start` to know whether a record begins there, and
reads its last record completely, past `end`. So ranges can be planned without knowing the content.
A range of rows is located by counting the lines of all files each time that its shard is read.

A record is one line: CSV fields with line breaks in them are refused.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from kilnwork.data import errors
from kilnwork.data.pond import shards

MAX_LINE_BYTES = 64 << 20
"""Maximum length of a line; longer lines are refused, since a line is held in memory as a whole."""

_BLOCK_BYTES = 1 << 20


def lines(path: Path, span: tuple[int, int] | None = None) -> Iterator[bytes]:
    """Yield the lines of a file that begin within `span`, a range [start, end); with None, all
    lines.

    Lines are yielded without line feeds. Raises BadRecord for a line longer than `MAX_LINE_BYTES`.
    """
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
    """Yield the records of a shard, file by file. `directory`: the files of its snapshot.

    Files whose names end in `.csv` are CSV, other files have one record per line, which must be a
    JSON object if the shard has `where`. The header of a CSV file is skipped if the shard has
    `where` or `rows`; otherwise it is yielded like a record. Raises BadRecord for a record without
    the key of `where`, and for a CSV field that continues on the next line.
    """
    for file in locate_rows(shard, directory).files:
        path = directory / file.path
        if shard.where is None:
            found = lines(path, file.range)
            yield from _closed(path, found) if _is_csv(file) else found
        elif _is_csv(file):
            yield from _keyed_csv(path, shard.where)
        else:
            yield from _keyed_json(path, shard.where)


def locate_rows(shard: shards.Shard, directory: Path) -> shards.Shard:
    """Convert a shard of rows to a shard of bytes, by counting the lines of its files; any other
    shard is returned unchanged.

    Files of which the shard has no rows are left out, and the header of a CSV file is not a row.
    """
    if not shard.rows:
        return shard
    counts = [_count_rows(directory / file.path, file) for file in shard.files]
    total = sum(counts)
    start, end = (total * number // shard.count for number in (shard.index, shard.index + 1))
    found, before = [], 0
    for file, count in zip(shard.files, counts, strict=True):
        first, last = max(start - before, 0), min(end - before, count)
        before += count
        if first < last:
            header = int(_is_csv(file))
            path = directory / file.path
            begin = _offset(path, first + header)
            until = file.size if last == count else _offset(path, last + header)
            found.append(msgspec.structs.replace(file, range=(begin, until)))
    return msgspec.structs.replace(shard, files=tuple(found), rows=False)


def _count_rows(path: Path, file: shards.ShardFile) -> int:
    found, end = 0, b"\n"
    with path.open("rb") as opened:
        while block := opened.read(_BLOCK_BYTES):
            found += block.count(b"\n")
            end = block[-1:]
    return max(found + (end != b"\n") - _is_csv(file), 0)


def _offset(path: Path, number: int) -> int:
    """Return the offset of the line with this number, counted from 0."""
    at = 0
    with path.open("rb") as opened:
        while number and (block := opened.read(_BLOCK_BYTES)):
            here = block.count(b"\n")
            if here >= number:
                return at + len(block) - len(block.split(b"\n", number)[-1])
            number -= here
            at += len(block)
    return at


def _is_csv(file: shards.ShardFile) -> bool:
    return file.path.endswith(".csv")


def _closed(path: Path, found: Iterator[bytes]) -> Iterator[bytes]:
    """Yield lines of CSV, after checking that their fields are closed. Raises BadRecord if a field
    continues on the next line.
    """
    for line in found:
        if line.count(b'"') % 2:
            raise errors.BadRecord(f"{path}: a field is not closed on its line: {line[:80]!r}")
        yield line


def _keyed_json(path: Path, where: shards.RecordFilter) -> Iterator[bytes]:
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


def _keyed_csv(path: Path, where: shards.RecordFilter) -> Iterator[bytes]:
    """Yield the rows whose key belongs to the shard. Fields with line breaks in them are
    refused."""
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
    """Return the text of a field to hash: the field itself if it is a string, so that JSON and CSV
    agree, else its JSON.
    """
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _line(file: BinaryIO, path: Path) -> bytes:
    found = file.readline(MAX_LINE_BYTES)
    if len(found) >= MAX_LINE_BYTES and not found.endswith(b"\n"):
        raise errors.BadRecord(f"{path} has a line above {MAX_LINE_BYTES:,} bytes")
    return found
