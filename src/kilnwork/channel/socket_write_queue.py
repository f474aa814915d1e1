"""A queue of bytes for a socket: any thread may put and write, and neither call blocks.

Used by `channel.blocking_link`. Keeps the order of `put`. Bytes that the socket does not take stay
queued, and `stuck` is true until the socket is writable again. While there is no socket, frames are
dropped: on the next socket, everything that matters is sent again.
"""

import contextlib
import socket
import threading
from collections.abc import Iterable


class Outbox:
    """A queue of frames for the current socket; see the module."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._frames: list[bytes] = []
        self._rest: memoryview | None = None
        self._socket: socket.socket | None = None
        self._holding = False
        self.waiting_bytes = 0
        self.stuck = False

    def put(self, frame: bytes) -> int:
        """Queue a frame for `write`; return the number of bytes that are queued now."""
        with self._lock:
            if self._socket is None and not self._holding:
                return 0
            self._frames.append(frame)
            self.waiting_bytes += len(frame)
            return self.waiting_bytes

    def hold(self) -> None:
        """Keep frames although there is no socket; `open` writes them after `first`."""
        with self._lock:
            self._holding = True

    def open(self, to: socket.socket, first: Iterable[bytes]) -> None:
        """Write to the non-blocking socket `to` from now on, `first` before all other frames."""
        with self._lock:
            self._frames[:0] = first
            self.waiting_bytes = sum(map(len, self._frames))
            self._socket, self._holding = to, False

    def shut(self) -> None:
        """Forget the socket and all unwritten frames."""
        with self._lock:
            self._socket, self._rest, self.stuck, self._holding = None, None, False, False
            self._frames.clear()
            self.waiting_bytes = 0

    def write(self) -> None:
        """Write as many bytes as the socket takes.

        Errors are ignored here: the thread that reads the socket notices them.
        """
        # Without the lock: most calls find nothing to write.
        if not self._frames and self._rest is None:
            return
        with self._lock:
            try:
                self._write()
            except BaseException:
                # After Ctrl-C it is unknown how much was sent. A shutdown makes the reader
                # reconnect.
                if self._socket is not None:
                    with contextlib.suppress(OSError):
                        self._socket.shutdown(socket.SHUT_RDWR)
                raise

    def _write(self) -> None:
        to = self._socket
        while to is not None and (self._rest is not None or self._frames):
            # The rest of a partial send goes first: frames must not be interleaved.
            if self._rest is None:
                self._rest = memoryview(b"".join(self._frames))
                self._frames.clear()
            try:
                # CPython ignores SIGPIPE, but the program that uses this library may have restored
                # it.
                sent = to.send(self._rest, socket.MSG_NOSIGNAL)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError:
                # Counted as sent: the reader gets the error too, and the next connection sends
                # again.
                sent = len(self._rest)
            self.waiting_bytes -= sent
            self.stuck = sent < len(self._rest)
            self._rest = self._rest[sent:] if self.stuck else None
            if self.stuck:
                return
        self.waiting_bytes = 0
