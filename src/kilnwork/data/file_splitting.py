"""Splitting: divides a file into parts of whole lines, without looking at each line.

Used by the sdk (`kiln.split`). If lines are counted, the file is read once, block by block, and
line ends are counted in whole blocks; single line ends are searched for only where a part may end.
The parts are ranges: nothing is copied unless a copy is requested, which is written in the same
pass.
"""

import codecs
import io
import itertools
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from kilnwork.data import errors as data_errors
from kilnwork.data import local_blobs, parts
from kilnwork.data.records import unsupported_formats


class _Cut(NamedTuple):
    """The end (exclusive) of a part, and the number of lines before it; None if lines are not
    counted.
    """

    end: int
    lines: int | None


def split(
    path: str | os.PathLike[str],
    n: int,
    *,
    number_lines: bool = True,
    encoding: str = "utf-8",
    errors: str = "strict",
    copy: local_blobs.Blobs | None = None,
) -> list[parts.Part]:
    """Divide a file into at most `n` parts of about the same size in bytes, in order, and return
    them.

    No part is empty; an empty file has no parts. `number_lines`: count lines, which reads the whole
    file; otherwise only the places where parts end are read. `encoding`, `errors`: for reading the
    parts, as for `open`; line ends must be single LF bytes in the encoding. `copy`: the blobs in
    which a copy of the file is stored; lines are then counted. Raises `NotSplittable`,
    `FileChanged`, `BlobNotWritten`, OSError, ValueError for `n` below 1, and LookupError for an
    unknown encoding.
    """
    if n < 1:
        raise ValueError(f"a file has at least one part: n is {n}")
    encoding = _checked_encoding(encoding)
    full = os.path.abspath(path)  # noqa: PTH100 - symbolic links stay unresolved
    with io.FileIO(full, opener=_open) as file:
        found = os.fstat(file.fileno())
        _check(full, file, found)
        if copy is not None:
            with copy.writer() as new:
                cuts = list(_cut_counting_lines(file, found.st_size, n=n, copy=new))
                blob: bytes | None = new.commit()[0]
        else:
            cut = _cut_counting_lines if number_lines else _cut_near_targets
            cuts, blob = list(cut(file, found.st_size, n=n)), None
        ended = bool(cuts) and os.pread(file.fileno(), 1, found.st_size - 1) == b"\n"
    whole = parts.SplitFile(full, found.st_size, found.st_mtime_ns, ended, encoding, errors, blob)
    pairs = enumerate(itertools.pairwise((_Cut(0, 0), *cuts)))
    return [
        parts.Part(whole, before.end, cut.end, index, len(cuts), *_lines(before, cut))
        for index, (before, cut) in pairs
    ]


def _open(path: str, flags: int) -> int:
    """Open a file; a pipe without a writer does not block."""
    return os.open(path, flags | os.O_NONBLOCK)


def _lines(before: _Cut, cut: _Cut) -> tuple[int | None, int | None]:
    """Return the number of the first line of a part, from 1, and the part's number of lines."""
    if before.lines is None or cut.lines is None:
        return None, None
    return before.lines + 1, cut.lines - before.lines


def _cut_counting_lines(
    file: io.FileIO, size: int, *, n: int, copy: local_blobs.Writer | None = None
) -> Iterator[_Cut]:
    buffer = bytearray(parts.BLOCK_BYTES)
    view = memoryview(buffer)
    end = lines = base = got = 0
    while base < size:
        got = file.readinto(view[: size - base]) or 0
        if not got:
            raise _shorter_error(file)
        if copy is not None:
            copy.write(view[:got])
        done = 0
        while (target := _next_target(end, size, n=n)) is not None and target < base + got:
            at = buffer.find(b"\n", max(target - base, 0), got)
            if at < 0:
                break
            lines += buffer.count(b"\n", done, at + 1)
            done = at + 1
            end = base + done
            yield _Cut(end, lines)
        lines += buffer.count(b"\n", done, got)
        base += got
    if end < size:
        yield _Cut(size, lines + (buffer[got - 1] != ord("\n")))


def _cut_near_targets(file: io.FileIO, size: int, *, n: int) -> Iterator[_Cut]:
    end = 0
    while (target := _next_target(end, size, n=n)) is not None:
        found = _line_end(file, target, size)
        if found is None:
            break
        end = found + 1
        yield _Cut(end, None)
    if end < size:
        yield _Cut(size, None)


def _line_end(file: io.FileIO, start: int, size: int) -> int | None:
    """Return the position of the first LF at or after `start`, or None."""
    for base in range(start, size, parts.BLOCK_BYTES):
        block = os.pread(file.fileno(), min(parts.BLOCK_BYTES, size - base), base)
        if not block:
            raise _shorter_error(file)
        at = block.find(b"\n")
        if at >= 0:
            return base + at
    return None


def _next_target(end: int, size: int, *, n: int) -> int | None:
    """Return the position from which to search for the end of the next part, or None if the rest is
    the last part.

    Part k should end at byte k * size / n, so it ends with the line that contains the byte before.
    """
    if end == size:
        return None
    k = -(-(end + 1) * n // size)
    return k * size // n - 1 if k < n else None


def _check(path: str, file: io.FileIO, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise data_errors.NotSplittable(
            f"{path} is no regular file: it cannot be read from the middle. Write it to one first"
        )
    kind = unsupported_formats.foreign(os.pread(file.fileno(), unsupported_formats.HEAD_BYTES, 0))
    if kind is not None:
        raise data_errors.NotSplittable(
            f"{path} {kind.what}: it cannot be read from the middle. Please {kind.remedy} {path}"
        )


def _checked_encoding(name: str) -> str:
    """Return the name of an encoding after checking that a line end is one LF byte in it.

    For utf-8-sig, utf-8 is returned, since readers handle the byte order mark.
    """
    if codecs.lookup(name).name == "utf-8-sig":
        return "utf-8"
    if "\n".encode(name) != b"\n":
        raise data_errors.NotSplittable(
            f"lines of {name} do not end with one LF byte: rewrite the file first, for example "
            f"with iconv -f {name} -t UTF-8"
        )
    return name


def _shorter_error(file: io.FileIO) -> data_errors.FileChanged:
    return data_errors.FileChanged(
        f"{file.name} became shorter while it was split: split it when no process writes it"
    )
