"""Line index: counts the lines of a file and divides the file into parts, without looking at each
line. Used by `indexes`, and by `row_index` where there are no quotes.

Line ends are counted in whole blocks; single line ends are searched for only where a part ends.
"""

from kilnwork.api import filejobs
from kilnwork.data import errors
from kilnwork.data.records import lines, part_cutter


class LineIndex:
    """Index of a file of lines: pass the file to `add` block by block, then call `finish`.
    `most_bytes`: maximum size of a line.
    """

    def __init__(self, cutter: part_cutter.PartCutter, *, most_bytes: int) -> None:
        self.header: tuple[str, ...] | None = None
        """None: only rows of CSV have a header."""
        self._cutter = cutter
        self._most_bytes = most_bytes
        self._begun = 0
        """Number of bytes of the last line so far, which has no LF yet."""

    def add(self, block: bytes | bytearray) -> None:
        """Process the next block of the file, of any length. Raises `InputRefused` for a line that
        is too long.
        """
        self._measure(block)
        cutter, view = self._cutter, memoryview(block)
        done, left = 0, block.count(lines.END)
        while (end := self._next_end(block, done, left)) is not None:
            count = block.count(lines.END, done, end)
            cutter.take(view[done:end], count)
            cutter.close()
            done, left = end, left - count
        cutter.take(view[done:], left)

    def finish(self) -> tuple[tuple[filejobs.Part, ...], int]:
        """End the file; return its parts, and the number of lines."""
        if self._begun:
            self._cutter.lines += 1
        parts = self._cutter.finish()
        return parts, self._cutter.total_lines

    def _next_end(self, block: bytes | bytearray, done: int, left: int) -> int | None:
        """Return the position in `block` at which the open part ends, or None. `left`: number of
        line ends after `done`.
        """
        cutter = self._cutter
        wanted = cutter.limit_lines - cutter.lines
        end = None
        if left >= wanted:
            end = lines.find_line_after(
                block, wanted, done, guess=wanted * (len(block) - done) // left
            )
        if cutter.limit_bytes is not None:
            reached = done + cutter.limit_bytes - (cutter.end - cutter.start) - 1
            at = block.find(lines.END, max(reached, done), end)
            if at >= 0:
                end = at + 1
        return end

    def _measure(self, block: bytes | bytearray) -> None:
        first, most = block.find(lines.END), self._most_bytes
        if first < 0:
            self._begun += len(block)
            if self._begun > most:
                raise self._too_long(0)
            return
        if self._begun + first > most:
            raise self._too_long(0)
        beyond = lines.find_longer_line(block, most, first + 1)
        if beyond is not None:
            raise self._too_long(block.count(lines.END, 0, beyond))
        self._begun = len(block) - 1 - block.rfind(lines.END)

    def _too_long(self, lines_before: int) -> errors.InputRefused:
        line = self._cutter.total_lines + lines_before + 1
        return errors.InputRefused(
            f"line {line} is longer than {self._most_bytes:,} bytes: raise input.maxLineBytes, or "
            "put one record on a line",
            line=line,
        )
