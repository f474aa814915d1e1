"""Records are decoded to values, or are bad records with a reason."""

from typing import Any

import pytest

from kilnwork.api import filejobs
from kilnwork.data import errors
from kilnwork.data.records import values

JSONL, JSON, TEXT, CSV = (
    filejobs.InputSpec(format=one)
    for one in (
        filejobs.Format.JSONL,
        filejobs.Format.JSON,
        filejobs.Format.TEXT,
        filejobs.Format.CSV,
    )
)
HEADER = ("a", "b")


@pytest.mark.parametrize(
    ("spec", "record", "value"),
    [
        (JSONL, b'{"a": [1, null]}', {"a": [1, None]}),
        (JSONL, b'{"a": 1, "a": 2}', {"a": 2}),
        (JSON, b"1.5", 1.5),
        (TEXT, '{"a": é}'.encode(), '{"a": é}'),
        (TEXT, b"", ""),
        (CSV, b'"x, y",2', {"a": "x, y", "b": "2"}),
    ],
)
def test_record_is_decoded_by_format(spec: filejobs.InputSpec, record: bytes, value: Any) -> None:
    assert values.decoder(spec, HEADER)(record) == value


@pytest.mark.parametrize(
    ("spec", "record", "reason"),
    [
        (JSONL, b"NaN", "^not JSON: "),
        (JSONL, b'"\xff"', "^not JSON: "),
        (JSON, b"[" * 100_000, "^not JSON: "),
        (TEXT, b"\xff", "^not UTF-8: "),
        (CSV, b"1,\xff", "^not UTF-8: "),
        (CSV, b"1", "^1 columns instead of 2: quote cells"),
        (CSV, b"1,2,3", "^3 columns instead of 2: quote cells"),
    ],
)
def test_undecodable_record_reports_reason(
    spec: filejobs.InputSpec, record: bytes, reason: str
) -> None:
    with pytest.raises(errors.BadRecord, match=reason):
        values.decoder(spec, HEADER)(record)


def test_rows_are_decoded_with_delimiter_of_the_job() -> None:
    spec = filejobs.InputSpec(format=filejobs.Format.CSV, delimiter=";")
    assert values.decoder(spec, HEADER)(b"1,5;2") == {"a": "1,5", "b": "2"}
