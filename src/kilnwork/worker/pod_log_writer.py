"""Copies of the tasks' output on the worker's standard output, for `kubectl logs` of its Pod.

Used by `attempt_output`, and by `slots` for the last output of slots. The writer is given whole
lines, so that those of concurrent tasks do not mix. A write must never block the event loop:
otherwise a slow reader of the Pod's log would keep the worker from renewing its lease. So at most
`PIPE_BUF` bytes are written to a pipe at a time, and only when poll(2) reports room. While much
output waits here, the output of a task is not read, so that the task blocks when it writes; or its
oldest output is dropped, if it has printed so much that `attempt_output` may do so.
"""

import asyncio
import collections
import os
import select
import stat
from collections.abc import Callable

FULL_BYTES = 256 * 1024
"""Number of waiting bytes from which on the writer is `full`."""

_PIECE = select.PIPE_BUF


class StdoutWriter:
    """Writer to `descriptor` that never blocks; once its reader is gone, it drops all data.

    The descriptor's flags are left alone: other processes that have the descriptor share them.
    """

    def __init__(self, descriptor: int = 1) -> None:
        self._descriptor = descriptor
        self._waiting: collections.deque[bytes] = collections.deque()
        self._bytes = 0
        self._on_room: list[Callable[[], None]] = []
        self._watching = False
        self._poll = select.poll()
        self._dead = False
        self._never_blocks = False
        try:
            # A regular file is always writable, and epoll refuses it (EPERM).
            self._never_blocks = stat.S_ISREG(os.fstat(descriptor).st_mode)
            self._poll.register(descriptor, select.POLLOUT)
        except OSError:
            self._dead = True

    @property
    def full(self) -> bool:
        """Return whether so much output waits that no more should be written; `when_room` reports
        the end of this state.
        """
        return self._bytes >= FULL_BYTES

    def when_room(self, call: Callable[[], None]) -> None:
        """Register `call`, which is called once when the writer is no longer full."""
        self._on_room.append(call)

    def write(self, data: bytes) -> None:
        """Write `data` now, or as soon as there is room."""
        if self._dead or not data:
            return
        self._waiting.append(data)
        self._bytes += len(data)
        if not self._watching:
            self._push()

    def close(self) -> None:
        """Stop writing; output that still waits is lost."""
        self._watch(False)
        self._forget()

    def _push(self) -> None:
        try:
            while self._waiting and self._has_room():
                data = self._waiting.popleft()
                written = os.write(self._descriptor, data if self._never_blocks else data[:_PIECE])
                self._bytes -= written
                if written < len(data):
                    self._waiting.appendleft(data[written:])
        except OSError:
            self._dead = True
            self._forget()
        self._watch(bool(self._waiting))
        if not self.full and self._on_room:
            # Exchange the list first: a callback may register itself again.
            calls, self._on_room = self._on_room, []
            for call in calls:
                call()

    def _has_room(self) -> bool:
        return self._never_blocks or bool(self._poll.poll(0))

    def _watch(self, wanted: bool) -> None:  # noqa: FBT001  a state, not a switch
        if wanted == self._watching:
            return
        self._watching = wanted
        loop = asyncio.get_running_loop()
        if wanted:
            loop.add_writer(self._descriptor, self._push)
        else:
            loop.remove_writer(self._descriptor)

    def _forget(self) -> None:
        self._waiting.clear()
        self._bytes = 0
