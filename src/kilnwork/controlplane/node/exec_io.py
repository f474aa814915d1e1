"""Our ends of a process's input and output: pipes and terminals on the event loop.

Used by `execs` and `exec_link`. Nothing is buffered here: who reads slowly makes the process wait,
and a process that does not read makes the writer wait.
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
    """A descriptor that is closed once; who waits on it then sees its end."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._waiting: asyncio.Future[None] | None = None

    def close(self) -> None:
        if self._descriptor >= 0:
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


class Output(_End):
    """What a process writes."""

    async def read(self) -> bytes:
        """The next piece, empty at the end; one reader at a time."""
        while self._descriptor >= 0:
            try:
                return os.read(self._descriptor, _PIECE)
            except BlockingIOError:
                asyncio.get_running_loop().add_reader(self._descriptor, self._ready)
                await self._wait()
            except OSError:  # EIO: no process has the terminal open any more
                return b""
        return b""

    def _stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)


class Input(_End):
    """What a process reads."""

    async def write(self, content: bytes) -> bool:
        """Write all of it; False when no process will read it."""
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
        """Of a terminal, in characters; the process in it gets SIGWINCH."""
        size = struct.pack("HHHH", height & 0xFFFF, width & 0xFFFF, 0, 0)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, size)

    def _stop(self) -> None:
        asyncio.get_running_loop().remove_writer(self._descriptor)


def pipe_from() -> tuple[Output, int]:
    """A pipe out of a process: our end, and the one to give away."""
    ours, theirs = os.pipe()
    return Output(ours), theirs


def pipe_to() -> tuple[int, Input]:
    """A pipe into a process: the end to give away, and ours."""
    theirs, ours = os.pipe()
    return theirs, Input(ours)


class Terminal(NamedTuple):
    """Our end of a pseudo-terminal, once for each way, and the one to give away."""

    output: Output
    input: Input
    theirs: int


def terminal() -> Terminal:
    """A new pseudo-terminal (pty(7)). Raises OSError, with nothing left open."""
    ours, theirs = os.openpty()
    try:
        again = os.dup(ours)
    except OSError:
        os.close(ours)
        os.close(theirs)
        raise
    return Terminal(Output(ours), Input(again), theirs)
