"""The bad records of a mapped file, which are read one part at a time.

Public as `kilnwork.files.BadRecords`, the type of `Mapped.errors`. Nothing is cached, since the bad
records can be as large as the file.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NotRequired, TypedDict, overload

import msgspec

from kilnwork.files import part_work


class BadRecord(TypedDict):
    """A record of the file without a result.

    `line`: the number of its line in the file, from 1. `reason`: why it has no result, in up to
    1000 characters. `raw`: the record as text; `base64`: its bytes, only if they are not UTF-8.
    """

    line: int
    reason: str
    raw: str
    base64: NotRequired[str]


class BadRecords(Sequence[BadRecord]):
    """The bad records of a mapped file, in the order of the file.

    They can be iterated any number of times: only the bad records of one part are in memory at a
    time. `len` counts them without reading them. All operations wait for the parts and raise the
    errors of failed parts.
    """

    def __init__(self, done: Callable[[], Iterator[part_work.Done]]) -> None:
        self._done = done

    def __iter__(self) -> Iterator[BadRecord]:
        for done in self._done():
            if done.records.failed:
                yield from _decoder.decode_lines(done.errors.value())

    def __len__(self) -> int:
        return sum(done.records.failed for done in self._done())

    @overload
    def __getitem__(self, index: int) -> BadRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[BadRecord]: ...
    def __getitem__(self, index: int | slice) -> BadRecord | list[BadRecord]:
        """Return one bad record, or the list of a slice; reads every bad record before it."""
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step > 0:
                return list(itertools.islice(self, start, stop, step))
            return list(self)[index]
        at = index if index >= 0 else len(self) + index
        for found in itertools.islice(self, at, None) if at >= 0 else ():
            return found
        raise IndexError(f"there are {len(self):,} bad records, no number {index}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __repr__(self) -> str:
        count = len(self)
        if not count:
            return "<BadRecords: none>"
        first = self[0]
        return f"<BadRecords: {count:,}, the first in line {first['line']}: {first['reason']}>"


_decoder = msgspec.json.Decoder(BadRecord)
