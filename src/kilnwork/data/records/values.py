"""Decoding of records to the values that mappers get. Used by workers."""

from collections.abc import Callable
from typing import Any

import msgspec

from kilnwork.api import filejobs
from kilnwork.data import errors
from kilnwork.data.records import csv_rows

_JSON = msgspec.json.Decoder()


def decoder(
    spec: filejobs.InputSpec, header: tuple[str, ...] | None = None
) -> Callable[[bytes], Any]:
    """Return a function that decodes one record, and raises `BadRecord` with the reason if it
    cannot.

    `jsonl`, `json`: any JSON value (RFC 8259: no NaN; of equal names the last counts). `text`: str.
    `csv`: dict of str by column; `header`: the header in the manifest.
    """
    if spec.format == filejobs.Format.TEXT:
        return _text
    if spec.format == filejobs.Format.CSV:
        return _row(csv_rows.CsvDialect(spec.delimiter), header or ())
    return _json


def _json(record: bytes) -> Any:
    try:
        return _JSON.decode(record)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise errors.BadRecord(f"not JSON: {error}") from error


def _text(record: bytes) -> str:
    try:
        return record.decode()
    except UnicodeDecodeError as error:
        raise errors.BadRecord(f"not UTF-8: {error}") from error


def _row(
    dialect: csv_rows.CsvDialect, header: tuple[str, ...]
) -> Callable[[bytes], dict[str, str]]:
    def decode(record: bytes) -> dict[str, str]:
        cells = dialect.cells(record)
        if len(cells) != len(header):
            raise errors.BadRecord(
                f"{len(cells)} columns instead of {len(header)}: quote cells with delimiters"
            )
        return dict(zip(header, map(_text, cells), strict=True))

    return decode
