"""Part cutter: divides a file into parts, given the sizes that the indexes have measured.

A part ends with the record that brings it to the limit of lines or of bytes, whichever comes first.
If there would be too many parts, neighbouring parts are merged in pairs and both limits double, so
that a file of any length is indexed in one pass and in bounded memory.
"""

from typing import NamedTuple

from kilnwork.api import filejobs
from kilnwork.data.records import checksums


class _Stretch(NamedTuple):
    """A part whose checksum is not known yet."""

    start: int
    end: int
    first_line: int
    lines: int


class PartCutter:
    """Builder of the list of a file's parts: the parts that have ended, and the open part.

    `lines`, `start`: number of lines and first byte of the open part. `limit_lines`, `limit_bytes`:
    the sizes at which to call `close`; each call of `close` may increase them. `end`: how far the
    file was measured, in bytes.
    """

    def __init__(
        self,
        *,
        lines: int,
        bytes_: int | None,
        most: int,
        start: int = 0,
        sums: checksums.PartChecksums | None = None,
    ) -> None:
        self.limit_lines, self.limit_bytes = lines, bytes_
        self._most = most
        self._sums = sums or checksums.PartChecksums()
        self._stretches: list[_Stretch] = []
        self.start = self.end = start
        self.lines = 0
        self._first_line = 1

    @property
    def total_lines(self) -> int:
        return self._first_line - 1 + self.lines

    def take(self, content: bytes | memoryview, lines: int) -> None:
        """Add content with this number of lines to the open part."""
        self._sums.add(content)
        self.end += len(content)
        self.lines += lines

    def skip(self, count: int) -> None:
        """Skip bytes of the file that belong to no part; no part may be open."""
        self._sums.skip(count)
        self.end += count
        self.start = self.end

    def close(self) -> None:
        """End the open part at the current position, which must be the end of a record."""
        self._append()
        if len(self._stretches) > self._most:
            self._grow()

    def finish(self) -> tuple[filejobs.Part, ...]:
        """End the open part, unless it is empty, and return all parts."""
        if self.end > self.start:
            self.close()
        if self.end > self.start:  # `close` opened the last one again
            self._append()
        self._sums.settle()
        pairs = zip(self._stretches, self._sums.ended, strict=True)
        return tuple(filejobs.Part(n, *one, crc32) for n, (one, crc32) in enumerate(pairs, 1))

    def _append(self) -> None:
        self._sums.end()
        self._stretches.append(_Stretch(self.start, self.end, self._first_line, self.lines))
        self._first_line += self.lines
        self.start, self.lines = self.end, 0

    def _grow(self) -> None:
        """Merge neighbouring parts in pairs and double the limits. An odd last part becomes the
        open part again."""
        self._sums.settle()
        before, sums = self._stretches, self._sums.ended
        self._stretches, self._sums.ended = [], []
        if len(before) % 2:
            last = before.pop()
            self.start, self._first_line, self.lines = last.start, last.first_line, last.lines
            self._sums.open = sums.pop()
        for at in range(0, len(before), 2):
            first, second = before[at : at + 2]
            lines = first.lines + second.lines
            self._stretches.append(_Stretch(first.start, second.end, first.first_line, lines))
            size = second.end - second.start
            self._sums.ended.append(checksums.combine(sums[at], sums[at + 1], size))
        self.limit_lines *= 2
        if self.limit_bytes is not None:
            self.limit_bytes *= 2
