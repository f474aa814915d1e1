"""The result of `files.map`: the results in the order of the file, the bad records, and the counts.

Public as `kilnwork.files.Mapped`. Holds futures of the parts, not the results themselves.
"""

import functools
import io
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kilnwork.api import filejobs
from kilnwork.files import bad_records, part_work
from kilnwork.sdk import errors, futures, waiting

_SHOWN_BY = "iterate it, .write(path), .errors, .records"


class Limit(NamedTuple):
    """The maximum number of bad records, or their maximum percentage; no limit if both are None."""

    records: int | None = None
    percent: float | None = None

    def exceeded(self, bad: int, *, of: int) -> bool:
        """Return whether `bad` bad records, among `of` records, exceed the limit."""
        if self.records is not None and bad > self.records:
            return True
        return self.percent is not None and bad * 100 > self.percent * of


class Mapped:
    """The results of a file that is being mapped.

    Iterate over it for the results, in the order of the records; the iteration waits for each part
    in turn and raises the error of a failed part. It may be iterated again. Only one part's results
    are in memory at a time: for 1 M records of 50 bytes, in parts of 100,000, the process grew by
    40 MiB. `write(path)` writes the results to a file, one per line, byte for byte what `kiln
    upload` would have written.
    """

    def __init__(
        self,
        parts: Sequence[futures.Future[part_work.Done]],
        *,
        path: str,
        lines: int,
        limit: Limit,
    ) -> None:
        self._parts = list(parts)
        self._path = path
        self._lines = lines
        self._limit = limit
        self._lock = threading.Lock()
        self._stopped: errors.TooManyFailed | None = None
        self._counts = filejobs.Records()
        self._counted: set[int] = set()
        for index, part in enumerate(self._parts):
            part.add_done_callback(functools.partial(self._over, index))

    def __iter__(self) -> Iterator[Any]:
        """Yield the results in order.

        A result is a JSON value, or bytes if the function returned bytes. The results of a command
        are the lines that it printed, as str.
        """
        for done in self._done():
            yield from part_work.values_of(done)

    def lines(self) -> Iterator[bytes]:
        """Yield the results as the lines that `write` writes, with their line ends."""
        for done in self._done():
            yield from io.BytesIO(done.lines.value())

    def write(self, path: str | os.PathLike[str]) -> int:
        """Write all results to a file and return its size in bytes.

        The file appears when it is complete. Raises the error of a failed part, TooManyFailed,
        OSError.
        """
        target = Path(path).resolve()  # a link stays one
        if target.exists() and not target.is_file():  # a device or a pipe
            return self._write(target)
        made = target.with_name(f"{target.name}.part")
        try:
            size = self._write(made)
            made.replace(target)
        finally:
            made.unlink(missing_ok=True)
        return size

    def _write(self, path: Path) -> int:
        with path.open("wb") as file:
            return sum(file.write(done.lines.value()) for done in self._done())

    @property
    def errors(self) -> bad_records.BadRecords:
        """The bad records, in order: `line` (from 1), `reason`, `raw`.

        Reading them waits for the parts and raises the errors of failed parts. If the map was
        stopped with TooManyFailed, only the bad records of finished parts are read.
        """
        return bad_records.BadRecords(self._mapped)

    @property
    def records(self) -> filejobs.Records:
        """The counts `total`, `succeeded`, `failed` and `skipped` of the records in the parts that
        have succeeded.
        """
        for index, part in enumerate(self._parts):
            if part.done():
                self._count(index)
        return self._counts

    @property
    def parts(self) -> "futures.Futures[part_work.Done]":
        """The futures of the parts, to wait for, inspect or cancel."""
        return futures.Futures(self._parts)

    def done(self) -> bool:
        """Return whether all parts have finished."""
        return all(part.done() for part in self._parts)

    def wait(self, timeout: float | None = None) -> "Mapped":
        """Wait until all parts have finished; return this object. Raises TimeoutError."""
        _, left = waiting.wait(self._parts, timeout)
        if left:
            raise TimeoutError(f"{len(left)} of {len(self._parts)} parts are not done")
        return self

    def cancel(self) -> None:
        """Cancel the parts that have not finished."""
        for part in self._parts:
            part.cancel()

    def __repr__(self) -> str:
        counts = self.records
        over = sum(part.done() for part in self._parts)
        failed = sum(part.failed() for part in self._parts)
        text = f"{counts.total:,} of {self._lines:,} records, {counts.failed:,} of them bad"
        text += f"; {over:,} of {len(self._parts):,} parts are over"
        if failed:
            text += f", {failed:,} of those failed"
        return f"<Mapped {self._path}: {text}; {_SHOWN_BY}>"

    def _done(self) -> Iterator[part_work.Done]:
        for part in self._parts:
            try:
                done = part.result()
            except errors.Cancelled:
                if self._stopped is not None:
                    raise self._stopped from None
                raise
            yield done
        if self._stopped is not None:
            raise self._stopped

    def _mapped(self) -> Iterator[part_work.Done]:
        """Yield the outcomes of the parts in order.

        If the map was stopped with TooManyFailed, only the outcomes of finished parts are yielded.
        """
        for part in self._parts:
            try:
                done = part.result()
            except errors.Cancelled:
                if self._stopped is None:
                    raise
            else:
                yield done

    def _over(self, index: int, _: futures.Future[part_work.Done]) -> None:
        self._count(index)

    def _count(self, index: int) -> None:
        """Count the records of a finished part once; called in any thread."""
        part = self._parts[index]
        if part.failed():
            return
        found = part.result().records
        with self._lock:
            if index in self._counted:
                return
            self._counted.add(index)
            self._counts += found
            failed = self._counts.failed
            if self._stopped is not None or not self._limit.exceeded(failed, of=self._lines):
                return
            self._stopped = errors.TooManyFailed(
                f"{self._path}: {failed:,} of {self._lines:,} records are bad, more than "
                f"max_failed={self._limit_text()} allows; the rest was not mapped"
            )
        self.cancel()

    def _limit_text(self) -> str:
        return (
            f"{self._limit.percent:g}%" if self._limit.records is None else str(self._limit.records)
        )
