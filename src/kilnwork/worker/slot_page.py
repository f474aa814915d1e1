"""The page: memory that a slot and the agent share, with a record of the attempt that runs in the
slot.

The slot writes the page. The agent reads it when the slot's pipe is full, and after the slot has
died, so that only the attempt that ran is blamed. The page has two records and a byte that says
which of them is valid: the slot fills the other record and then flips the byte, so the agent reads
a complete record whenever the slot dies.

After the page comes the *spill*: output that the agent has read from the slot's pipe because the
slot could not (native code held the interpreter lock). The slot reads it later, so that all output
still passes through the slot in order. The process that reads the pipe holds the page's lock.
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
"""Maximum bytes that are spilled in the whole life of one slot: the spill is in memory."""

_NUMBER = struct.Struct("=Q")
_SPILLED_FLAG = 1
_SPILLED, _FETCHED = 8, 16
_RECORDS = (64, 128)
_RECORD = struct.Struct("=16sIIdQ")
_NO_ATTEMPT = bytes(16)


class RunningAttempt(NamedTuple):
    """The attempt that runs in a slot.

    `started`: wall clock, in seconds. `printed`: bytes of its output already processed.
    """

    ref: attempts.AttemptRef
    started: float
    printed: int


def create_page() -> int:
    """Create a page; return its descriptor, close-on-exec. Raises OSError."""
    descriptor = os.memfd_create("kiln-page", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, PAGE_BYTES)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class SlotPage:
    """A page that is mapped into this process; owns its descriptor."""

    __slots__ = ("_active", "_descriptor", "_memory", "_pack")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._memory = mmap.mmap(descriptor, PAGE_BYTES)
        self._active = self._memory[0]
        self._pack = _RECORD.pack_into

    # the slot

    def write(self, ref: attempts.AttemptRef, started: float, printed: int = 0) -> None:
        """Record the attempt that runs now."""
        spare = 1 - self._active
        self._pack(self._memory, _RECORDS[spare], ref.task, ref.run, ref.attempt, started, printed)
        # This byte last: the agent sees either the old record or the new one.
        self._memory[0] = self._active = spare

    def clear(self) -> None:
        spare = 1 - self._active
        self._pack(self._memory, _RECORDS[spare], _NO_ATTEMPT, 0, 0, 0.0, 0)
        self._memory[0] = self._active = spare

    @property
    def is_spilled(self) -> int:
        """Return a nonzero number if there may be spilled output for `fetch`."""
        return self._memory[_SPILLED_FLAG]

    def fetch(self, most: int) -> bytes:
        """Remove and return up to `most` bytes of spilled output; empty when there is no more."""
        at, end = self._number(_FETCHED), self._number(_SPILLED)
        if at == end:
            self._memory[_SPILLED_FLAG] = 0
            return b""
        # pread, because agent and slot share the open file and so its position.
        data = os.pread(self._descriptor, min(most, end - at), PAGE_BYTES + at)
        _NUMBER.pack_into(self._memory, _FETCHED, at + len(data))
        return data

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock on the slot's pipe within the block, so that the agent does not read the
        pipe.

        The lock ends with the process.
        """
        # This is a record lock (fcntl(2)): closing any descriptor of the page would release it as
        # well.
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    # the agent

    def read(self) -> RunningAttempt | None:
        """Return the attempt that runs in the slot, or that ran when the slot died; None if none
        did.
        """
        record = _RECORD.unpack_from(self._memory, _RECORDS[self._memory[0] & 1])
        task, run, attempt, started, printed = record
        if task == _NO_ATTEMPT:
            return None
        return RunningAttempt(attempts.AttemptRef(ids.TaskId(task), run, attempt), started, printed)

    def spill(self, pipe: int, most: int) -> None:
        """Move up to `most` bytes from the slot's pipe to the spill, from which the slot reads them
        later.

        Raises OSError.
        """
        # The flag first: a slot that sees it too early finds nothing, which does no harm.
        self._memory[_SPILLED_FLAG] = 1
        at, data = self._number(_SPILLED), os.read(pipe, most)
        os.pwrite(self._descriptor, data, PAGE_BYTES + at)
        _NUMBER.pack_into(self._memory, _SPILLED, at + len(data))

    @property
    def has_room(self) -> bool:
        return self._number(_SPILLED) < MAX_SPILLED_BYTES

    def try_lock(self) -> bool:
        """Lock the slot's pipe and return True, or return False if the slot is reading it.

        Call `unlock` soon.
        """
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self) -> None:
        """Release the lock, so that the slot may read its pipe again."""
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._descriptor)
        with contextlib.suppress(BufferError):
            self._memory.close()

    def _number(self, offset: int) -> int:
        number: int = _NUMBER.unpack_from(self._memory, offset)[0]
        return number
