"""Running of a command with pipes: writes its stdin, and reads its stdout and reports, in one
thread.

Used by `command_mappers` and `reduce`. While we wait to write, we read the available output, so
that full pipes cannot block both sides. Memory is bounded by one piece of input and one piece of
output. The command runs in a session of its own and shares our stderr, which is the log of the
task. `close` ends every process that the command started, however it detached itself: such
processes are found by a marker in the environment (`kit.processes`).
"""

import contextlib
import fcntl
import os
import select
import shlex
import shutil
import signal
import struct
import termios
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from kilnwork.jobs.work import errors
from kilnwork.kit import clock as clocks
from kilnwork.kit import processes

PIPE_BYTES = 1 << 20
"""Requested size of pipes, which Linux allows any user to have."""

READ_BYTES = 1 << 18
TURN_MS = 100
"""Maximum delay in milliseconds until a request to stop is noticed while the command computes."""

PATIENCE_S = 10.0
"""How many seconds without output we wait, after the command has exited, for a process that it
started and that still holds its stdout."""

MARKER = "KILN_COMMAND_ID"
REPORTS = 3
"""Number of the file descriptor to which the command may write reports of bad records."""

_ABOVE = 16
"""Minimum number of the file descriptors of our ends of pipes; those of the command are lower."""

_RESET_SIGNALS = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
"""Signals that are reset for the command, which would otherwise ignore those that Python, or a
function that ran here before, ignores."""

_ROUNDS = 50
"""Maximum number of searches for processes that the command has left."""

_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


class Receiver(Protocol):
    """Receiver of the output and the reports of a command."""

    def printed(self, data: bytes) -> None:
        """Process data from the command's stdout."""
        ...

    def reported(self, data: bytes) -> None:
        """Process data that the command wrote to file descriptor 3."""
        ...


class Piped:
    """A running command. Call `write` with all its input, then `finish`; call `close` in any case.

    `check` is called at least every 100 ms while we wait, and may raise. Raises `MapperUnusable` if
    the command cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        receiver: Receiver,
        *,
        clock: clocks.Clock,
        check: Callable[[], None],
    ) -> None:
        self._name = shlex.join(command)[:200]
        self._receiver = receiver
        self._clock = clock
        self._check = check
        self._marker = f"{MARKER}={os.urandom(8).hex()}"
        self._before = set(processes.children(os.getpid()))
        self._code: int | None = None
        with contextlib.ExitStack() as theirs:
            stdin, self._stdin = _pipe(theirs)
            self._stdout, stdout = _pipe(theirs, reading=True)
            self._reports, reports = _pipe(theirs, reading=True)
            # a reading end of our own shows what the command has not read
            self._unread = fcntl.fcntl(stdin, fcntl.F_DUPFD_CLOEXEC, _ABOVE)
            try:
                self._pid = self._start(command, environment, (stdin, stdout, reports))
            except BaseException:
                self._close_pipes()
                raise
        self._watch = os.pidfd_open(self._pid)  # needs Linux 5.3
        named = processes.identify(self._pid)
        self._began = 0 if named is None else named.started
        self._poll = select.poll()
        self._poll.register(self._watch, select.POLLIN)
        for descriptor in (self._stdout, self._reports):
            self._poll.register(descriptor, select.POLLIN)
        self._open = {self._stdout, self._reports}
        os.set_blocking(self._stdin, False)

    def write(self, data: bytes) -> None:
        """Write data to the command's stdin. Raises `CommandFailed` if the command has exited."""
        left = memoryview(data)
        while left:
            if self._code is not None:
                raise self._failure(len(left))
            with contextlib.suppress(BlockingIOError):
                left = left[os.write(self._stdin, left) :]
            self._turn(writing=bool(left), wait=bool(left))

    def finish(self) -> None:
        """Close the command's stdin, and wait until the command has exited and its output is
        complete.

        Raises `CommandFailed` unless it exits with code 0 and has read all its input.
        """
        os.close(self._stdin)
        self._stdin = -1
        while self._code is None:
            self._turn(writing=False, wait=True)
        last = self._clock.monotonic()
        while self._stdout in self._open and not self._code:
            if self._turn(writing=False, wait=True):
                last = self._clock.monotonic()
            elif self._clock.monotonic() - last > PATIENCE_S:
                raise errors.CommandFailed(
                    f"{self._name} exited, but something that it started keeps its stdout open: "
                    "have it wait for that, or redirect its output"
                )
        while not self._code and self._turn(writing=False, wait=False):
            pass  # read the last reports
        unread = self._unread_bytes()
        if self._code or unread:
            raise self._failure(unread)

    def close(self) -> None:
        """Kill all remaining processes of the command, and close the pipes. May be repeated."""
        if self._watch >= 0:
            os.close(self._watch)
            self._watch = -1
            self._kill()
        self._close_pipes()

    def _start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        ends: tuple[int, int, int],
    ) -> int:
        stdin, stdout, reports = ends
        name, value = self._marker.split("=")
        try:
            return os.posix_spawnp(
                shutil.which(command[0], path=environment.get("PATH")) or command[0],
                list(command),
                {**environment, name: value},
                file_actions=(
                    (os.POSIX_SPAWN_DUP2, stdin, 0),
                    (os.POSIX_SPAWN_DUP2, stdout, 1),
                    (os.POSIX_SPAWN_DUP2, reports, REPORTS),
                ),
                setsid=True,
                setsigmask=(),
                setsigdef=_RESET_SIGNALS,
            )
        except (OSError, ValueError) as error:
            raise errors.MapperUnusable(
                f"the command {self._name} cannot be started: {error}. Give a program that the "
                "workers have, by its path or from their PATH"
            ) from error

    def _turn(self, *, writing: bool, wait: bool) -> bool:
        """Read available output and reports; return whether there was anything to read. With
        `wait`, wait up to `TURN_MS` for an event.
        """
        self._check()
        if writing:
            self._poll.register(self._stdin, select.POLLOUT)
        try:
            ready = self._poll.poll(TURN_MS if wait else 0)
        finally:
            if writing:
                self._poll.unregister(self._stdin)
        got = False
        for descriptor, _ in ready:
            if descriptor == self._watch:
                self._note_exit()
            elif descriptor in self._open:
                got = self._take(descriptor) or got
        return got

    def _take(self, descriptor: int) -> bool:
        data = os.read(descriptor, READ_BYTES)
        if not data:
            self._open.discard(descriptor)
            self._poll.unregister(descriptor)
            return False
        if descriptor == self._stdout:
            self._receiver.printed(data)
        else:
            self._receiver.reported(data)
        return True

    def _note_exit(self) -> None:
        """Record how the command exited. The process is reaped in `close`, so that no other process
        gets its pid before.
        """
        self._poll.unregister(self._watch)
        try:
            found = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            found = None
        if found is None:
            raise errors.CommandFailed(
                f"{self._name} is gone, and how it ended is not known: was SIGCHLD ignored, or "
                "did something else wait for it?"
            )
        died = found.si_code != os.CLD_EXITED
        self._code = -found.si_status if died else found.si_status

    def _failure(self, unread: int) -> errors.CommandFailed:
        code = self._code or 0
        if code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
            if code == -signal.SIGKILL:
                how += ": by another process, or by the kernel because memory was short"
        elif code:
            how = f"ended with exit code {code}: what it wrote to stderr is in the task's log"
        else:
            how = (
                f"ended with exit code 0, but did not read the last {unread} bytes or more of its "
                "input: a mapper must read all of it"
            )
        return errors.CommandFailed(f"{self._name} {how}")

    def _unread_bytes(self) -> int:
        raw = fcntl.ioctl(self._unread, termios.FIONREAD, bytes(4))
        count: int = struct.unpack("i", raw)[0]
        return count

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(
                self._pid, signal.SIGKILL
            )  # all at once, before a shell reports on its children
        processes.kill_members(self._pid, marker=self._marker)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        for _ in range(_ROUNDS):  # orphans without the marker are our children now
            stats = processes.read_all()
            orphans = {pid for pid, stat in stats.items() if stat.parent == os.getpid()}
            orphans = {one for one in orphans - self._before if stats[one].started >= self._began}
            if not orphans:
                return
            processes.signal_all(orphans | processes.descendants_in(orphans, stats), signal.SIGKILL)
            for pid in orphans:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def _close_pipes(self) -> None:
        for name in ("_stdin", "_stdout", "_reports", "_unread"):
            descriptor = getattr(self, name)
            if descriptor >= 0:
                os.close(descriptor)
                setattr(self, name, -1)


def _pipe(theirs: contextlib.ExitStack, *, reading: bool = False) -> tuple[int, int]:
    """Create a pipe, and return both ends, moved above the descriptors of the command.

    `theirs` closes the end of the command. `reading`: whether our end is the one to read from.
    """
    ends = os.pipe()
    moved = []
    for end in ends:
        moved.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _ABOVE))
        os.close(end)
    theirs.callback(os.close, moved[1 if reading else 0])
    with contextlib.suppress(OSError):  # the user has too many large pipes already
        fcntl.fcntl(moved[0], fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return moved[0], moved[1]
