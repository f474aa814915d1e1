"""Parts of a file: consecutive lines of the file, as a value that can be passed to tasks.

Created by `file_splitting` and `files.map`, read by task functions. A part names a range of bytes
and contains none of them. `records.lines` defines what a line is.
"""

import contextlib
import io
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kilnwork.data import blob_renewal, local_blobs, pickled_blob_references
from kilnwork.data import errors as data_errors
from kilnwork.data.records import lines

BLOCK_BYTES = 1 << 18
"""Number of bytes read at a time: large enough for the disk, small enough for the processor's
cache."""

_BOM = "\ufeff"


@dataclass(frozen=True, slots=True, weakref_slot=True)
class SplitFile:
    """The file that was split, with its state at that time. All parts of a file share one object.

    `modified_ns`: its modification time. `ended`: whether its last line ended with LF. `encoding`,
    `errors`: as for `open`. `blob`: digest of a copy, for workers that do not see the file, or see
    a different one.
    """

    path: str
    size: int
    modified_ns: int
    ended: bool
    encoding: str = "utf-8"
    errors: str = "strict"
    blob: bytes | None = None

    def __post_init__(self) -> None:
        if self.blob is not None:
            blob_renewal.hold(self, (self.blob,))

    def __reduce__(self) -> tuple[Any, ...]:
        if self.blob is not None:
            pickled_blob_references.note((self.blob,))
        found = (self.path, self.size, self.modified_ns, self.ended)
        return SplitFile, (*found, self.encoding, self.errors, self.blob)


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes `start` to `end` (exclusive) of a file: one or more whole lines.

    `index`: position among `count` parts, from 0. `first_line`: number of its first line in the
    file, from 1 as in editors; `line_count`: number of its lines; both are None if lines were not
    counted. Iterate over a part to get the lines as str, without line ends.
    """

    file: SplitFile
    start: int
    end: int
    index: int
    count: int
    first_line: int | None
    line_count: int | None

    def __reduce__(self) -> tuple[Any, ...]:
        numbers = (self.first_line, self.line_count)
        return Part, (self.file, self.start, self.end, self.index, self.count, *numbers)

    @property
    def path(self) -> str:
        """Absolute path of the file."""
        return self.file.path

    def __iter__(self) -> Iterator[str]:
        return self.lines()

    def lines(self) -> Iterator[str]:
        """Return an iterator over the lines, decoded, without line ends.

        A byte order mark at the start of the file is dropped. Raises `FileChanged` if the file is
        not the one that was split, UnicodeDecodeError with the line number in a note, and
        FileNotFoundError or PermissionError if it cannot be read.
        """
        return itertools.chain.from_iterable(_lines(self))

    def bytes(self) -> bytes:
        """Return the whole content of the part unchanged. Raises as `lines`."""
        with self.open() as file:
            content = file.read()
        if len(content) < self.end - self.start:
            raise _changed(self.file, "it became shorter while it was read")
        return content

    def open(self) -> io.BufferedReader:
        """Return a binary file that contains this part only, for readers that need a file object.

        Raises as `lines`.
        """
        return io.BufferedReader(_Range(_descriptor(self), self.start, self.end), BLOCK_BYTES)


def _lines(part: Part) -> Iterator[list[str]]:
    """Yield the lines of a part as one list per block: iterating over a list runs no Python code,
    unlike a generator.
    """
    number = first = part.first_line or 1
    for block in lines.whole_blocks(_blocks(part)):
        try:
            text = block.decode(part.file.encoding, part.file.errors)
        except UnicodeDecodeError as error:
            number += block.count(b"\n", 0, error.start)
            of = "" if part.first_line else f" of part {part.index}"
            error.add_note(
                f"In {part.path}, line {number}{of}. "
                "Give kiln.split the file's encoding, or errors='replace'"
            )
            raise
        if part.start == 0 and number == first:
            text = text.removeprefix(_BOM)
        found = text.removesuffix("\n").split("\n")
        number += len(found)
        if "\r" in text:
            found = [line.removesuffix("\r") for line in found]
        yield found


def _blocks(part: Part) -> Iterator[bytes]:
    """Yield the whole content of a part, about `BLOCK_BYTES` at a time."""
    left = part.end - part.start
    with io.FileIO(_descriptor(part)) as file:
        file.seek(part.start)
        while left:
            block = file.read(min(BLOCK_BYTES, left))
            if not block:
                raise _changed(part.file, "it became shorter while it was read")
            left -= len(block)
            yield block


def _descriptor(part: Part) -> int:
    """Return a descriptor of the part's file if the file is unchanged since it was split, else one
    of its copy.

    Without a copy, a changed file is used if the part still consists of whole lines. Raises as
    `Part.lines`, and the errors of `Blobs.open` for the copy.
    """
    file = part.file
    try:
        descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        if file.blob is not None:
            return _copy(file, file.blob)
        error.add_note(
            "A worker cannot read the file that was split. With kiln.split(…, ship=True) a copy "
            "goes along"
        )
        raise
    with contextlib.ExitStack() as unless_used:
        unless_used.callback(os.close, descriptor)
        found = os.fstat(descriptor)
        if (found.st_size, found.st_mtime_ns) != (file.size, file.modified_ns):
            if file.blob is not None:
                return _copy(file, file.blob)
            if not _whole_lines(part, descriptor):
                raise _changed(file, "this part does not begin and end with a line any more")
        unless_used.pop_all()
    return descriptor


def _copy(file: SplitFile, blob: bytes) -> int:
    if local_blobs.locate is None:
        raise data_errors.BlobMissing(
            f"{file.path} is not here, and no session is open that has a copy: "
            "read parts in tasks, or inside `with kiln.connect():`"
        )
    return local_blobs.locate().open(blob)


def _whole_lines(part: Part, descriptor: int) -> bool:
    """Return whether the part still begins and ends with whole lines.

    If so, a file that has only grown, or was copied, can be used like the file that was split.
    """
    before = os.pread(descriptor, 1, part.start - 1) if part.start else b"\n"
    last = os.pread(descriptor, 1, part.end - 1)
    unfinished = part.end == part.file.size and not part.file.ended
    return before == b"\n" and (last == b"\n" or (unfinished and last != b""))


def _changed(file: SplitFile, how: str) -> data_errors.FileChanged:
    return data_errors.FileChanged(
        f"{file.path} is not the file that was split: {how}. Split it again, or leave it alone "
        "until its tasks are over; with kiln.split(…, ship=True) tasks read a copy"
    )


class _Range(io.RawIOBase):
    """A file object for a range of a file; it owns the descriptor."""

    def __init__(self, descriptor: int, start: int, end: int) -> None:
        self._descriptor = descriptor
        self._start, self._end = start, end
        self._at = start

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        at = (self._start, self._at, self._end)[whence] + offset
        if at < self._start:
            raise ValueError("a negative position in a part")
        self._at = at
        return at - self._start

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer)
        room = max(0, min(len(view), self._end - self._at))
        count = os.preadv(self._descriptor, [view[:room]], self._at) if room else 0
        self._at += count
        return count

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()
