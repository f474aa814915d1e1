"""Outputs of a part: lines of results, lines about bad records, and counts of both.

Used by the mappers, which write the outputs, and by `part` and `reduce`, which publish them; also
by `files.part_work`, which keeps them in memory. In a store, both files are unfinished objects
until `finish`.
"""

import base64
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Self

import msgspec

from kilnwork.api import filejobs
from kilnwork.data.stores import port
from kilnwork.jobs.work import errors

BUFFER_BYTES = 128 << 10
"""Number of bytes written at once: below the size from which the system allocates new memory each
time."""

MAX_REASON = 1000
"""Maximum length of a reason in characters."""

_encode = msgspec.json.Encoder().encode


class Sink:
    """A file of lines that is being written, with its digest and counts. `lines`: number of lines
    so far."""

    def __init__(self, writer: port.Writer, key: str) -> None:
        self._writer = writer
        self._key = key
        self._sha256 = hashlib.sha256()
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self.lines = 0

    def add(self, data: bytes, lines: int) -> None:
        """Append `lines` whole lines, or a piece of a line."""
        self.lines += lines
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= BUFFER_BYTES:
            self._flush()

    def finish(self) -> filejobs.StoredFile:
        """Commit the file to the store. Raises `StoreError`."""
        self._flush()
        facts = self._writer.commit()
        digest = self._sha256.hexdigest()
        return filejobs.StoredFile(
            key=self._key, bytes=facts.bytes, lines=self.lines, sha256=digest
        )

    def abort(self) -> None:
        """Discard the file. May be repeated, and has no effect after `finish`."""
        self._writer.abort()

    def _flush(self) -> None:
        data = self._waiting[0] if len(self._waiting) == 1 else b"".join(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        self._sha256.update(data)
        self._writer.write(data)


class Outputs:
    """Files of results and of bad records of a part that are being written.

    `open_errors` opens the file of bad records; it is called at the first bad record. `refuse`:
    whether a bad record is an error. Leaving the `with` block without `finish` discards everything.
    """

    def __init__(self, out: Sink, open_errors: Callable[[], Sink], *, refuse: bool = False) -> None:
        self._out = out
        self._open_errors = open_errors
        self._errors: Sink | None = None
        self._refuse = refuse
        self.succeeded = self.failed = self.skipped = 0

    @property
    def records(self) -> filejobs.Records:
        """Record counts of the outputs so far."""
        return filejobs.Records.of(self.succeeded, self.failed, self.skipped)

    def results(self, lines: Sequence[bytes]) -> None:
        """Append lines of results, given without line ends."""
        if lines:
            self._out.add(b"\n".join((*lines, b"")), len(lines))

    def printed(self, data: bytes) -> None:
        """Append data of results that includes its line ends."""
        self._out.add(data, data.count(b"\n"))

    def bad(self, line: int, reason: str, raw: bytes, *, input_: bool) -> None:
        """Report a bad record. `line`: its number, from 1. `input_`: whether the record itself is
        bad, rather than its result.

        Call this in the order of lines. Raises `RecordsRefused` if no record may be bad.
        """
        if self._errors is None:
            self._errors = self._open_errors()
        self._errors.add(report(line, reason, raw), 1)
        self.failed += 1
        if self._refuse:
            raise errors.RecordsRefused(f"line {line}: {reason[:MAX_REASON]}", input_=input_)

    def copy(self, pieces: Iterable[bytes], lines: int) -> None:
        """Append results that were written to another file before. `lines`: number of lines in
        them.
        """
        self._out.lines += lines
        for piece in pieces:
            self._out.add(piece, 0)

    def copy_errors(self, pieces: Iterable[bytes], lines: int) -> None:
        """Append reports of bad records that were written to another file before. `lines`: number
        of lines in them.

        They are not counted as records.
        """
        if self._errors is None and lines:
            self._errors = self._open_errors()
        if self._errors is not None:
            self._errors.lines += lines
            for piece in pieces:
                self._errors.add(piece, 0)

    def finish(self) -> tuple[filejobs.StoredFile, filejobs.StoredFile | None]:
        """Commit the file of results and, if there are bad records, the file of these to the
        store.
        """
        return self._out.finish(), self.finish_errors()

    def finish_errors(self) -> filejobs.StoredFile | None:
        """Commit only the file of bad records; return None if there are none."""
        return None if self._errors is None else self._errors.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._out.abort()
        if self._errors is not None:
            self._errors.abort()


def report(line: int, reason: str, raw: bytes) -> bytes:
    """Return the line of the errors file for a bad record.

    `raw` is the record as text. If the record is not UTF-8, that is an approximation, and `base64`
    has the exact bytes.
    """
    found: dict[str, object] = {"line": line, "reason": reason[:MAX_REASON]}
    try:
        found["raw"] = raw.decode()
    except UnicodeDecodeError:
        found["raw"] = raw.decode(errors="replace")
        found["base64"] = base64.b64encode(raw).decode()
    return _encode(found) + b"\n"
