"""The child processes of a home, its dispatcher and its worker: starts, adopts and signals them.

Used by `home_supervisor`, `supervised_processes` and the two kinds of home. The processes run in
sessions of their own (setsid), so that Ctrl-C at the terminal reaches the driver only. A pidfd
reports the end of a process even if it is not our child: after a driver was killed, the next driver
takes over its home. posix_spawn(3) instead of `subprocess`: half the start-up time, and safe in a
program with threads.
"""

import contextlib
import fcntl
import os
import select
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kilnwork.kit import errors, processes

_LAST_LINES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The arguments for starting a process: `python -P -m MODULE ARGUMENTS`.

    `keep`: descriptors that the process inherits under their own numbers, 3 or more. `output`:
    descriptor that becomes its standard output; None: the log. Standard error goes to `log`,
    standard input is empty.
    """

    module: str
    arguments: Sequence[str] = ()
    environment: Mapping[str, str]
    keep: Sequence[int] = ()
    output: int | None = None
    log: Path


class Child:
    """A dispatcher or worker process, started by this driver or by an earlier driver of its
    home.
    """

    def __init__(self, identity: processes.ProcessId, *, log: Path) -> None:
        self.identity = identity
        self.log = log
        self.code: int | None = None
        self._ended = False
        self._pidfd = _open(identity)
        if self._pidfd is None:
            self._look()

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the process ends.

        Returns -1 once `ended` has returned True.
        """
        return -1 if self._pidfd is None else self._pidfd

    def ended(self, within_s: float = 0.0) -> bool:
        """Return whether the process has ended; wait for its end for at most `within_s` seconds."""
        if self._pidfd is not None:
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            if poll.poll(within_s * 1000):
                self._look()
        return self._ended

    def kill(self, number: int) -> None:
        """Send a signal to the process; do nothing if it has ended."""
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def forget(self) -> None:
        """Close the pidfd and leave the process running."""
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def last_words(self) -> str:
        """Return the last line that the process wrote to its log, or "" if there is none."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - _LAST_LINES))
                lines = file.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1] if lines else ""

    def _look(self) -> None:
        """Record that the process has ended.

        Its exit code is recorded too, if it is a child of ours and no other code has waited for it.
        """
        self._ended = True
        self.forget()
        with contextlib.suppress(ChildProcessError):
            pid, status = os.waitpid(self.identity.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)


def start(launch: Launch) -> Child:
    """Start a process. Raises ConfigurationError if there is no Python interpreter to start."""
    if not sys.executable:
        raise errors.ConfigurationError(
            "sys.executable is empty: kilnwork starts its processes with the Python that runs it"
        )
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    log = above_streams(os.open(launch.log, flags, 0o600))
    actions: list[tuple[int, int, int] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, log if launch.output is None else launch.output, 1),
        (os.POSIX_SPAWN_DUP2, log, 2),
    ]
    # Only in posix_spawn(3), dup2(2) of a descriptor onto itself clears close-on-exec.
    actions += [(os.POSIX_SPAWN_DUP2, kept, kept) for kept in launch.keep]
    argv = [sys.executable, "-P", "-m", launch.module, *launch.arguments]
    try:
        pid = os.posix_spawn(
            sys.executable,
            argv,
            dict(launch.environment),
            file_actions=actions,
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGHUP),
        )
    except OSError as error:
        raise errors.ConfigurationError(f"cannot start {sys.executable}: {error}") from error
    finally:
        os.close(log)
    identity = processes.identify(pid)
    if identity is None:  # impossible: a child exists until it is waited for
        raise errors.ConfigurationError(f"process {pid} was gone at once")
    return Child(identity, log=launch.log)


def above_streams(descriptor: int) -> int:
    """Return a descriptor with a number of at least 3; duplicate it if its number is 0, 1 or 2.

    A program may have closed its standard streams, so that new descriptors get their numbers; a
    child process has its own standard streams there.
    """
    if descriptor > 2:
        return descriptor
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(descriptor)


def _open(identity: processes.ProcessId) -> int | None:
    """Return a pidfd of the process with this identity, or None if it has ended.

    The identity is checked again after the pidfd was opened, because the pid may have been reused.
    """
    if processes.identify(identity.pid) != identity:
        return None
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return None
    if processes.identify(identity.pid) != identity:
        os.close(descriptor)
        return None
    return descriptor
