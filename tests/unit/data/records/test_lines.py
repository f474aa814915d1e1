"""A line ends with LF; a CR before the LF is not part of it."""

import pytest

from kilnwork.data.records import lines


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a", [b"a"]),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\r\nb\r", [b"a", b"b"]),
        (b"a\r\r\nb\rc\n", [b"a\r", b"b\rc"]),
        (b"a\x0cb\x00\x85\xe2\x80\xa8\n", [b"a\x0cb\x00\x85\xe2\x80\xa8"]),
    ],
)
def test_block_is_split_into_lines(block: bytes, expected: list[bytes]) -> None:
    assert lines.split_block(block) == expected


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([], []),
        ([b"a\n", b"b\n"], [b"a\n", b"b\n"]),
        ([b"a\nb", b"c", b"d\ne"], [b"a\n", b"bcd\n", b"e"]),
        ([b"a", b"b"], [b"ab"]),
        ([b"", b"a\n", b""], [b"a\n"]),
    ],
)
def test_pieces_are_joined_into_blocks_of_whole_lines(
    pieces: list[bytes], expected: list[bytes]
) -> None:
    assert list(lines.whole_blocks(pieces)) == expected


@pytest.mark.parametrize(
    ("line", "blank"),
    [(b"", True), (b" \t\r", True), (b"a", False), (b" a ", False), (b"\x0c", False)],
)
def test_line_is_blank_if_json_sees_only_whitespace(line: bytes, blank: bool) -> None:  # noqa: FBT001
    assert lines.is_blank(line) is blank


BLOCK = b"".join(b"%d" % n + b"x" * (n % 7) + b"\n" for n in range(2000))


@pytest.mark.parametrize("guess", [0, 1, 3000, 1 << 20])
@pytest.mark.parametrize("count", [1, 2, 500, 1999])
def test_line_after_count_is_found_with_any_guess(count: int, guess: int) -> None:
    start = BLOCK.index(b"\n") + 1
    expected = start + sum(len(line) + 1 for line in BLOCK.split(b"\n")[1 : count + 1])
    assert lines.find_line_after(BLOCK, count, start, guess=guess) == expected


def test_line_end_just_before_middle_of_search_is_found() -> None:
    block = b"xx\n" * 1367
    assert lines.find_line_after(block, 683, 0, guess=len(block)) == 683 * 3


def test_too_few_line_ends_raise_an_error() -> None:
    with pytest.raises(ValueError, match="fewer than 3 line ends after byte 2"):
        lines.find_line_after(b"a\nb\nc\nd", 3, 2, guess=1)


@pytest.mark.parametrize(
    ("block", "start", "expected"),
    [
        (b"", 0, None),
        (b"abc\nabc\n", 0, None),
        (b"abc\nabcd\n", 0, 4),
        (b"abcd\na\n", 0, 0),
        (b"abcd\na\n", 5, None),
        (b"a\nb\nabcd", 0, 4),
        (b"a\nb\nabc", 0, None),
    ],
)
def test_first_line_longer_than_limit_is_found(
    block: bytes, start: int, expected: int | None
) -> None:
    assert lines.find_longer_line(block, 3, start) == expected
