"""Row index: counts the rows of a CSV file and divides the file into parts. Used by `indexes`, in
place of `line_index`.

The first row names the columns and belongs to no part. Where there are no quotes, rows are counted
as lines.
"""

import bisect

from kilnwork.api import filejobs
from kilnwork.data import errors
from kilnwork.data.records import byte_buffer, csv_rows, line_index, lines, part_cutter

MAX_HEADER_BYTES = 256 << 10
"""Maximum size of the header row: with 10,000 parts that is 2.5 GiB of arguments."""


class RowIndex:
    """Index of a CSV file: pass the file to `add` block by block, then call `finish`. `most_bytes`:
    maximum size of a row.
    """

    def __init__(
        self, cutter: part_cutter.PartCutter, dialect: csv_rows.CsvDialect, *, most_bytes: int
    ) -> None:
        self._cutter, self._dialect, self._most_bytes = cutter, dialect, most_bytes
        self._lines = line_index.LineIndex(cutter, most_bytes=most_bytes)
        self._held = byte_buffer.ByteBuffer()
        self._needed = 0
        self.header: tuple[str, ...] | None = None

    def add(self, block: bytes | bytearray) -> None:
        """Process the next block of the file, of any length. Raises `InputRefused` for a row that
        is too long.
        """
        self._held.add(bytes(block))  # a copy, since the caller may reuse the block
        if self._held.bytes < min(self._needed, self._most_bytes):
            return
        content = self._held.take()
        done = 0
        if self.header is None:
            done = self._dialect.first(content) or 0
            if done:
                self._begin(content[:done])
        if self.header is not None:
            done += self._add_rows(content[done:] if done else content)
        self._held.add(content[done:])
        self._needed = 0 if done else 2 * len(content)
        if self._held.bytes > self._most_bytes:
            raise self._too_long(0)

    def finish(self) -> tuple[tuple[filejobs.Part, ...], int]:
        """End the file; return its parts, and the number of rows."""
        if self._held.bytes:
            self._needed = 0
            self.add(b"")
        if self._held.bytes:
            self._finish_rest(self._held.take())
        parts = self._cutter.finish()
        return parts, self._cutter.total_lines

    def _finish_rest(self, rest: bytes) -> None:
        number = self._cutter.total_lines + 1
        if not self._dialect.closed(rest):
            raise errors.InputRefused(
                f"a quote that opens in row {number} is never closed: close it, write quotes in "
                "cells twice, or use the format text",
                line=number,
            )
        if self.header is None:
            self._begin(rest)
        else:
            self._cutter.take(rest, 1)

    def _begin(self, row: bytes) -> None:
        if len(row) > MAX_HEADER_BYTES:
            raise errors.InputRefused(
                f"the first row of the file has {len(row):,} bytes: the names of columns may have "
                f"{MAX_HEADER_BYTES:,} together, since each part is sent with them. Give the file "
                "a header, or use the format text",
                line=1,
            )
        cells = self._dialect.cells(row.removesuffix(lines.END).removesuffix(b"\r"))
        try:
            header = tuple(cell.decode() for cell in cells)
        except UnicodeDecodeError as error:
            raise errors.InputRefused(
                f"the header of the file is not UTF-8 ({error}): rewrite the file first, for "
                "example with iconv -t UTF-8"
            ) from error
        if not any(header):
            raise errors.InputRefused("the first row of the file names no column: give it a header")
        known: set[str] = set()
        for name in header:
            if name in known:
                raise errors.InputRefused(f"two columns are named {name!r}: rename one of them")
            known.add(name)
        self.header = header
        self._cutter.skip(len(row))

    def _add_rows(self, content: bytes) -> int:
        """Process the complete rows in `content`; return the end of the last one."""
        if b'"' not in content:
            done = content.rfind(lines.END) + 1
            self._lines.add(content[:done])
            return done
        ends = self._dialect.ends(content)
        self._measure(ends)
        view, done, index = memoryview(content), 0, 0
        cutter = self._cutter
        while index < len(ends):
            until = index + cutter.limit_lines - cutter.lines
            if cutter.limit_bytes is not None:
                reached = done + cutter.limit_bytes - (cutter.end - cutter.start)
                until = min(until, bisect.bisect_left(ends, reached, index) + 1)
            closes = until <= len(ends)
            until = min(until, len(ends))
            cutter.take(view[done : ends[until - 1]], until - index)
            done, index = ends[until - 1], until
            if closes:
                cutter.close()
        return done

    def _measure(self, ends: list[int]) -> None:
        before = 0
        if ends and ends[-1] > self._most_bytes:
            for index, end in enumerate(ends):
                if end - before - 1 > self._most_bytes:
                    raise self._too_long(index)
                before = end

    def _too_long(self, rows_before: int) -> errors.InputRefused:
        number = self._cutter.total_lines + rows_before + 1
        return errors.InputRefused(
            f"row {number} is longer than {self._most_bytes:,} bytes: close the quote that may be "
            "open there, or raise input.maxLineBytes",
            line=number,
        )
