"""Mapper port: takes the records of a part in order, and writes their results.

Used by `part` and `files.part_work`, which pass the records, and implemented by `builtins`,
`function_mappers` and `command_mappers`. The result of a part must depend on its records only, not
on how they are divided into batches.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from kilnwork.api import filejobs
from kilnwork.data.records import lines
from kilnwork.jobs.work import output_writer

Decode = Callable[[bytes], Any]
"""Makes a value from a record, or raises `BadRecord`: see `kilnwork.data.records.values`."""

TRACEBACKS = 3
"""Maximum number of bad records per part whose tracebacks are logged; the reason of each bad record
names the place anyway."""


class Mapper(Protocol):
    """A mapper of the records of one part, which writes to `Outputs`.

    Methods raise any error that ends the attempt. Used by one thread.
    """

    def map_batch(self, first: int, batch: list[bytes]) -> None:
        """Map the next records, each given as its bytes in the file without the line end.

        `first`: number of the first of these records.
        """
        ...

    def finish(self) -> None:
        """Write the remaining results to the outputs after the last record."""
        ...

    def close(self) -> None:
        """Release all resources of the mapper; also called after an error."""
        ...


class MapperSettings:
    """Settings that all mappers share. `first_line`: number of the first record of the part.
    `on_progress(number)` is called now and then with the number of the next record; it raises
    Cancelled if the attempt is to end. `tracebacks`: number of bad records whose tracebacks are
    logged."""

    def __init__(
        self,
        spec: filejobs.InputSpec,
        *,
        first_line: int,
        on_progress: Callable[[int], None],
        tracebacks: int = TRACEBACKS,
    ) -> None:
        self.spec = spec
        self.first_line = first_line
        self.on_progress = on_progress
        self.tracebacks = tracebacks
        self._skips = spec.blank is filejobs.Blank.SKIP

    def none_blank(self, batch: list[bytes]) -> bool:
        """Return whether none of these records is to be skipped as blank, which is nearly always
        so.
        """
        return not self._skips or (all(batch) and not any(map(bytes.isspace, batch)))

    def skips(self, raw: bytes) -> bool:
        """Return whether a record is to be skipped because it is blank."""
        return self._skips and lines.is_blank(raw)

    def numbered(
        self, first: int, batch: list[bytes], out: output_writer.Outputs
    ) -> Iterable[tuple[int, bytes]]:
        """Return the records to be mapped, with their numbers, and count the blank records as
        skipped.
        """
        if self.none_blank(batch):
            return enumerate(batch, first)
        found = [
            (number, raw) for number, raw in enumerate(batch, first) if not lines.is_blank(raw)
        ]
        out.skipped += len(batch) - len(found)
        return found
