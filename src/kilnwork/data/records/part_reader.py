"""Part reader: reads the records of a part, given the bytes of the part from any store. Used by
workers.

The bytes are compared with the manifest: if the part has changed since it was indexed, an error is
raised after its last record at the latest.
"""

import zlib
from collections.abc import Iterable, Iterator

from kilnwork.api import filejobs
from kilnwork.data import errors
from kilnwork.data.records import csv_rows, lines


def batches(
    pieces: Iterable[bytes], part: filejobs.Part, spec: filejobs.InputSpec
) -> Iterator[list[bytes]]:
    """Yield the records of a part in order, unchanged but without line ends, several at a time.

    Rows of CSV may contain line ends in quoted cells. `pieces`: the bytes of the part in order, of
    any lengths (about 256 KiB is best). The first record has number `part.first_line`; blank
    records are included. Raises `InputChanged`, after which all records that were yielded must be
    discarded.
    """
    count = 0
    dialect = csv_rows.CsvDialect(spec.delimiter) if spec.format == filejobs.Format.CSV else lines
    for block in dialect.whole_blocks(_verified(pieces, part)):
        found = dialect.split_block(block)
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
