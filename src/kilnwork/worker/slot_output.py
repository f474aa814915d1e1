"""The output of a slot's process, assigned to the call that printed it and sent to the dispatcher.

Used by `slot_session`. File descriptors 1 and 2 are one pipe, which is read here: at the end of
each call, since the next one may print then, and from time to time while a call runs. The agent has
the read end too, and reads what a slot that died has left. Output goes to the dispatcher and, line
by line, to the worker's own standard output. A call that prints faster than output can be sent does
not block: its oldest output is dropped, the end is kept, and its log says how many bytes are
missing.
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
PIPE_BYTES = 1 << 20
"""So much may be printed at once before it has to be read; Linux allows it to every user."""

KEPT_BYTES = 1 << 20
"""Of what was sent last, to be sent again on a new connection."""

AWAY_BYTES = KEPT_BYTES // 2
"""So much is read while it cannot be sent."""

MAX_READ_BYTES = 16 << 20
"""At one look: a process may print faster than we read."""

TAIL_BYTES = 8 << 20
"""Of what is read and not passed on yet. What is older is dropped, while the link takes some."""

BUSY_BYTES = 256 * 1024
"""Read at one look: more will be there at once. Meanwhile so much is passed on at each look."""

WHOLE_BYTES = 16 << 20
"""After so much of one call, which is what a log holds, output is passed on only now and then while
much is printed: the call waits whenever its pipe is full, and it is not read meanwhile."""

PIECE_S = 0.01
PACE_S = 0.05
PACE_SHARE = 4
"""Then that takes about so long each time, with a pause between of `PACE_S` or of so many times
what it took: the worker's own output may have a slow reader, such as a node that keeps the Pod's
log."""

STDOUT_TAIL_BYTES = 1 << 20
"""Where output was dropped, so much of the end goes to the worker's own output."""

BUSY_MS = 1
MAX_PAUSES = 16
"""A look goes on as long as much comes so soon, but the link and the call have other needs too."""

_STDOUT, _STDERR = 1, 2


class SlotOutput:
    """Reader of a slot's output; see the module. Every method needs `SlotCalls.lock`.

    `pipe`: both ends, which it owns. `send` sends output; `room` returns whether the dispatcher
    reads.
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
        # Before `_attach`, which replaces descriptor 1.
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
        # Tells the pipe from what a call may have put in place of its descriptors.
        self._inode = os.fstat(writing).st_ino
        self._nothing = select.poll()
        self._attach()

    def settle(self, level: slot_call_table.StackLevel) -> bool:
        """Assign all output so far to an attempt that has just ended; return whether there was any
        output.
        """
        try:
            self._out.flush()
            self._err.flush()
        except (OSError, ValueError):
            # A call may have closed them.
            self._attach()
        fcntl.ioctl(self._reading, termios.FIONREAD, self._count)
        if not self._count[0] and not self._page.is_spilled and not self._late:
            return False
        self._take(level, MAX_READ_BYTES)
        self._pass_on(level, self._late_bytes)
        self._lines.close()
        return True

    def drain_some(self, level: slot_call_table.StackLevel) -> bool:
        """Send some output of the running attempt; return True if there is so much that the caller
        should call again at once.

        It may have to wait until there is room to send, while the pipe is full.
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
        """Send as much waiting output as `PIECE_S` allows, if it is time for that.

        A slow reader of the worker's own output blocks this thread, and with it the call once its
        pipe is full.
        """
        began = self._monotonic()
        if began >= self._next_piece_at:
            self._pass_on(level, most, until=began + PIECE_S)
            ended = self._monotonic()
            self._next_piece_at = ended + max(PACE_S, PACE_SHARE * (ended - began))

    def _take(self, level: slot_call_table.StackLevel, most: int) -> int:
        """Read output, up to a limit, from the agent's spill and from the pipe; return the number
        of bytes.
        """
        count = 0
        with self._page.locked():
            # First the spill, which was taken from the pipe before what is there now.
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
        skipped = 0  # of what the worker's own output would get
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
    """The worker's own standard output, which all slots share. Writes pieces so small that a pipe
    does not split them.
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
