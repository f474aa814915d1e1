"""Rows of CSV (RFC 4180), as bytes: finds where rows end, and splits them into cells. Used by
`row_index`, `part_reader` and `values`.

A quote opens a quoted cell only at the beginning of the cell; elsewhere it is an ordinary
character, as in Python's csv. In a quoted cell two quotes stand for one, and delimiters and line
ends are ordinary characters; text between the closing quote and the delimiter is appended. A row
ends like a line.
"""

import re
from collections.abc import Iterable, Iterator

from kilnwork.data import errors
from kilnwork.data.records import byte_buffer, lines

_NO_DELIMITERS = '"\r\n'


class CsvDialect:
    """Parser of rows in one dialect of CSV. `delimiter`: an ASCII character except quote and line
    ends.
    """

    def __init__(self, delimiter: str) -> None:
        if not delimiter.isascii() or delimiter in _NO_DELIMITERS:
            raise errors.InputRefused(
                f"input.delimiter is {delimiter!r}: give one ASCII character that is neither a "
                "quote nor a line end, such as , or ; or \\t"
            )
        self._delimiter = delimiter.encode()
        mark = re.escape(self._delimiter)
        quoted = rb'"(?:[^"]++|"")*+"[^%b\n]*+' % mark
        plain = rb'[^"%b\n][^%b\n]*+' % (mark, mark)
        cell = rb"(?:%b|%b|)" % (quoted, plain)
        row = rb"%b(?:%b%b)*+" % (cell, mark, cell)
        self._row = re.compile(row)
        # the second alternative always matches, so that the bytes after an incomplete row are not
        # searched
        self._ended = re.compile(rb"(%b\n)|[\s\S]" % row)
        self._cell = re.compile(
            rb'(?:\A|%b)(?:"((?:[^"]++|"")*+)"([^%b]*+)|([^%b]*+))' % ((mark,) * 3)
        )

    def ends(self, content: bytes) -> list[int]:
        """Return the end (exclusive) of each complete row in `content`; the first row begins at
        0.
        """
        found: list[int] = []
        for match in self._ended.finditer(content):
            if match.lastindex is None:
                break
            found.append(match.end())
        return found

    def first(self, content: bytes) -> int | None:
        """Return the end (exclusive) of the first row, or None if the row is incomplete."""
        match = self._ended.match(content)
        return match.end() if match and match.lastindex else None

    def closed(self, row: bytes) -> bool:
        """Return whether all quoted cells are closed in a row without line end."""
        return self._row.fullmatch(row) is not None

    def cells(self, row: bytes) -> list[bytes]:
        """Return the cells of a row without line end; there is at least one."""
        if b'"' not in row:
            return row.split(self._delimiter)
        return [
            quoted.replace(b'""', b'"') + after if quoted or after else plain
            for quoted, after, plain in self._cell.findall(row)
        ]

    def split_block(self, content: bytes) -> list[bytes]:
        """Return the rows in a block of whole rows, without line ends; an empty list for no
        bytes."""
        if b'"' not in content:
            return lines.split_block(content)
        ends = self.ends(content)
        found = [content[a:b] for a, b in zip([0, *ends], ends, strict=False)]
        if (done := ends[-1] if ends else 0) < len(content):
            found.append(content[done:])
        return [row.removesuffix(lines.END).removesuffix(b"\r") for row in found]

    def whole_blocks(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the bytes of `pieces` in blocks of whole rows; only the last block may lack its
        LF.
        """
        waiting, needed = byte_buffer.ByteBuffer(), 0
        for piece in pieces:
            waiting.add(piece)
            if waiting.bytes < needed:
                continue
            begun = waiting.take()
            end = self.end_of_last(begun)
            if end:
                yield begun[:end]
            # a long incomplete row is searched again only when it is twice as long
            needed = 0 if end else 2 * len(begun)
            waiting.add(begun[end:])
        if waiting.bytes:
            yield waiting.take()

    def end_of_last(self, content: bytes) -> int:
        """Return the end (exclusive) of the last complete row in `content`, or 0 if there is
        none.
        """
        if b'"' not in content:
            return content.rfind(lines.END) + 1
        ends = self.ends(content)
        return ends[-1] if ends else 0
