"""Which index a format has. Used by `intake` and `stored_index`."""

from typing import Protocol

from kilnwork.api import filejobs
from kilnwork.data.records import checksums, csv_rows, line_index, part_cutter, row_index


class Index(Protocol):
    """Finds records in a file that it is given block by block, and makes parts of them."""

    header: tuple[str, ...] | None
    """Names of columns, once they were seen."""

    def add(self, block: bytes | bytearray) -> None:
        """What comes next, of any length; it may be used again afterwards. Raises
        `InputRefused`."""
        ...

    def finish(self) -> tuple[tuple[filejobs.Part, ...], int]:
        """That was all: the parts, and how many records there are. Raises `InputRefused`."""
        ...


def index_of(
    spec: filejobs.FileJobSpec, *, start: int = 0, sums: checksums.Sums | None = None
) -> Index:
    """A new one. `start`: the byte of the file at which it is to begin. `sums`: what adds up
    the parts' checksums; None: as it goes. Raises `InputRefused`."""
    cutter = part_cutter.Cutter(
        lines=spec.items_per_part,
        bytes_=spec.bytes_per_part,
        most=spec.max_parts,
        start=start,
        sums=sums,
    )
    most_bytes = spec.input.max_line_bytes
    if spec.input.format == filejobs.Format.CSV:
        dialect = csv_rows.Rows(spec.input.delimiter)
        return row_index.RowIndex(cutter, dialect, most_bytes=most_bytes)
    return line_index.LineIndex(cutter, most_bytes=most_bytes)
