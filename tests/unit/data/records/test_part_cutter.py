"""Parts are consecutive, and double in size when there would be too many."""

import zlib

import pytest

from kilnwork.api import filejobs
from kilnwork.data.records import part_cutter


def cut(
    contents: list[bytes], *, most: int
) -> tuple[part_cutter.PartCutter, tuple[filejobs.Part, ...]]:
    cutter = part_cutter.PartCutter(lines=1, bytes_=4, most=most)
    for content in contents:
        cutter.take(content, 1)
        if cutter.lines >= cutter.limit_lines:
            cutter.close()
    return cutter, cutter.finish()


def part(number: int, content: bytes, *, start: int, first_line: int) -> filejobs.Part:
    end, lines = start + len(content), content.count(b"\n")
    return filejobs.Part(number, start, end, first_line, lines, zlib.crc32(content))


@pytest.mark.parametrize(
    ("contents", "most", "expected"),
    [
        ([], 9, []),
        ([b"a\n", b"bb\n"], 9, [b"a\n", b"bb\n"]),
        ([b"a\n", b"bb\n"], 2, [b"a\n", b"bb\n"]),
        ([b"a\n", b"bb\n", b"c\n"], 2, [b"a\nbb\n", b"c\n"]),
        ([b"a\n", b"bb\n", b"c\n", b"d\n"], 2, [b"a\nbb\n", b"c\nd\n"]),
        ([b"a\n", b"bb\n", b"c\n", b"d\n", b"e\n"], 2, [b"a\nbb\nc\nd\n", b"e\n"]),
    ],
)
def test_too_many_parts_are_merged_in_pairs(
    contents: list[bytes], most: int, expected: list[bytes]
) -> None:
    _, parts = cut(contents, most=most)
    made, start, line = [], 0, 1
    for number, content in enumerate(expected, 1):
        made.append(part(number, content, start=start, first_line=line))
        start, line = made[-1].end, line + made[-1].lines
    assert parts == tuple(made)


def test_both_limits_double_when_parts_are_merged() -> None:
    cutter, _ = cut([b"a\n", b"b\n"], most=2)
    assert (cutter.limit_lines, cutter.limit_bytes) == (1, 4)
    cutter, _ = cut([b"a\n", b"b\n", b"c\n"], most=2)
    assert (cutter.limit_lines, cutter.limit_bytes) == (2, 8)


def test_skipped_bytes_belong_to_no_part() -> None:
    cutter = part_cutter.PartCutter(lines=5, bytes_=None, most=9)
    cutter.skip(3)
    cutter.take(b"a\nb\n", 2)
    assert cutter.total_lines == 2
    assert cutter.finish() == (part(1, b"a\nb\n", start=3, first_line=1),)


def test_total_includes_lines_of_ended_parts() -> None:
    cutter = part_cutter.PartCutter(lines=1, bytes_=None, most=9)
    cutter.take(b"a\n", 1)
    cutter.close()
    cutter.take(b"b\n", 1)
    assert (cutter.total_lines, cutter.lines, cutter.start, cutter.end) == (2, 1, 2, 4)
