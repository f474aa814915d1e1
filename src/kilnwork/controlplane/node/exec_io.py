"""The node's ends of the input and output of a process: pipes and terminals on the event loop.

Used by `execs` and `exec_link`. Nothing is buffered here: a slow reader makes the process wait, and
a process that does not read makes the writer wait.
"""

import asyncio
import contextlib
import fcntl
import os
import struct
import termios
from typing import NamedTuple

_PIECE = 64 * 1024


class _End:
    """A descriptor that is closed once. A coroutine that waits for it then sees the end."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._waiting: asyncio.Future[None] | None = None

    def close(self) -> None:
        if self._descriptor >= 0:
            # Comes before the close: the loop must not watch a number that is reused.
            self._stop()
            os.close(self._descriptor)
            self._descriptor = -1
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _stop(self) -> None:
        raise NotImplementedError

    def _ready(self) -> None:
        self._stop()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def _wait(self) -> None:
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None
            if self._descriptor >= 0:
                self._stop()


class ProcessOutput(_End):
    """Our end of a process's output, from which we read."""

    async def read(self) -> bytes:
        """Return the next piece, or b"" at the end. Only one coroutine may read at a time."""
        while self._descriptor >= 0:
            try:
                return os.read(self._descriptor, _PIECE)
            except BlockingIOError:
                asyncio.get_running_loop().add_reader(self._descriptor, self._ready)
                await self._wait()
            except OSError:  # EIO: no process has the terminal open
                return b""
        return b""

    def _stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)


class ProcessInput(_End):
    """Our end of a process's input, to which we write."""

    async def write(self, content: bytes) -> bool:
        """Write all of `content`. Return False if no process will read it."""
        while content and self._descriptor >= 0:
            try:
                content = content[os.write(self._descriptor, content) :]
            except BlockingIOError:
                asyncio.get_running_loop().add_writer(self._descriptor, self._ready)
                await self._wait()
            except OSError:
                return False
        return not content

    def resize(self, *, width: int, height: int) -> None:
        """Set the size of a terminal in characters. Its foreground processes get SIGWINCH."""
        # Rows come before columns in struct winsize (ioctl_tty(2)).
        size = struct.pack("HHHH", height & 0xFFFF, width & 0xFFFF, 0, 0)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, size)

    def _stop(self) -> None:
        asyncio.get_running_loop().remove_writer(self._descriptor)


def pipe_from() -> tuple[ProcessOutput, int]:
    """Return a pipe from a process: our end, and the descriptor for the process."""
    ours, theirs = os.pipe()
    return ProcessOutput(ours), theirs


def pipe_to() -> tuple[int, ProcessInput]:
    """Return a pipe to a process: the descriptor for the process, and our end."""
    theirs, ours = os.pipe()
    return theirs, ProcessInput(ours)


class Terminal(NamedTuple):
    """A pseudo-terminal: our end, once for each direction, and the descriptor for the process."""

    output: ProcessOutput
    input: ProcessInput
    theirs: int


def terminal() -> Terminal:
    """Return a new pseudo-terminal (pty(7)). Raises OSError without leaving anything open."""
    ours, theirs = os.openpty()
    try:
        copy = os.dup(ours)
    except OSError:
        os.close(ours)
        os.close(theirs)
        raise
    return Terminal(ProcessOutput(ours), ProcessInput(copy), theirs)
