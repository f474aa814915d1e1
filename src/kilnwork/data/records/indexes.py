"""Port of the indexes that find the records of a file, and selection of the index for a format.

Used by `intake` and `in_place_indexing`.
"""

from typing import Protocol

from kilnwork.api import filejobs
from kilnwork.data.records import checksums, csv_rows, line_index, part_cutter, row_index


class RecordIndex(Protocol):
    """Index that finds the records in a file, which is passed to it block by block, and divides the
    file into parts.
    """

    header: tuple[str, ...] | None
    """Column names, once they are known."""

    def add(self, block: bytes | bytearray) -> None:
        """Process the next block of the file, of any length; the caller may reuse the block
        afterwards. Raises `InputRefused`.
        """
        ...

    def finish(self) -> tuple[tuple[filejobs.Part, ...], int]:
        """End the file; return its parts and the number of records. Raises `InputRefused`."""
        ...


def index_of(
    spec: filejobs.FileJobSpec, *, start: int = 0, sums: checksums.PartChecksums | None = None
) -> RecordIndex:
    """Return a new index for the format in a job's spec.

    `start`: byte of the file at which the index begins. `sums`: object that computes the checksums
    of parts; by default they are computed at once. Raises `InputRefused`.
    """
    cutter = part_cutter.PartCutter(
        lines=spec.items_per_part,
        bytes_=spec.bytes_per_part,
        most=spec.max_parts,
        start=start,
        sums=sums,
    )
    most_bytes = spec.input.max_line_bytes
    if spec.input.format == filejobs.Format.CSV:
        dialect = csv_rows.CsvDialect(spec.input.delimiter)
        return row_index.RowIndex(cutter, dialect, most_bytes=most_bytes)
    return line_index.LineIndex(cutter, most_bytes=most_bytes)
