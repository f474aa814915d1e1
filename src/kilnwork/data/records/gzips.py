"""Unpacks gzip (RFC 1952) as it comes in, a bounded piece at a time. Used by `intake`.

Several members after each other are one file, as gzip(1) reads them; zeros may follow the last.
"""

import zlib
from collections.abc import Iterator

from kilnwork.data import errors

_PIECE_BYTES = 1 << 20
"""Most that is unpacked at once: a small piece can unpack to a thousand times its length."""
_GZIP_ONLY = 16 + zlib.MAX_WBITS


class Unpacker:
    """One compressed file. `feed` it in order, then `finish`."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP_ONLY)
        self._begun = False
        self._read = 0
        """Compressed bytes that went through."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What it unpacks to, in pieces of at most 1 MiB. Raises `InputRefused`."""
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
                yield unpacked
            if self._member.eof:
                data = self._member.unused_data
                self._member, self._begun = zlib.decompressobj(_GZIP_ONLY), False
                continue
            data = self._member.unconsumed_tail
            if not data and len(unpacked) < _PIECE_BYTES:
                return

    def finish(self) -> None:
        """That was all. Raises `InputRefused` if the file should go on."""
        if self._begun:
            raise errors.InputRefused(
                f"the gzip file ends early, after {self._read:,} bytes: send all of it"
            )
