"""Bytes of an incomplete record are taken once and in order."""

import pytest

from kilnwork.data.records import byte_buffer


@pytest.mark.parametrize(
    "pieces", [[], [b""], [b"abc"], [b"a", b"", b"bc"], [b"x" * 1000, b"y" * 1000]]
)
def test_take_joins_pieces_and_clears_buffer(pieces: list[bytes]) -> None:
    held = byte_buffer.ByteBuffer()
    for piece in pieces:
        held.add(piece)
    whole = b"".join(pieces)
    assert held.bytes == len(whole)
    assert held.take() == whole
    assert (held.bytes, held.take()) == (0, b"")


def test_single_piece_is_not_copied() -> None:
    held, piece = byte_buffer.ByteBuffer(), b"x" * 1000
    held.add(b"")
    held.add(piece)
    assert held.take() is piece
