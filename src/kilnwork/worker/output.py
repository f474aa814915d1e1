"""The output of one attempt, from its pipe to the dispatcher, with back-pressure.

Used by `attempt`. What the dispatcher has not kept yet is kept here, to be sent again on a new
link; beyond `KEPT_BYTES` the pipe is not read and the task waits, as it would for a slow disk. So a
task may print any amount without this process growing.
"""

import asyncio
import os
from collections.abc import Callable

from kilnwork.worker import lines, mirror

KEPT_BYTES = 1 << 20
"""Output of one attempt that may be unacknowledged (docs/decisions/0004)."""

READ_BYTES = 1 << 16
"""A pipe's worth, and well below the largest frame."""

SMALL_BYTES = 4096
LINGER_S = 0.005
"""After a read of less than `SMALL_BYTES` the pipe is left alone so long, so that a program that
writes line by line makes few frames, and not one for each line."""

_LAST_READS = 64
"""At the end at most so often: a process that could not be killed may go on printing."""

Send = Callable[[int, bytes], None]
"""Takes an offset and the data that begins there; does nothing while there is no link."""


class Output:
    """Reads `descriptor`, which it owns, until everything was read or `finish` was called."""

    def __init__(self, descriptor: int, *, send: Send, shared: mirror.Mirror) -> None:
        self._descriptor = descriptor
        self._send = send
        self._mirror = shared
        self._lines = lines.Lines(shared)
        self._loop = asyncio.get_running_loop()
        self._kept = bytearray()
        self._kept_from = 0
        self._open = True
        self._reading = False
        self._awaits_room = False
        self._lingers: asyncio.TimerHandle | None = None
        self._resume()

    def kept_up_to(self, offset: int) -> None:
        """The dispatcher has everything below `offset`."""
        count = min(offset - self._kept_from, len(self._kept))
        if count > 0:
            del self._kept[:count]
            self._kept_from += count
            self._resume()

    def send_again(self, offset: int) -> None:
        """A new link stands, and the dispatcher has everything below `offset`."""
        self.kept_up_to(offset)
        for start in range(0, len(self._kept), READ_BYTES):
            piece = bytes(self._kept[start : start + READ_BYTES])
            self._send(self._kept_from + start, piece)

    def finish(self) -> None:
        """Nothing of the attempt is left: read what is still in the pipe, and close it."""
        for _ in range(_LAST_READS):
            if not self._open or not self._read():
                break
        self._shut()
        self._lines.close()

    def _resume(self) -> None:
        if not self._open or self._reading or self._lingers is not None:
            return
        if len(self._kept) >= KEPT_BYTES:
            return  # until more is acknowledged
        if not self._mirror.full:
            self._reading = True
            self._loop.add_reader(self._descriptor, self._readable)
        elif not self._awaits_room:
            self._awaits_room = True
            self._mirror.when_room(self._room)

    def _room(self) -> None:
        self._awaits_room = False
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
        if len(self._kept) >= KEPT_BYTES or self._mirror.full:
            self._pause()
            self._resume()  # as soon as there is room again
        elif self._read() < SMALL_BYTES and self._open:
            self._linger()

    def _read(self) -> int:
        """Pass on one piece; its length, 0 when there is none now."""
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:
            return 0
        if not data:
            self._shut()
            return 0
        offset = self._kept_from + len(self._kept)
        self._kept += data
        self._lines.write(data)
        self._send(offset, data)
        return len(data)

    def _shut(self) -> None:
        if self._open:
            self._pause()
            self._open = False
            os.close(self._descriptor)
            if self._lingers is not None:
                self._lingers.cancel()
