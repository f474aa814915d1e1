"""The output of a slot's process, assigned to the call that printed it and sent to the dispatcher.

Used by `slot_session`. File descriptors 1 and 2 are one pipe, which is read here: from time to time
while a call runs, and at the end of each call, before the next one may print. The agent has the
read end too, and reads what a slot that died has left. Output goes to the dispatcher and, line by
line, to the worker's own standard output. A call that prints faster than its output can be sent
goes on: its oldest output is dropped, the end is kept, and its log says how many bytes are missing.
The call waits only while its pipe is full, above all when the dispatcher reads nothing.
"""

import array
import collections
import contextlib
import fcntl
import math
import os
import select
import stat
import sys
import termios
from collections.abc import Callable
from typing import TextIO

from kilnwork.api import attempts
from kilnwork.channel import messages
from kilnwork.worker import line_buffer, slot_call_table, slot_page

READ_BYTES = 1 << 16
"""Maximum bytes per read and per message."""
PIPE_BYTES = 1 << 20
"""Size of the pipe: how much may be printed before the pipe must be read. Linux allows this size to
every user.
"""

KEPT_BYTES = 1 << 20
"""Maximum bytes of sent output that are kept, to be sent again on a new connection; the newest are
kept.
"""

AWAY_BYTES = KEPT_BYTES // 2
"""Maximum bytes that are read while they cannot be sent; then the pipe fills, and the call
waits.
"""

MAX_READ_BYTES = 16 << 20
"""Maximum bytes that are read at a time: a process may print faster than the slot reads."""

TAIL_BYTES = 8 << 20
"""Maximum bytes that were read and wait to be sent; the oldest are dropped."""

BUSY_BYTES = 256 * 1024
"""A read of this many bytes means that more output will follow at once. Then only about this many
bytes are sent after each read.
"""

WHOLE_BYTES = 16 << 20
"""Bytes of one call's output, as many as a log holds, after which output is sent only in pieces
with pauses between them. The pipe is not read while a piece is sent, and the call waits whenever
its pipe is full.
"""

PIECE_S = 0.01
"""Maximum seconds that sending such a piece takes."""
PACE_S = 0.05
"""Minimum seconds between two such pieces."""
PACE_SHARE = 4
"""The pause after such a piece is at least this many times as long as sending it took: the worker's
own output may have a slow reader, such as a node that keeps the Pod's log.
"""

STDOUT_TAIL_BYTES = 1 << 20
"""Maximum bytes that are written to the worker's own output where output was dropped: those from
the end.
"""

BUSY_MS = 1
"""Milliseconds for which a read waits for more output from a busy call."""
MAX_PAUSES = 16
"""Maximum number of such waits per read: the link and the call need the thread too."""

_STDOUT, _STDERR = 1, 2


class SlotOutput:
    """Reader of a slot's output; see the module. Every method but `repair` needs `SlotCalls.lock`.

    `pipe`: read end and write end, which this object owns. `send`: sends output. `room`: returns
    whether the dispatcher reads what is sent.
    """

    def __init__(
        self,
        pipe: tuple[int, int],
        page: slot_page.SlotPage,
        *,
        send: Callable[[messages.Log], None],
        room: Callable[[], bool],
        monotonic: Callable[[], float],
    ) -> None:
        self._reading, self._writing = reading, writing = pipe
        self._page = page
        self._send = send
        self._room = room
        self._monotonic = monotonic
        self._next_piece_at = 0.0
        self._away_bytes = 0
        # Must precede `_attach`, which replaces descriptor 1.
        self._shared = SharedOutput(os.dup(_STDOUT))
        self._lines = line_buffer.Lines(self._shared)
        self._late: collections.deque[bytes] = collections.deque()
        self._late_bytes = 0
        self._dropped = 0
        self._kept: collections.deque[messages.Log] = collections.deque()
        self._kept_bytes = 0
        self._count = array.array("i", [0])
        self._out: TextIO
        self._err: TextIO
        with contextlib.suppress(OSError):  # EPERM: the user's limit for pipes is reached
            fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        # Its inode distinguishes the pipe from files that a call may put on descriptors 1 and 2.
        self._inode = os.fstat(writing).st_ino
        self._nothing = select.poll()
        self._attach()

    def settle(self, level: slot_call_table.StackLevel) -> bool:
        """Assign all output so far to an attempt, and send it; return whether there was any.

        Called when the attempt has ended, or waits while another runs on top of it.
        """
        try:
            self._out.flush()
            self._err.flush()
        except (OSError, ValueError):
            # A call may have closed these files.
            self._attach()
        fcntl.ioctl(self._reading, termios.FIONREAD, self._count)
        if not self._count[0] and not self._page.is_spilled and not self._late:
            return False
        self._take(level, MAX_READ_BYTES)
        self._pass_on(level, self._late_bytes)
        self._lines.close()
        return True

    def drain_some(self, level: slot_call_table.StackLevel) -> bool:
        """Read output of the running attempt, and send it.

        Return True if there is so much output that the caller should call again at once. While the
        dispatcher does not read, no more than `AWAY_BYTES` are read; then the call waits as soon as
        its pipe is full.
        """
        most = MAX_READ_BYTES
        if self._room():
            self._away_bytes = 0
        else:
            most = AWAY_BYTES - self._away_bytes
            if most <= 0:
                return False
        count = self._take(level, most)
        self._away_bytes += count
        busy = count >= BUSY_BYTES
        most = BUSY_BYTES if busy else self._late_bytes
        if level.printed <= WHOLE_BYTES:
            self._pass_on(level, most)
        else:
            self._pass_on_piece(level, most)
        return busy

    def _pass_on_piece(self, level: slot_call_table.StackLevel, most: int) -> None:
        """Send as much waiting output as `PIECE_S` allows, unless the pause after the last piece
        goes on.

        A slow reader of the worker's own output blocks this thread, and with it the call once its
        pipe is full.
        """
        began = self._monotonic()
        if began >= self._next_piece_at:
            self._pass_on(level, most, until=began + PIECE_S)
            ended = self._monotonic()
            self._next_piece_at = ended + max(PACE_S, PACE_SHARE * (ended - began))

    def _take(self, level: slot_call_table.StackLevel, most: int) -> int:
        """Read up to about `most` bytes of output, from the agent's spill and from the pipe; return
        their number.
        """
        count = 0
        with self._page.locked():
            # First the spill, whose output left the pipe before that which is in the pipe now.
            while data := self._page.fetch(READ_BYTES):
                count += self._add(level, data)
            pauses = 0
            while count < most and pauses < MAX_PAUSES:
                try:
                    data = os.read(self._reading, min(READ_BYTES, most - count))
                except BlockingIOError:
                    break
                count += self._add(level, data)
                if len(data) < READ_BYTES:
                    if count < BUSY_BYTES or (pauses and len(data) < READ_BYTES // 2):
                        break
                    pauses += 1
                    self._nothing.poll(BUSY_MS)
        return count

    def _add(self, level: slot_call_table.StackLevel, data: bytes) -> int:
        level.printed += len(data)
        self._late.append(data)
        self._late_bytes += len(data)
        while self._late_bytes > TAIL_BYTES:
            dropped = len(self._late.popleft())
            self._late_bytes -= dropped
            self._dropped += dropped
        return len(data)

    def _pass_on(
        self, level: slot_call_table.StackLevel, most: int, *, until: float = math.inf
    ) -> None:
        """Send about `most` bytes of waiting output, the oldest first; stop at the monotonic time
        `until`.
        """
        skipped = 0  # number of bytes that the worker's own output does not get
        if most and self._dropped:
            skipped = max(0, min(most, self._late_bytes) - STDOUT_TAIL_BYTES)
            self._lines.write(attempts.dropped_line(self._dropped + skipped))
            self._dropped = 0
        while self._late and most > 0 and self._monotonic() < until:
            data = self._late.popleft()
            offset = level.printed - self._late_bytes
            self._late_bytes -= len(data)
            most -= len(data)
            for at in range(0, len(data), READ_BYTES):
                piece = data[at : at + READ_BYTES]
                message = messages.Log(level.ref, offset + at, piece)
                self._keep(message)
                self._send(message)
                if skipped < len(piece):
                    self._lines.write(piece[skipped:])
                skipped = max(0, skipped - len(piece))

    def repair(self) -> None:
        """Restore descriptors 1 and 2, `sys.stdout` and `sys.stderr`, which a call may have
        replaced.
        """
        if sys.stdout is not self._out or sys.stderr is not self._err:
            sys.stdout, sys.stderr = self._out, self._err
        try:
            if os.fstat(_STDOUT).st_ino == os.fstat(_STDERR).st_ino == self._inode:
                return
        except OSError:
            pass
        self._attach()

    @property
    def kept_logs(self) -> list[messages.Log]:
        return list(self._kept)

    def _keep(self, message: messages.Log) -> None:
        self._kept.append(message)
        self._kept_bytes += len(message.data)
        while self._kept_bytes > KEPT_BYTES:
            self._kept_bytes -= len(self._kept.popleft().data)

    def _attach(self) -> None:
        """Connect descriptors 1 and 2 to the pipe again."""
        # dup2 makes both inheritable, as commands that the task starts expect.
        os.dup2(self._writing, _STDOUT)
        os.dup2(self._writing, _STDERR)
        self._out = _opened(_STDOUT)
        self._err = _opened(_STDERR)
        sys.__stdout__ = self._out  # type: ignore[assignment,misc]
        sys.__stderr__ = self._err  # type: ignore[assignment,misc]
        sys.stdout, sys.stderr = self._out, self._err


class SharedOutput:
    """The worker's own standard output, which all slots share.

    Writes pieces that are so small that a pipe does not split them.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._piece = select.PIPE_BUF
        self._dead = False
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                self._piece = 1 << 20
        except OSError:
            self._dead = True

    def write(self, data: bytes) -> None:
        """Write data to the worker's standard output; wait for a slow reader, and drop the data if
        the reader is gone.
        """
        while data and not self._dead:
            piece = data[: self._piece]
            if len(piece) < len(data) and b"\n" in piece:
                piece = piece[: piece.rindex(b"\n") + 1]
            try:
                written = os.write(self._descriptor, piece)
            except OSError:
                self._dead = True
                return
            data = data[written:]


def _opened(descriptor: int) -> TextIO:
    # `closefd=False`: a call that closes sys.stdout must not close descriptor 1.
    return open(
        descriptor,
        "w",
        buffering=1,
        encoding="utf-8",
        errors="backslashreplace" if descriptor == _STDERR else "surrogateescape",
        closefd=False,
    )
