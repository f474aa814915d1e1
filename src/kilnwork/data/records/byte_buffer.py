"""Byte buffer for an incomplete record: joins its pieces when they are read, not each time a piece
is added.

Used wherever code waits for the end of a long record. Joining at each piece would copy a record of
a gibibyte a thousand times.
"""


class ByteBuffer:
    """Buffer of the pieces of an incomplete record. `bytes`: total size of the pieces."""

    __slots__ = ("_pieces", "bytes")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.bytes = 0

    def add(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self.bytes += len(piece)

    def take(self) -> bytes:
        pieces, self._pieces, self.bytes = self._pieces, [], 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
