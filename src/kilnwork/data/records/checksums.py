"""Checksums of parts: computes the crc32 of each part in turn, and combines those of two
neighbours. Used by `part_cutter`; `in_place_indexing` computes them in a thread.

Combining works as in zlib's crc32_combine: appending n bytes multiplies by x to the power of 8 n,
modulo the polynomial of CRC-32 (IEEE 802.3, reflected). Python's zlib does not offer it.
"""

import functools
import zlib

from kilnwork.data.records import reread_thread

_POLYNOMIAL = 0xEDB88320
_ONE = 1 << 31
_X8 = 1 << 23


class PartChecksums:
    """Checksums of the parts that have ended, and of the part that is open."""

    def __init__(self) -> None:
        self.ended: list[int] = []
        self.open = 0

    def add(self, content: bytes | memoryview) -> None:
        self.open = zlib.crc32(content, self.open)

    def end(self) -> None:
        """End the open part, and begin the next one."""
        self.ended.append(self.open)
        self.open = 0

    def skip(self, count: int) -> None:
        """Skip bytes of the file that belong to no part."""

    def settle(self) -> None:
        """Finish pending work, so that `ended` and `open` can be read and changed."""


class ReadBehindChecksums(PartChecksums):
    """Checksums computed in a thread that reads the file again: of content passed to `add`, only
    the length is used.
    """

    def __init__(self, thread: reread_thread.RereadThread, again: reread_thread.Rereader) -> None:
        super().__init__()
        self._thread, self._again = thread, again
        self._load, self._bytes = [0], 0
        """Bytes of each part since the last handover, the last of which is open; and the total."""

    def add(self, content: bytes | memoryview) -> None:
        self._load[-1] += len(content)
        self._bytes += len(content)
        if self._bytes >= reread_thread.TOGETHER_BYTES:
            self._send()

    def end(self) -> None:
        self._load.append(0)

    def skip(self, count: int) -> None:
        self._send()
        self._thread.give(lambda: self._again.skip(count))

    def settle(self) -> None:
        self._send()
        self._thread.settle()

    def _send(self) -> None:
        load, self._load, self._bytes = self._load, [0], 0
        self._thread.give(lambda: self._add_up(load))

    def _add_up(self, load: list[int]) -> None:
        for number, count in enumerate(load):
            if number:
                super().end()
            for piece in self._again.next(count):
                super().add(piece)


def combine(first: int, second: int, second_bytes: int) -> int:
    """Return the crc32 of the concatenation of two contents, given their checksums and the size of
    the second."""
    position = 0
    while second_bytes and first:
        second_bytes, byte = divmod(second_bytes, 256)
        if byte:
            first = _product(_power(position, byte), first)
        position += 1
    return first ^ second


@functools.cache
def _power(position: int, byte: int) -> int:
    """Return the polynomial x to the power of 8 * byte * 256 ** position; there are at most 2,048
    different ones.
    """
    if not byte:
        return _ONE
    if byte == 1:
        if not position:
            return _X8
        return _product(_power(position - 1, 255), _power(position - 1, 1))
    return _product(_power(position, byte - 1), _power(position, 1))


def _product(a: int, b: int) -> int:
    """Multiply two polynomials modulo the polynomial of CRC-32; the highest bit is the lowest
    power.
    """
    found = 0
    while a:
        if a & _ONE:
            found ^= b
        a = a << 1 & 0xFFFFFFFF
        b = b >> 1 ^ _POLYNOMIAL if b & 1 else b >> 1
    return found
