"""Output in whole lines."""

import pytest

from kilnwork.worker import line_buffer


class Sink:
    """Keeps what is written, each piece apart."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        if data:
            self.pieces.append(data)


@pytest.mark.parametrize(
    ("written", "passed_on"),
    [
        ([b"a\n"], [b"a\n"]),
        ([b"a", b"b\n"], [b"ab\n"]),
        ([b"a\nb", b"c\nd\n"], [b"a\n", b"bc\nd\n"]),
        ([b"\n\n"], [b"\n\n"]),
        ([b"a"], []),
        ([b""], []),
    ],
)
def test_only_complete_lines_are_passed_on(written: list[bytes], passed_on: list[bytes]) -> None:
    sink = Sink()
    made = line_buffer.Lines(sink)
    for piece in written:
        made.write(piece)
    assert sink.pieces == passed_on


def test_last_line_gets_a_newline() -> None:
    sink = Sink()
    made = line_buffer.Lines(sink)
    made.write(b"a\nb")
    made.close()
    made.close()
    assert sink.pieces == [b"a\n", b"b\n"]


def test_line_that_grows_too_long_is_passed_on_in_pieces() -> None:
    sink = Sink()
    made = line_buffer.Lines(sink)
    longest = b"x" * line_buffer.MAX_LINE_BYTES
    made.write(longest)
    assert sink.pieces == []
    made.write(b"y")
    assert sink.pieces == [longest + b"y\n"]
    made.write(b"z\n")
    assert sink.pieces[1:] == [b"z\n"]


def test_long_last_line_stays_with_the_lines_before_it() -> None:
    sink = Sink()
    made = line_buffer.Lines(sink)
    made.write(b"a\n" + b"x" * (line_buffer.MAX_LINE_BYTES + 1))
    assert sink.pieces == [b"a\n" + b"x" * (line_buffer.MAX_LINE_BYTES + 1) + b"\n"]
