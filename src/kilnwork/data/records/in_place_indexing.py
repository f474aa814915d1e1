"""In-place indexing: indexes a file where it is stored. Used for uploads that become the input of a
job, and by `files.map`.

The caller's thread reads and counts while another thread computes the checksums of the bytes read
before, so that two cores are used: zlib and hashlib release Python's lock.
"""

import hashlib
import os
import sys
from collections.abc import Iterator

from kilnwork.api import filejobs
from kilnwork.data import context_manager_bases, errors
from kilnwork.data.records import checksums, indexes, lines, reread_thread, unsupported_formats

BLOCK_BYTES = 256 << 10
"""Number of bytes counted at once: a block fits into the cache of a core."""


def needs_rewriting(head: bytes, spec: filejobs.InputSpec) -> bool:
    """Return whether an `Intake` must rewrite a file before the file is stored. `head`: the first
    bytes of the file.
    """
    gzip = head.startswith(unsupported_formats.GZIP) if spec.gzip is None else spec.gzip
    return gzip or spec.format == filejobs.Format.JSON


def manifest(
    descriptor: int, spec: filejobs.FileJobSpec, *, digest: bool = True
) -> filejobs.Manifest:
    """Index an open regular file, and return its manifest; see `Indexing`."""
    with Indexing(descriptor, spec, digest=digest) as indexing:
        while indexing.index_bytes(sys.maxsize):
            pass
        return indexing.finish()


class Indexing(context_manager_bases.Closeable):
    """Indexing of an open regular file, from its first byte.

    Use it in a `with` block, call `index_bytes` until it returns 0, then `finish`. A byte order
    mark is left out of the parts. `digest`: compute the SHA-256 of the whole file, which takes most
    of the time; otherwise `sha256` is "", and only the crc32 of the parts tells whether the file
    was changed later. All methods raise `InputRefused`, also for a file that needs rewriting,
    `FileChanged`, and OSError.
    """

    def __init__(
        self,
        descriptor: int,
        spec: filejobs.FileJobSpec,
        *,
        digest: bool = True,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self._descriptor, self._spec, self._digest = descriptor, spec, digest
        self._thread = reread_thread.RereadThread()
        # the thread gets the heavier half; a third thread would only compete for two cores
        self._whole = _Hash(self._thread, reread_thread.Rereader(descriptor, 0)) if digest else None
        self._blocks = _blocks(descriptor, block_bytes)
        self._index: indexes.RecordIndex | None = None
        self.bytes = 0
        """Number of bytes processed."""

    def index_bytes(self, count: int) -> int:
        """Process `count` bytes of the file, or up to a block more; return the number of bytes
        processed, 0 at the end.
        """
        before = self.bytes
        while self.bytes - before < count and (block := next(self._blocks, None)) is not None:
            self._add(block)
        return self.bytes - before

    def finish(self) -> filejobs.Manifest:
        index = self._index or indexes.index_of(self._spec)
        parts, count = index.finish()
        return filejobs.Manifest(
            format=self._spec.input.format,
            bytes=self.bytes,
            lines=count,
            sha256=self._whole.hex() if self._whole else "",
            parts=parts,
            header=index.header,
        )

    def _add(self, block: bytes | bytearray) -> None:
        self.bytes += len(block)
        if self._whole is not None:
            self._whole.add(len(block))
        if self._index is None:
            block = _checked(bytes(block), self._spec.input)
            start = self.bytes - len(block)
            again = reread_thread.Rereader(self._descriptor, start)
            sums = None if self._digest else checksums.ReadBehindChecksums(self._thread, again)
            self._index = indexes.index_of(self._spec, start=start, sums=sums)
        self._index.add(block)

    def close(self) -> None:
        self._thread.close()


class _Hash:
    """SHA-256 of a file, computed in `thread`."""

    def __init__(self, thread: reread_thread.RereadThread, again: reread_thread.Rereader) -> None:
        self._thread, self._again = thread, again
        self._sha256 = hashlib.sha256()
        self._bytes = 0

    def add(self, count: int) -> None:
        """Add the next `count` bytes of the file to the hash."""
        self._bytes += count
        if self._bytes >= reread_thread.TOGETHER_BYTES:
            self._send()

    def hex(self) -> str:
        self._send()
        self._thread.settle()
        return self._sha256.hexdigest()

    def _send(self) -> None:
        count, self._bytes = self._bytes, 0
        self._thread.give(lambda: self._hash(count))

    def _hash(self, count: int) -> None:
        for piece in self._again.next(count):
            self._sha256.update(piece)


def _blocks(descriptor: int, block_bytes: int) -> Iterator[bytes | bytearray]:
    """Yield the content of the file in blocks of `block_bytes`; the last block may be shorter.

    A block is valid only until the next one is requested.
    """
    buffer = bytearray(block_bytes)
    view, at, filled = memoryview(buffer), 0, 0
    while count := os.preadv(descriptor, [view[filled:]], at):
        at += count
        filled += count
        if filled == block_bytes:
            yield buffer
            filled = 0
    if filled:
        yield bytes(view[:filled])


def _checked(head: bytes, spec: filejobs.InputSpec) -> bytes:
    """Return `head` without a byte order mark. Raises `InputRefused` for a file that cannot be
    indexed in place."""
    if spec.format == filejobs.Format.JSON:
        raise errors.InputRefused(
            "a JSON array cannot be mapped where it is: upload it, or rewrite it to one value on "
            "each line (jq -c '.[]')"
        )
    found = unsupported_formats.foreign(head, gzip=spec.gzip is False)
    if found is not None:
        raise errors.InputRefused(f"the file {found.what}: {found.remedy}")
    return head.removeprefix(lines.BOM)
