"""Gzip unpacker (RFC 1952): unpacks data as it arrives, in bounded pieces. Used by `intake`.

Several concatenated members are one file, as for gzip(1); zeros may follow the last one. A file
that unpacks to more than its `UnpackLimits` is refused as soon as that is noticed.
"""

import zlib
from collections.abc import Iterator
from typing import NamedTuple

from kilnwork.data import errors

_PIECE_BYTES = 128 << 10
"""Maximum bytes unpacked at once: a small piece can unpack to a thousand times its size, and code
that processes the piece may hold Python's lock until it has seen all of it."""
_STEP_BYTES = 16 << 10
"""Number of compressed bytes processed together. zlib copies the bytes after each member, so the
time for a file of many tiny members is quadratic in this number.
"""
FREE_BYTES = 64 << 20
"""Unpacked size up to which the ratio is not checked: at most a second of work."""
_GZIP_ONLY = 16 + zlib.MAX_WBITS


class UnpackLimits(NamedTuple):
    """Limits on the size of an unpacked file; None: no limit.

    `bytes`: total size. `ratio`: unpacked bytes per compressed byte, checked above `FREE_BYTES`.
    """

    bytes: int | None = None
    ratio: int | None = None


UNLIMITED = UnpackLimits()


class Unpacker:
    """Unpacker of one compressed file. Pass the file's bytes to `feed` in order, then call
    `finish`.
    """

    def __init__(self, limits: UnpackLimits = UNLIMITED) -> None:
        self._limits = limits
        self._unpacked = 0
        """Number of unpacked bytes so far."""
        self._member = zlib.decompressobj(_GZIP_ONLY)
        self._begun = False
        self._read = 0
        """Number of compressed bytes so far."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the unpacked data, in pieces of at most 256 KiB. Raises `InputRefused`,
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
        """Count the bytes of an unpacked piece before it is passed on. Raises `InputTooLarge`."""
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
        """End the compressed file. Raises `InputRefused` if it is incomplete."""
        if self._begun:
            raise errors.InputRefused(
                f"the gzip file ends early, after {self._read:,} bytes: send all of it"
            )
