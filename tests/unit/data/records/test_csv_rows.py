"""Rows of CSV as bytes: their ends and their cells."""

import pytest

from kilnwork.data import errors
from kilnwork.data.records import csv_rows

ROWS = csv_rows.CsvDialect(",")


@pytest.mark.parametrize("delimiter", ['"', "\n", "\r", "§"])
def test_invalid_delimiter_is_refused(delimiter: str) -> None:
    with pytest.raises(errors.InputRefused, match=r"^input\.delimiter is"):
        csv_rows.CsvDialect(delimiter)


@pytest.mark.parametrize(
    ("row", "cells"),
    [
        (b"", [b""]),
        (b"a,,b", [b"a", b"", b"b"]),
        (b'"a,b",c', [b"a,b", b"c"]),
        (b'"say ""a""",""', [b'say "a"', b""]),
        (b'a"b,"c"d', [b'a"b', b"cd"]),
        (b'"a\nb"', [b"a\nb"]),
    ],
)
def test_row_is_split_into_cells(row: bytes, cells: list[bytes]) -> None:
    assert ROWS.cells(row) == cells


def test_delimiter_is_not_a_regular_expression() -> None:
    assert csv_rows.CsvDialect("|").cells(b'"a|b"|c.d') == [b"a|b", b"c.d"]


@pytest.mark.parametrize(
    ("content", "ends", "rows"),
    [
        (b"", [], []),
        (b'"a\n', [], [b'"a']),
        (b"a", [], [b"a"]),
        (b"a\nb", [2], [b"a", b"b"]),
        (b'"a\nb"\r\nc\r\n', [7, 10], [b'"a\nb"', b"c"]),
        (b'a"\nb"\n', [3, 6], [b'a"', b'b"']),
        (b'a\n"b\nc', [2], [b"a", b'"b\nc']),
    ],
)
def test_rows_end_at_line_ends_outside_quotes(
    content: bytes, ends: list[int], rows: list[bytes]
) -> None:
    assert ROWS.ends(content) == ends
    assert ROWS.first(content) == (ends[0] if ends else None)
    assert ROWS.end_of_last(content) == (ends[-1] if ends else 0)
    assert ROWS.split_block(content) == rows


@pytest.mark.parametrize(
    ("row", "closed"), [(b"a", True), (b'"a"', True), (b'"a', False), (b'b,"a""', False)]
)
def test_row_is_closed_if_its_quotes_are_closed(row: bytes, closed: bool) -> None:  # noqa: FBT001
    assert ROWS.closed(row) is closed


@pytest.mark.parametrize("step", [1, 2, 5, 100])
def test_pieces_are_joined_into_blocks_of_whole_rows(step: int) -> None:
    content = b'a,b\n"c\nd",e\n"' + b"f\n" * 20 + b'"\ng'
    pieces = [content[at : at + step] for at in range(0, len(content), step)]
    blocks = list(ROWS.whole_blocks(pieces))
    assert b"".join(blocks) == content
    assert all(ROWS.ends(block)[-1:] == [len(block)] for block in blocks[:-1])
    assert [row for block in blocks for row in ROWS.split_block(block)] == ROWS.split_block(content)
