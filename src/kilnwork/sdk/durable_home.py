"""The home of `kiln.start(DIRECTORY)`, whose journal outlives drivers; one driver owns its
processes.

Used by `local`. The driver that holds `owner.lock` starts the dispatcher and the worker and
restarts them when they end. Other drivers of the same directory are guests; when the owner ends,
one of the guests takes over. Processes that a killed driver has left running are adopted, not
started again, at whatever step of its start it was killed: `endpoints.json` names the home before
any process is started, so the worker is found by its environment and the dispatcher by its
arguments.
"""

import contextlib
import os
import signal
import socket
import time
from pathlib import Path

from kilnwork.endpoints import endpoint_files
from kilnwork.kit import data_directories, locks, processes
from kilnwork.kit import errors as kit_errors
from kilnwork.sdk import (
    child_processes,
    errors,
    home_cleanup,
    home_supervisor,
    supervised_processes,
)
from kilnwork.version import __version__

TAKE_OVER_S = 1.0
"""Interval in seconds at which a guest checks whether the owner still exists."""

LEAVE_WITHIN_S = 0.5
"""How many seconds a driver that ends waits for the end of a dispatcher without tasks."""

DRIVER_VARIABLE = "KILN_DRIVER"
"""Environment variable of a dispatcher: the process that has started it, as `PID:START`."""

_LOOK_S = 0.02
_SERVER_FILE = "control.db"


class Durable(home_supervisor.Home):
    """The home in a directory, as one driver uses it: as its owner or as a guest."""

    def __init__(self, directory: Path, wanted: home_supervisor.HomeOptions) -> None:
        self._directory = directory.expanduser().absolute()
        self._lock = locks.OwnerLock(_opened(self._directory) / "owner.lock")
        super().__init__(
            wanted,
            run_dir=data_directories.runtime_dir(self._directory),
            logs=self._directory,
            token_file=self._directory / endpoint_files.TOKEN,
        )

    def start(self, *, patience_s: float) -> None:
        """Start or adopt the dispatcher and the worker, or use those of another driver.

        Raises ConfigurationError if another driver owns the directory, but its dispatcher does not
        serve it within `patience_s`.
        """
        deadline = self._clock.monotonic() + patience_s
        while not self._lock.take() and not self._is_served():
            if self._clock.monotonic() > deadline:
                raise kit_errors.ConfigurationError(
                    f"{self._directory} is in use by process {_holder(self._lock.path)}, which "
                    "does not serve it: end that process, or choose another directory"
                )
            time.sleep(_LOOK_S)
        if self._lock.held:
            self._own()
        self._thread.start()

    def _is_served(self) -> bool:
        found = endpoint_files.read(self._directory)
        return found is not None and found.dispatcher is not None and found.dispatcher.alive()

    def _own(self) -> None:
        """Become the owner of this directory.

        The dispatcher and the worker are adopted if they are running, otherwise started.
        """
        (self._directory / "blobs").mkdir(mode=0o700, exist_ok=True)
        if not endpoint_files.token(self._directory):
            home_supervisor.write_token(self._token_file)
        found = endpoint_files.read(self._directory)
        if found is not None and found.home:
            self._id = found.home
            self._dispatcher = self._adopted(found.dispatcher, "dispatcher")
            self._worker = self._adopted(found.worker, "worker")
            if self._worker is None:
                self._kill_leftovers()
        else:
            made = endpoint_files.Endpoints(version=__version__, pid=os.getpid(), home=self._id)
            endpoint_files.write(self._directory, made)
        if self._dispatcher is None:
            self._dispatcher = self._orphan()
        if self._dispatcher is None:
            self._refuse_if_served()
            self._start_dispatcher()
        if self._worker is None:
            self._start_worker()
        self._started()

    def _refuse_if_served(self) -> None:
        """Raise ConfigurationError if an unknown process listens on the dispatcher's socket.

        Starting another dispatcher would replace its socket.
        """
        with contextlib.suppress(OSError):
            self.connect().close()
            raise kit_errors.ConfigurationError(
                f"{self._directory} is in use by process "
                f"{_holder(self._directory / 'journal.lock')}: end that one, or choose another "
                "directory"
            )

    def _orphan(self) -> supervised_processes.SupervisedProcess | None:
        """Return a dispatcher of this home whose driver was killed before it recorded the pid, or
        None.

        The dispatcher may not have opened the journal yet, so the journal's lock does not name it.
        A dispatcher whose driver lives is not returned, even if another process has removed the
        files that name the owner.
        """
        for pid in processes.all_pids():
            identity = processes.identify(pid)
            if identity is not None and _dispatches(pid, self._directory) and not _has_driver(pid):
                adopted = self._adopted(endpoint_files.Process(*identity), "dispatcher")
                if adopted is not None:
                    return adopted
        return None

    def _adopted(
        self, known: endpoint_files.Process | None, name: str
    ) -> supervised_processes.SupervisedProcess | None:
        if known is None:
            return None
        child = child_processes.Child(known.identity, log=self._logs / f"{name}.log")
        return (
            None
            if child.ended()
            else supervised_processes.SupervisedProcess(child, self._clock.monotonic(), None)
        )

    def _started(self) -> None:
        if self._dispatcher is None or self._worker is None:
            return
        found = endpoint_files.Endpoints(
            version=__version__,
            pid=self._dispatcher.child.identity.pid,
            channel=endpoint_files.Channel(unix=str(self._socket)),
            dispatcher=endpoint_files.Process(*self._dispatcher.child.identity),
            worker=endpoint_files.Process(*self._worker.child.identity),
            home=self._id,
        )
        endpoint_files.write(self._directory, found)

    def _dispatcher_launch(self, listener: socket.socket) -> child_processes.Launch:
        arguments = ["--listen-fd", str(listener.fileno()), "--directory", str(self._directory)]
        arguments += ["--token-file", str(self._token_file)]
        arguments += [
            "--idle-seconds",
            str(home_supervisor.IDLE_S),
            "--scratch",
            str(self._run_dir),
        ]
        return child_processes.Launch(
            module="kilnwork.dispatch",
            arguments=[
                *arguments,
                *self._secrets_arguments(),
                "--blobs",
                str(self._directory / "blobs"),
            ],
            environment={**os.environ, DRIVER_VARIABLE: _own_name()},
            keep=(listener.fileno(),),
            log=self._logs / "dispatcher.log",
        )

    def _run(self) -> None:
        home_cleanup.socket_directories(home_cleanup.SOCKETS_IN, now=self._clock.wall())
        super()._run()

    def _dispatcher_ended(self, _: supervised_processes.SupervisedProcess) -> None:
        self._start_dispatcher()
        self._started()

    def _now_and_then(self) -> float | None:
        if self._lock.held:
            return None
        if self._lock.take():
            try:
                self._own()
            except errors.KilnError as error:
                self._fail(error)
            return None
        return TAKE_OVER_S

    def _end(self) -> None:
        """Release the home and leave its processes running; a dispatcher without tasks ends at
        once.
        """
        self._drop_listener()
        if self._lock.held and self._dispatcher is not None and self._worker is not None:
            self._dispatcher.child.kill(signal.SIGUSR1)
            if self._dispatcher.child.ended(LEAVE_WITHIN_S):
                self._end_worker(self._worker.child)
                home_cleanup.sockets(self._run_dir)
            self._dispatcher.child.forget()
            self._worker.child.forget()
        self._lock.release()

    def _end_worker(self, worker: child_processes.Child) -> None:
        """Wait until the worker, which was asked to end, has ended.

        After LEAVE_WITHIN_S it is killed, with the processes that it has started.
        """
        if not worker.ended(LEAVE_WITHIN_S):
            worker.kill(signal.SIGKILL)
            worker.ended(1.0)
            self._kill_leftovers()

    def after_fork(self) -> None:
        super().after_fork()
        self._lock.forget()


def _dispatches(pid: int, directory: Path) -> bool:
    """Return whether the process is a dispatcher that `kiln.start` has started for this directory.

    Its arguments may name the directory by another path.
    """
    with contextlib.suppress(OSError, ValueError):
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"kilnwork.dispatch" in arguments:
            return directory.samefile(os.fsdecode(arguments[arguments.index(b"--directory") + 1]))
    return False


def _own_name() -> str:
    own = processes.identify(os.getpid())
    return "" if own is None else f"{own.pid}:{own.started}"


def _has_driver(pid: int) -> bool:
    """Return whether the process that started this dispatcher is alive."""
    start = f"{DRIVER_VARIABLE}=".encode()
    with contextlib.suppress(OSError, ValueError):
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if entry.startswith(start):
                driver, _, started = entry[len(start) :].partition(b":")
                return processes.ProcessId(int(driver), int(started)).alive()
    return False


def _holder(lock: Path) -> str:
    """Return the pid in a lock file as text, or "?" if there is none, for error messages."""
    return str(locks.read_owner(lock) or "?")


def _opened(directory: Path) -> Path:
    """Create the directory if it does not exist, check it, and return it.

    Raises ConfigurationError.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise kit_errors.ConfigurationError(
            f"{directory} cannot be used: {error.strerror}; choose a directory that you may write"
        ) from error
    found = endpoint_files.read(directory)
    if (found is not None and found.is_server) or (directory / _SERVER_FILE).exists():
        raise kit_errors.ConfigurationError(
            f"{directory} is the data directory of `kiln up`: use "
            f"kiln.connect({str(directory)!r}), or choose another directory"
        )
    return directory
