"""Unpacks gzip (RFC 1952) as it comes in, a bounded piece at a time. Used by `intake`.

Several members after each other are one file, as gzip(1) reads them; zeros may follow the last.
A file that unpacks to more than its `Limits` is refused as soon as that is seen.
"""

import zlib
from collections.abc import Iterator
from typing import NamedTuple

from kilnwork.data import errors

_PIECE_BYTES = 128 << 10
"""Most that is unpacked at once: a small piece can unpack to a thousand times its length, and what
looks at the piece may keep Python's lock until it has seen all of it."""
_STEP_BYTES = 16 << 10
"""Compressed bytes looked at together: what follows a member is copied with each, so that a file of
many tiny ones would take time by the square of this."""
FREE_BYTES = 64 << 20
"""Unpacked bytes up to which the ratio does not matter: a second's work, whatever it is."""
_GZIP_ONLY = 16 + zlib.MAX_WBITS


class Limits(NamedTuple):
    """What a compressed file may unpack to; None: anything.

    `bytes`: of all of it. `ratio`: unpacked bytes for each compressed one, beyond `FREE_BYTES`.
    """

    bytes: int | None = None
    ratio: int | None = None


UNLIMITED = Limits()


class Unpacker:
    """One compressed file. `feed` it in order, then `finish`."""

    def __init__(self, limits: Limits = UNLIMITED) -> None:
        self._limits = limits
        self._unpacked = 0
        """Bytes that came out."""
        self._member = zlib.decompressobj(_GZIP_ONLY)
        self._begun = False
        self._read = 0
        """Compressed bytes that went through."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What it unpacks to, in pieces of at most 256 KiB. Raises `InputRefused`,
        `InputTooLarge`."""
        ready = bytearray()
        for at in range(0, len(data), _STEP_BYTES):
            for piece in self._step(data[at : at + _STEP_BYTES]):
                ready += piece
                if len(ready) >= _PIECE_BYTES:
                    yield bytes(ready)
                    ready.clear()
        if ready:
            yield bytes(ready)

    def _step(self, data: bytes) -> Iterator[bytes]:
        self._read += len(data)
        while True:
            if not self._begun:
                data = data.lstrip(b"\0")
                if not data:
                    return
                self._begun = True
            try:
                unpacked = self._member.decompress(data, _PIECE_BYTES)
            except zlib.error as error:
                raise errors.InputRefused(
                    f"the gzip file is damaged before byte {self._read:,} of it ({error}): send it "
                    "again, or look at it with gzip --test"
                ) from error
            if unpacked:
                self._check(unpacked)
                yield unpacked
            if self._member.eof:
                data = self._member.unused_data
                self._member, self._begun = zlib.decompressobj(_GZIP_ONLY), False
                continue
            data = self._member.unconsumed_tail
            if not data and len(unpacked) < _PIECE_BYTES:
                return

    def _check(self, piece: bytes) -> None:
        """Count a piece. Raises `InputTooLarge` before it is passed on."""
        self._unpacked += len(piece)
        most, ratio = self._limits
        if most is not None and self._unpacked > most:
            raise errors.InputTooLarge(
                f"the gzip file unpacks to more than {most:,} bytes",
                limit=most,
                seen=self._unpacked,
                unit="bytes unpacked",
                remedy="send it in pieces, or unpacked, or ask the server's operator to raise "
                "--max-unpacked",
            )
        if ratio is None or self._unpacked <= FREE_BYTES:
            return
        read = self._read - len(self._member.unconsumed_tail) - len(self._member.unused_data)
        if self._unpacked > ratio * read:
            raise errors.InputTooLarge(
                f"the gzip file unpacks to more than {ratio:,} times its size: {read:,} bytes of "
                f"it are {self._unpacked:,}",
                limit=ratio,
                seen=self._unpacked // max(read, 1),
                unit="unpacked bytes for each compressed one",
                remedy="send it unpacked, or ask the server's operator to raise --max-unpack-ratio",
            )

    def finish(self) -> None:
        """That was all. Raises `InputRefused` if the file should go on."""
        if self._begun:
            raise errors.InputRefused(
                f"the gzip file ends early, after {self._read:,} bytes: send all of it"
            )
