"""The page: memory that a slot and the agent share, with what runs in the slot.

The slot writes it, the agent reads it when the slot has died, so that only the attempt that ran is
blamed. There are two records and a byte that says which one counts: the slot fills the other one
and then flips the byte, so whatever ends it in between, the agent reads a whole record.

Behind the page is the *spill*: output that the agent has read from the slot's pipe because the slot
could not, for the slot to read later, so that it remains the one who passes output on, in order.
The one that reads from the pipe holds the page's lock.
"""

import contextlib
import fcntl
import mmap
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from kilnwork.api import attempts
from kilnwork.kit import ids

PAGE_BYTES = mmap.PAGESIZE
MAX_SPILLED_BYTES = 64 << 20
"""Of one slot, in all its life; it is memory."""

_NUMBER = struct.Struct("=Q")
_SPILLED_FLAG = 1
_SPILLED, _FETCHED = 8, 16
_RECORDS = (64, 128)
_RECORD = struct.Struct("=16sIIdQ")
_NO_ATTEMPT = bytes(16)


class RunningAttempt(NamedTuple):
    """What runs: `started` wall clock, seconds; `printed` bytes of its output are dealt with."""

    ref: attempts.AttemptRef
    started: float
    printed: int


def create_page() -> int:
    """The descriptor of a new page; close-on-exec. Raises OSError."""
    descriptor = os.memfd_create("kiln-page", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, PAGE_BYTES)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class SlotPage:
    """A page that is mapped; it owns its descriptor."""

    __slots__ = ("_active", "_descriptor", "_memory", "_pack")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._memory = mmap.mmap(descriptor, PAGE_BYTES)
        self._active = self._memory[0]
        self._pack = _RECORD.pack_into

    # the slot

    def write(self, ref: attempts.AttemptRef, started: float, printed: int = 0) -> None:
        """This attempt runs now."""
        spare = 1 - self._active
        self._pack(self._memory, _RECORDS[spare], ref.task, ref.run, ref.attempt, started, printed)
        self._memory[0] = self._active = spare

    def clear(self) -> None:
        spare = 1 - self._active
        self._pack(self._memory, _RECORDS[spare], _NO_ATTEMPT, 0, 0, 0.0, 0)
        self._memory[0] = self._active = spare

    @property
    def is_spilled(self) -> int:
        """Not 0 if something may be there to `fetch`."""
        return self._memory[_SPILLED_FLAG]

    def fetch(self, most: int) -> bytes:
        """At most so much of what was spilled, once; empty when there is no more."""
        at, end = self._number(_FETCHED), self._number(_SPILLED)
        if at == end:
            self._memory[_SPILLED_FLAG] = 0
            return b""
        data = os.pread(self._descriptor, min(most, end - at), PAGE_BYTES + at)
        _NUMBER.pack_into(self._memory, _FETCHED, at + len(data))
        return data

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep the agent from reading the pipe meanwhile. Ends with the process at the latest."""
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    # the agent

    def read(self) -> RunningAttempt | None:
        """What runs, or ran when the writer died."""
        record = _RECORD.unpack_from(self._memory, _RECORDS[self._memory[0] & 1])
        task, run, attempt, started, printed = record
        if task == _NO_ATTEMPT:
            return None
        return RunningAttempt(attempts.AttemptRef(ids.TaskId(task), run, attempt), started, printed)

    def spill(self, pipe: int, most: int) -> None:
        """Read from the pipe and keep it for the slot. Raises OSError."""
        self._memory[_SPILLED_FLAG] = 1
        at, data = self._number(_SPILLED), os.read(pipe, most)
        os.pwrite(self._descriptor, data, PAGE_BYTES + at)
        _NUMBER.pack_into(self._memory, _SPILLED, at + len(data))

    @property
    def has_room(self) -> bool:
        return self._number(_SPILLED) < MAX_SPILLED_BYTES

    def try_lock(self) -> bool:
        """False if the slot reads from its pipe just now; else `unlock` it soon."""
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self) -> None:
        """The slot may read from its pipe again."""
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._descriptor)
        with contextlib.suppress(BufferError):
            self._memory.close()

    def _number(self, offset: int) -> int:
        number: int = _NUMBER.unpack_from(self._memory, offset)[0]
        return number
