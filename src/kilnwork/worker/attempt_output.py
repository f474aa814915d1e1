"""Transfer of the output of one attempt from its pipe to the dispatcher, without blocking the task.

Used by `attempt`. Output that the dispatcher has not acknowledged is kept here, to be sent again on
a new link. Once `KEPT_BYTES` are unacknowledged, further output waits here as well; if more than
`TAIL_BYTES` wait, the oldest are dropped. So a task that prints faster than its output can be
stored keeps running, and its log says how many bytes are missing. Nothing is dropped of the first
`WHOLE_BYTES`, nor while the dispatcher reads nothing: then the pipe is not read and the task
blocks, as it would on a slow disk. In either case this process does not grow.
"""

import asyncio
import collections
import contextlib
import fcntl
import os
from collections.abc import Callable

from kilnwork.api import attempts
from kilnwork.worker import line_buffer, pod_log_writer

KEPT_BYTES = 1 << 20
"""Maximum bytes of an attempt's output that were sent and not acknowledged (docs/decisions/0004);
further output waits.
"""

READ_BYTES = 1 << 16
"""Maximum bytes per message, and per read of a pipe of the default size; well below the largest
frame.
"""

PIPE_BYTES = 1 << 20
"""Size of the pipe of a task that prints much, and maximum bytes per read of it; Linux allows this
size to every user.
"""

TAIL_BYTES = 2 << 20
"""Maximum bytes that wait to be sent when a task prints much. The oldest are dropped, so the end of
the output is kept in one piece.
"""

BEHIND_BYTES = TAIL_BYTES // 2
"""Number of waiting bytes at which output that may be dropped is sent only in pieces with pauses
between them. Reading the pipe comes first then; the pieces are for users who follow the log.
"""
BEHIND_S = 0.05
"""Seconds between two such pieces."""
BEHIND_PIECE_BYTES = 256 * 1024
"""Approximate bytes of such a piece."""

WHOLE_BYTES = 16 << 20
"""Number of bytes at the beginning of an output of which nothing is dropped, however slowly they
are stored: by default this is what a log holds.
"""

DROPPED_PER_BYTE = 256
"""Number of bytes that may be dropped for each byte that the dispatcher has stored. The ratio makes
a task wait for a dispatcher that is away, but does not slow down a task that only prints much.
"""

SMALL_BYTES = 4096
"""A read of fewer bytes is followed by a pause of `LINGER_S`."""
LINGER_S = 0.005
"""Seconds for which the pipe is not read after a short read, so that a program that writes line by
line does not cause a frame per line.
"""

_LAST_READS = 64
"""Maximum number of reads after the end of the attempt: a process that could not be killed may go
on printing.
"""

Send = Callable[[int, bytes], None]
"""Sends the data that begins at an offset of the output; does nothing while there is no link."""


class AttemptOutput:
    """The output of one attempt, read from a pipe until end of file or `finish`.

    `descriptor`: the read end of the pipe, which this object owns.
    """

    def __init__(self, descriptor: int, *, send: Send, shared: pod_log_writer.StdoutWriter) -> None:
        self._descriptor = descriptor
        self._send = send
        self._stdout = shared
        self._lines = line_buffer.Lines(shared)
        self._loop = asyncio.get_running_loop()
        self._kept: collections.deque[tuple[int, bytes]] = collections.deque()
        self._kept_bytes = 0
        self._kept_from = 0
        self._late: collections.deque[bytes | memoryview] = collections.deque()
        self._late_bytes = 0
        self._read_up_to = 0
        self._dropped = 0
        self._may_drop = 0
        self._is_enlarged = False
        self._open = True
        self._reading = False
        self._awaits_room = False
        self._lingers: asyncio.TimerHandle | None = None
        self._catching_up: asyncio.TimerHandle | None = None
        self._resume()

    def drop_below(self, offset: int) -> None:
        """Drop the output below `offset`, which the dispatcher has stored."""
        if offset <= self._kept_from:
            return
        while self._kept:
            start, data = self._kept[0]
            count = min(offset - start, len(data))
            if count <= 0:
                break
            self._kept_bytes -= count
            self._may_drop += count * DROPPED_PER_BYTE
            self._kept.popleft()
            if count < len(data):
                self._kept.appendleft((start + count, data[count:]))
        # At most what was read: a greater offset would make later acknowledgements look old.
        self._kept_from = min(offset, self._read_up_to)
        self._pass_on()
        self._resume()

    def send_again(self, offset: int) -> None:
        """Send the output at or above `offset` again, on a new link; the dispatcher has stored the
        rest.
        """
        self.drop_below(offset)
        for start, data in self._kept:
            self._send(start, data)

    def finish(self) -> None:
        """Read the remaining output from the pipe, and close the pipe.

        Call when no process of the attempt is left.
        """
        for _ in range(_LAST_READS):
            if not self._open or not self._read():
                break
        self._shut()
        if self._catching_up is not None:
            self._catching_up.cancel()
        self._send_late(self._late_bytes)
        self._lines.close()

    @property
    def _has_room(self) -> bool:
        """Return whether there is room to send more output."""
        return self._kept_bytes < KEPT_BYTES and not self._stdout.full

    @property
    def _drops(self) -> bool:
        """Return whether output beyond `TAIL_BYTES` may be dropped."""
        return self._may_drop > 0 and self._read_up_to >= WHOLE_BYTES

    def _resume(self) -> None:
        if not self._open or self._reading or self._lingers is not None:
            return
        if self._has_room or self._drops:
            self._reading = True
            self._loop.add_reader(self._descriptor, self._readable)
        elif self._kept_bytes < KEPT_BYTES:
            self._await_room()
        # otherwise `drop_below` resumes reading once more is acknowledged

    def _await_room(self) -> None:
        if not self._awaits_room:
            self._awaits_room = True
            self._stdout.when_room(self._room)

    def _room(self) -> None:
        self._awaits_room = False
        self._pass_on()
        self._resume()

    def _linger(self) -> None:
        self._pause()
        self._lingers = self._loop.call_later(LINGER_S, self._lingered)

    def _lingered(self) -> None:
        self._lingers = None
        self._resume()

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._descriptor)

    def _readable(self) -> None:
        # Output of other attempts may have filled the worker's standard output since.
        if not self._has_room and not self._drops:
            self._pause()
            self._resume()
            return
        count = self._read()
        self._pass_on()
        if count < SMALL_BYTES and self._open:
            self._linger()
        elif count == READ_BYTES and self._drops and not self._is_enlarged:
            self._is_enlarged = True
            with contextlib.suppress(OSError):  # EPERM: the user's limit for pipes is reached
                fcntl.fcntl(self._descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def _read(self) -> int:
        """Read one piece of output from the pipe; return its length, 0 if there is nothing to read
        now.
        """
        try:
            data = os.read(self._descriptor, READ_BYTES if not self._is_enlarged else PIPE_BYTES)
        except BlockingIOError:
            return 0
        if not data:
            self._shut()
            return 0
        self._read_up_to += len(data)
        self._late.append(data)
        self._late_bytes += len(data)
        while self._late_bytes > TAIL_BYTES:
            dropped = len(self._late.popleft())
            self._late_bytes -= dropped
            self._dropped += dropped
            self._may_drop = max(0, self._may_drop - dropped)
        return len(data)

    def _pass_on(self) -> None:
        """Send the waiting output as far as there is room: immediately, or in pieces from time to
        time if much output waits.
        """
        if self._late_bytes < BEHIND_BYTES or not self._drops:
            while self._late and self._has_room:
                self._send_late(1)
        elif self._catching_up is None:
            self._catching_up = self._loop.call_later(BEHIND_S, self._catch_up)
        if self._late and self._kept_bytes < KEPT_BYTES and self._stdout.full:
            self._await_room()

    def _catch_up(self) -> None:
        self._catching_up = None
        if self._has_room:
            self._send_late(BEHIND_PIECE_BYTES)
        self._pass_on()
        self._resume()

    def _send_late(self, most: int) -> None:
        """Send about `most` bytes of waiting output, and keep them until they are acknowledged."""
        # The line about dropped output stands at the gap: after what was sent, before what follows.
        if self._late and self._dropped:
            self._lines.write(attempts.dropped_line(self._dropped))
            self._dropped = 0
        while self._late and most > 0:
            first = self._late.popleft()
            if len(first) > READ_BYTES:
                # A slice of bytes would copy the rest again for each piece; a memoryview does not.
                view = memoryview(first)
                self._late.appendleft(view[READ_BYTES:])
                first = view[:READ_BYTES]
            data = bytes(first)
            offset = self._read_up_to - self._late_bytes
            self._late_bytes -= len(data)
            most -= len(data)
            self._kept.append((offset, data))
            self._kept_bytes += len(data)
            self._lines.write(data)
            self._send(offset, data)

    def _shut(self) -> None:
        if self._open:
            self._pause()
            self._open = False
            # After `_pause`: the loop must not watch a descriptor number that may be reused.
            os.close(self._descriptor)
            if self._lingers is not None:
                self._lingers.cancel()
