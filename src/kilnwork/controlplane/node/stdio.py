"""The shim's ends of the standard input, output and error of one container.

Output passes through named pipes that the container holds open for reading *and* writing, so that
it gets no SIGPIPE and loses no line while one shim is replaced by the next (except for what a
killed shim had read and not yet written). A container with `tty` has a pseudo-terminal instead, and
a container with `stdin` has a pipe. The other ends of these belong to the shim alone, so such
containers see the end of their input, or SIGHUP, when the shim is killed. Standard library only.
"""

import contextlib
import os
from pathlib import Path

STREAMS = ("stdout", "stderr")


class Stdio:
    """The shim's ends for one start of a container.

    The named pipes are `NUMBER.stdout` and `NUMBER.stderr` in `directory`.
    """

    def __init__(self, directory: Path, number: int) -> None:
        self._directory = directory
        self._number = number
        self.pipes: dict[int, str] = {}
        """Read ends of the output → name of the stream; the shim closes them."""
        self._input = -1
        self._once = False

    def open(self, *, stdin: bool, once: bool, tty: bool) -> tuple[int, int, int]:
        """Create pipes or a terminal. Return the container's three descriptors.

        The caller closes each descriptor once. Raises OSError without leaving anything open.
        """
        self._once = once
        ends: list[int] = []
        try:
            if tty:
                self._open_terminal(ends)
            else:
                ends.append(self._open_input() if stdin else os.open(os.devnull, os.O_RDONLY))
                ends += (self._open_pipe(stream) for stream in STREAMS)
        except OSError:
            close([*ends, *self.pipes])
            self.pipes.clear()
            self.close()
            raise
        return ends[0], ends[1], ends[2]

    def _open_terminal(self, ends: list[int]) -> None:
        ours, theirs = os.openpty()
        ends += (theirs, theirs, theirs)
        os.set_blocking(ours, False)
        self.pipes[ours] = STREAMS[0]
        # A copy, since the shim itself closes the read end at the end of the output.
        self._input = os.dup(ours)

    def _open_input(self) -> int:
        theirs, self._input = os.pipe()
        return theirs

    def _open_pipe(self, stream: str) -> int:
        """Create a named pipe and keep its read end. Return the descriptor for the container."""
        path = self._path(stream)
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
        # Without O_NONBLOCK this open would wait for a writer; O_RDWR below never waits (fifo(7)).
        self.pipes[os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)] = stream
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def adopt(self) -> None:
        """Take over the named pipes of an earlier shim."""
        for stream in STREAMS:
            # There are no pipes if the container had a terminal or has ended.
            with contextlib.suppress(OSError):
                pipe = os.open(self._path(stream), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                self.pipes[pipe] = stream

    def lend_input(self) -> int | None:
        """Return a copy of our end of the input, or None if there is none.

        The writer who gets the copy closes it. With `once`, it is the last copy: when the writer
        closes it, the container sees the end of its input.
        """
        if self._input < 0:
            return None
        lent = os.dup(self._input)
        if self._once:
            self._close_input()
        return lent

    def close(self) -> None:
        """Close the input and remove the names of the pipes.

        The shim closes the read ends at end of file.
        """
        self._close_input()
        for stream in STREAMS:
            self._path(stream).unlink(missing_ok=True)

    def _close_input(self) -> None:
        if self._input >= 0:
            os.close(self._input)
            self._input = -1

    def _path(self, stream: str) -> Path:
        return self._directory / f"{self._number}.{stream}"


def close(descriptors: tuple[int, ...] | list[int]) -> None:
    # For a terminal, all three descriptors are the same.
    for descriptor in set(descriptors):
        os.close(descriptor)
