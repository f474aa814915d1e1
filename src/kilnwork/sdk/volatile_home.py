"""The home of `kiln.start()` without a directory: it starts and ends with its driver.

Used by `local`. Only the driver holds the write end of a pipe; when the driver ends, even by
SIGKILL, dispatcher and worker notice that the pipe is closed.
"""

import fcntl
import os
import shutil
import signal
import socket
import tempfile
from pathlib import Path

from kilnwork.endpoints import endpoint_files
from kilnwork.kit import data_directories
from kilnwork.sdk import (
    child_processes,
    errors,
    home_cleanup,
    home_supervisor,
    supervised_processes,
)

END_WITHIN_S = 2.0
"""How many seconds dispatcher and worker may take to end before they are killed. They take 0.1 s;
on a busy machine 0.6 s was too short for a worker to remove its directory."""


class Volatile(home_supervisor.Home):
    """A home in memory and in a temporary directory, removed when its driver ends for any
    reason.
    """

    def __init__(self, wanted: home_supervisor.HomeOptions) -> None:
        directory = _temporary()
        super().__init__(
            wanted, run_dir=directory, logs=directory, token_file=directory / endpoint_files.TOKEN
        )
        self._lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX)  # tells `home_cleanup` that the directory is in use
        self._owner_read, self._owner_write = supervised_processes.pipe()

    def start(self) -> None:
        """Start dispatcher and worker side by side; return before either is ready."""
        home_supervisor.write_token(self._token_file)
        (self._run_dir / "blobs").mkdir(mode=0o700)
        self._start_dispatcher()
        self._start_worker()
        self._drop_listener()  # so that connections end when the dispatcher does
        self._thread.start()

    def _dispatcher_launch(self, listener: socket.socket) -> child_processes.Launch:
        keep = (listener.fileno(), self._owner_read)
        arguments = ["--listen-fd", str(keep[0]), "--owner-fd", str(keep[1]), "--volatile"]
        arguments += ["--token-file", str(self._token_file), "--scratch", str(self._run_dir)]
        return child_processes.Launch(
            module="kilnwork.dispatch",
            arguments=[
                *arguments,
                *self._secrets_arguments(),
                "--blobs",
                str(self._run_dir / "blobs"),
            ],
            environment=os.environ,
            keep=keep,
            log=self._logs / "dispatcher.log",
        )

    def _worker_variables(self) -> dict[str, str]:
        return {"KILN_OWNER_FD": str(self._owner_read)}

    def _worker_keeps(self) -> tuple[int, ...]:
        return (self._owner_read,)

    def _run(self) -> None:
        home_cleanup.temporary_directories(self._run_dir.parent, now=self._clock.wall())
        super()._run()

    def _dispatcher_ended(self, kept: supervised_processes.SupervisedProcess) -> None:
        self._fail(
            errors.DispatcherLost(
                f"the dispatcher of this session has ended ({home_supervisor.ending(kept.child)}). "
                'What it had was in memory and is gone; kiln.start("DIRECTORY") keeps a journal.'
            )
        )

    def _fail(self, error: errors.KilnError) -> None:
        super()._fail(error)
        self._close_owner()  # last, since a dispatcher that notices it reports only "leaving"

    def _end(self) -> None:
        """Close the pipe, which makes the dispatcher and the worker end; kill them if they do
        not.
        """
        self._close_owner()
        deadline = self._clock.monotonic() + END_WITHIN_S
        clean = True
        for kept in (self._worker, self._dispatcher):
            if kept is None:
                continue
            if not kept.child.ended(max(0.0, deadline - self._clock.monotonic())):
                kept.child.kill(signal.SIGKILL)
                kept.child.ended(1.0)
            clean = clean and kept.child.code == 0
        if not clean:
            self._kill_leftovers()
        self._drop_listener()
        shutil.rmtree(self._run_dir, ignore_errors=True)

    def after_fork(self) -> None:
        super().after_fork()
        self._close_owner()

    def _close_owner(self) -> None:
        for descriptor in (self._owner_write, self._owner_read, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._owner_write = self._owner_read = self._lock = -1


def _temporary() -> Path:
    """Create a directory that only this user can enter, and return its path.

    The path is short enough for Unix sockets.
    """
    base = tempfile.gettempdir()
    if len(os.fsencode(base)) > data_directories.MAX_SOCKET_DIRECTORY - 30:
        base = "/tmp"  # noqa: S108  0700, made by us
    directory = Path(base) / f"{home_cleanup.prefix()}{os.urandom(6).hex()}"
    directory.mkdir(mode=0o700)
    return directory
