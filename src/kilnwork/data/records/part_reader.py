"""Reads the records of a part back. Used by workers; they bring the bytes, from any store.

What was read is compared with the manifest: a part that is not the one that was indexed is an
error, after its last record at the latest.
"""

import zlib
from collections.abc import Iterable, Iterator

from kilnwork.api import filejobs
from kilnwork.data import errors
from kilnwork.data.records import csv_rows, lines


def batches(
    pieces: Iterable[bytes], part: filejobs.Part, spec: filejobs.InputSpec
) -> Iterator[list[bytes]]:
    """The records in order, as they are in the file, without their line ends; some at a time.
    Of CSV: rows, in which quoted cells may hold line ends.

    `pieces`: the bytes of the part, in order, of any lengths (some 256 KiB are best). The first
    record has number `part.first_line`; blank ones are there too. Raises `InputChanged`, then
    what was given before must not count.
    """
    count = 0
    dialect = csv_rows.Rows(spec.delimiter) if spec.format == filejobs.Format.CSV else lines
    for block in dialect.whole(_verified(pieces, part)):
        found = dialect.of(block)
        count += len(found)
        yield found
    if count != part.lines:
        raise _changed(part, f"it has {count} records instead of {part.lines}")


def _verified(pieces: Iterable[bytes], part: filejobs.Part) -> Iterator[bytes]:
    crc32 = size = 0
    for piece in pieces:
        crc32 = zlib.crc32(piece, crc32)
        size += len(piece)
        yield piece
    if size != part.end - part.start:
        raise _changed(part, f"it has {size} bytes instead of {part.end - part.start}")
    if crc32 != part.crc32:
        raise _changed(part, f"its crc32 is {crc32:08x} instead of {part.crc32:08x}")


def _changed(part: filejobs.Part, how: str) -> errors.InputChanged:
    return errors.InputChanged(
        f"part {part.number} of the stored input is not what was uploaded: {how}. Look after the "
        "store's disk, and upload the file again"
    )
