"""Intake of a file as it arrives: returns the bytes to store, and the manifest after the last byte.

Used by uploads and by `files.map`. Pieces may have any length; only an unfinished record is kept in
memory.
"""

import hashlib
from collections.abc import Iterator

from kilnwork.api import filejobs
from kilnwork.data import errors
from kilnwork.data.records import gzip_unpacker, indexes, json_arrays, lines, unsupported_formats

_SLOW = (filejobs.Format.CSV, filejobs.Format.JSON)


class Intake:
    """Intake of one file. Pass the file's bytes to `feed` in order, store the bytes that it yields,
    then call `finish`.

    `spec`: the job's spec, of which `input`, `itemsPerPart`, `bytesPerPart` and `maxParts` are
    used. `most_bytes`: maximum stored size; None: no limit. `unpacking`: limits for a compressed
    file. Not thread-safe, but each call may be made in a different thread. Unusable after an error.
    """

    def __init__(
        self,
        spec: filejobs.FileJobSpec,
        *,
        most_bytes: int | None = None,
        unpacking: gzip_unpacker.UnpackLimits = gzip_unpacker.UNLIMITED,
    ) -> None:
        self._unpacking = unpacking
        self._spec = spec.input
        self._most_bytes = most_bytes
        self._head: bytes | None = b""
        self._gzip: gzip_unpacker.Unpacker | None = None
        self._start: bytes | None = b""
        """The first bytes, unpacked, as long as they may be an incomplete byte order mark."""
        self._elements: json_arrays.Elements | None = None
        if spec.input.format == filejobs.Format.JSON:
            self._elements = json_arrays.Elements(most_bytes=spec.input.max_line_bytes)
        self._index = indexes.index_of(spec)
        self._sha256 = hashlib.sha256()
        self._bytes = 0

    @property
    def slow(self) -> bool:
        """Whether processing may take much longer than reading the bytes: compressed bytes unpack
        to many more, or every token is examined."""
        return self._gzip is not None or self._spec.format in _SLOW

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Process the next bytes of the file and yield bytes to store, in order; exhaust the
        iterator.

        Raises `InputRefused` with the line's number, `InputTooLarge`.
        """
        if self._head is not None:
            data = self._head + data
            if len(data) < unsupported_formats.HEAD_BYTES:
                self._head = data
                return
            self._begin(data)
        if self._gzip is None:
            yield from self._strip_mark(data)
        else:
            for piece in self._gzip.feed(data):
                yield from self._strip_mark(piece)

    def finish(self) -> tuple[bytes, filejobs.Manifest]:
        """End the file; return the last bytes to store, and the manifest. Raises as `feed`."""
        found: list[bytes] = []
        if self._head is not None:
            head = self._head
            self._begin(head)
            found += self.feed(head)
        if self._gzip is not None:
            self._gzip.finish()
        if self._start is not None:
            start, self._start = self._start, None
            found += self._to_lines(start.removeprefix(lines.BOM))
        if self._elements is not None and (rest := self._elements.finish()):
            found.append(self._count_stored(rest))
        return b"".join(found), self._manifest()

    def _manifest(self) -> filejobs.Manifest:
        parts, count = self._index.finish()
        return filejobs.Manifest(
            format=self._spec.format,
            bytes=self._bytes,
            lines=count,
            sha256=self._sha256.hexdigest(),
            parts=parts,
            header=self._index.header,
        )

    def _begin(self, head: bytes) -> None:
        self._head = None
        gzip = self._spec.gzip
        if gzip is None:
            gzip = head.startswith(unsupported_formats.GZIP)
        elif gzip and head and not head.startswith(unsupported_formats.GZIP):
            raise errors.InputRefused(
                "the file is not compressed with gzip, though input.gzip is true: leave that out"
            )
        found = unsupported_formats.foreign(head, gzip=True)
        if found is not None:
            raise errors.InputRefused(f"the file {found.what}: {found.remedy}")
        if gzip and head:
            self._gzip = gzip_unpacker.Unpacker(self._unpacking)

    def _strip_mark(self, data: bytes) -> Iterator[bytes]:
        if self._start is not None:
            data = self._start + data
            if len(data) < len(lines.BOM) and lines.BOM.startswith(data):
                self._start = data
                return
            self._start = None
            data = data.removeprefix(lines.BOM)
        yield from self._to_lines(data)

    def _to_lines(self, data: bytes) -> Iterator[bytes]:
        if self._elements is not None:
            for piece in self._elements.feed(data):
                yield self._count_stored(piece)
        elif data:
            yield self._count_stored(data)

    def _count_stored(self, data: bytes) -> bytes:
        self._bytes += len(data)
        if self._most_bytes is not None and self._bytes > self._most_bytes:
            raise errors.InputTooLarge(
                f"the file is larger than {self._most_bytes:,} bytes, unpacked",
                limit=self._most_bytes,
                seen=self._bytes,
                unit="bytes stored",
                remedy="send it in pieces, or ask the server's operator to raise --max-input",
            )
        self._sha256.update(data)
        self._index.add(data)
        return data
