"""The page: one piece of memory of a slot and the agent, with what runs in the slot.

The slot writes it, the agent reads it when the slot has died, so that only the attempt that ran is
blamed. There are two records and a byte that says which one counts: the slot fills the other one
and then flips the byte, so whatever ends it in between, the agent reads a whole record.
"""

import contextlib
import mmap
import os
import struct
from typing import NamedTuple

from kilnwork.api import attempts
from kilnwork.kit import ids

SIZE = mmap.PAGESIZE
_RECORDS = (64, 128)
_RECORD = struct.Struct("=16sIIdQ")
_NOBODY = bytes(16)


class Top(NamedTuple):
    """What runs: `started` wall clock, seconds; `printed` bytes of its output are dealt with."""

    ref: attempts.AttemptRef
    started: float
    printed: int


def create() -> int:
    """The descriptor of a new page; close-on-exec. Raises OSError."""
    descriptor = os.memfd_create("kiln-page", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, SIZE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class Page:
    """A page that is mapped; the descriptor may be closed afterwards."""

    __slots__ = ("_active", "_memory", "_pack")

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, SIZE)
        self._active = self._memory[0]
        self._pack = _RECORD.pack_into

    def write(self, ref: attempts.AttemptRef, started: float, printed: int = 0) -> None:
        """This attempt runs now."""
        spare = 1 - self._active
        self._pack(self._memory, _RECORDS[spare], ref.task, ref.run, ref.attempt, started, printed)
        self._memory[0] = self._active = spare

    def clear(self) -> None:
        """Nothing runs."""
        spare = 1 - self._active
        self._pack(self._memory, _RECORDS[spare], _NOBODY, 0, 0, 0.0, 0)
        self._memory[0] = self._active = spare

    def read(self) -> Top | None:
        """What runs, or ran when the writer died."""
        record = _RECORD.unpack_from(self._memory, _RECORDS[self._memory[0] & 1])
        task, run, attempt, started, printed = record
        if task == _NOBODY:
            return None
        return Top(attempts.AttemptRef(ids.TaskId(task), run, attempt), started, printed)

    def close(self) -> None:
        """Unmap it."""
        with contextlib.suppress(BufferError):
            self._memory.close()
