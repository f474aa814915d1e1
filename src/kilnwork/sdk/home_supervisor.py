"""A home: a dispatcher and a worker on this machine, supervised by one driver.

Created by `local`. A thread sleeps until a process ends or the worker prints: it restarts
processes, copies the output of tasks to the driver's `sys.stdout`, and ends the home. Two kinds:
`volatile_home.Volatile`, which starts and ends with its driver, and `durable_home.Durable`, which
outlives it.

The driver creates the listening socket and the dispatcher inherits it: so the driver connects
before the dispatcher has started, and the kernel queues connections while the dispatcher restarts.
"""

import contextlib
import os
import select
import signal
import socket
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kilnwork.channel import blocking_link
from kilnwork.endpoints import endpoint_files
from kilnwork.kit import clock, data_directories, processes
from kilnwork.sdk import child_processes, errors, supervised_processes

NAMESPACE = CLUSTER = "default"
WORKER = "local-0"
HOME_VARIABLE = "KILN_HOME_ID"
"""Environment variable of the worker and of all processes that it starts, by which processes of a
killed worker are found."""

IDLE_S = 60.0
"""How many seconds a durable dispatcher without driver and tasks continues, so that it outlives the
restart of a killed driver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeOptions:
    """The user's options of a home.

    `workdir`: the directory that task functions run in. `secrets`: the directory with the values of
    Secrets.
    """

    slots: int
    workdir: Path
    secrets: Path | None = None


class Home:
    """The base class of the two kinds of home; subclasses define its paths and how it ends.

    `failure`: the error that ended this home for good; `connect` raises it from then on.
    """

    def __init__(self, wanted: HomeOptions, *, run_dir: Path, logs: Path, token_file: Path) -> None:
        self.failure: errors.KilnError | None = None
        self.on_lost: Callable[[errors.KilnError], None] = lambda error: None
        self._wanted = wanted
        self._run_dir = run_dir
        self._logs = logs
        self._token_file = token_file
        self._id = os.urandom(16).hex()
        self._pid = os.getpid()
        self._clock = clock.SystemClock()
        self._listener: socket.socket | None = None
        self._dispatcher: supervised_processes.SupervisedProcess | None = None
        self._worker: supervised_processes.SupervisedProcess | None = None
        self._output = supervised_processes.Output()
        self._wake_read, self._wake_write = supervised_processes.pipe()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="kiln-home", daemon=True)
        _homes.add(self)

    # used by sessions

    def connect(self) -> socket.socket:
        if self.failure is not None:
            raise self.failure
        return blocking_link.unix(str(self._socket))

    def credential(self) -> str:
        return self._token_file.read_text().strip()

    def close(self) -> None:
        """End the home as its subclass defines and wait for that; may be called more than once."""
        if self._closing or os.getpid() != self._pid:
            return
        self._closing = True
        self._wake()
        if self._thread.ident is None:
            self._end()
        else:
            self._thread.join()
        self._output.close()
        os.close(self._wake_write)
        os.close(self._wake_read)

    @property
    def has_secrets(self) -> bool:
        """Whether the dispatcher is started with a directory of Secret values."""
        return self._wanted.secrets is not None

    # for subclasses

    def _secrets_arguments(self) -> list[str]:
        """Return the arguments of the dispatcher that name the directory of Secrets.

        They never contain values of Secrets.
        """
        secrets = self._wanted.secrets
        return [] if secrets is None else ["--secrets", str(secrets)]

    @property
    def _socket(self) -> Path:
        return self._run_dir / endpoint_files.SOCKET

    def _dispatcher_launch(self, listener: socket.socket) -> child_processes.Launch:
        raise NotImplementedError

    def _end(self) -> None:
        """Release everything; called in the home's thread."""
        raise NotImplementedError

    def _dispatcher_ended(self, kept: supervised_processes.SupervisedProcess) -> None:
        """Handle a dispatcher that has ended without being asked to."""
        raise NotImplementedError

    def _started(self) -> None:
        """Record that processes were started or replaced."""

    def _now_and_then(self) -> float | None:
        """Do periodic work; return the seconds until it must be done again, or None.

        Called after each wake-up.
        """
        return None

    def _worker_variables(self) -> dict[str, str]:
        return {}

    def _worker_keeps(self) -> tuple[int, ...]:
        return ()

    def _listen(self) -> socket.socket:
        """Create the listening socket of the dispatcher, and its directory if that does not exist.

        The previous dispatcher may have removed both.
        """
        data_directories.make_private(self._run_dir)
        self._socket.unlink(missing_ok=True)
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener = socket.socket(fileno=child_processes.above_streams(made.detach()))
        listener.bind(str(self._socket))
        self._socket.chmod(0o600)
        listener.listen(128)
        self._drop_listener()
        self._listener = listener
        return listener

    def _start_dispatcher(self) -> None:
        listener = self._listener or self._listen()
        child = child_processes.start(self._dispatcher_launch(listener))
        self._dispatcher = supervised_processes.SupervisedProcess(
            child, self._clock.monotonic(), self._dispatcher
        )

    def _start_worker(self) -> None:
        launch = child_processes.Launch(
            module="kilnwork.worker",
            environment=self._worker_environment(),
            keep=self._worker_keeps(),
            output=self._output.end,
            log=self._logs / "worker.log",
        )
        self._worker = supervised_processes.SupervisedProcess(
            child_processes.start(launch), self._clock.monotonic(), self._worker
        )

    def _worker_environment(self) -> dict[str, str]:
        """Return the worker's environment: the driver's variables and those of the worker
        contract.
        """
        return {
            **os.environ,
            "KILN_CHANNEL": f"unix:{self._socket}",
            "KILN_TOKEN_FILE": str(self._token_file),
            "KILN_NAMESPACE": NAMESPACE,
            "KILN_CLUSTER": CLUSTER,
            "KILN_WORKER": WORKER,
            "KILN_POD_UID": self._id,
            "KILN_NODE": socket.gethostname(),
            "KILN_SLOTS": str(self._wanted.slots),
            "KILN_WORKDIR": str(self._wanted.workdir),
            "KILN_PYTHONPATH": os.pathsep.join(_import_path(self._wanted.workdir)),
            HOME_VARIABLE: self._id,
            **self._worker_variables(),
        }

    def _fail(self, error: errors.KilnError) -> None:
        """End the home for good because of `error`, which every wait of the session then raises."""
        self.failure = error
        if self._dispatcher is not None:
            self._dispatcher.child.kill(signal.SIGKILL)
        if self._worker is not None:
            self._worker.child.kill(signal.SIGTERM)
        self._drop_listener()
        self.on_lost(error)

    def _kill_leftovers(self) -> None:
        """Kill processes that a killed worker has left running."""
        processes.kill_members(None, marker=f"{HOME_VARIABLE}={self._id}")

    def _drop_listener(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    # the thread

    def _run(self) -> None:
        try:
            due: list[float | None] = [self._now_and_then()]
            while True:
                self._wait(min((d for d in due if d is not None), default=None))
                if self._closing:
                    break
                due = [self._look_at_dispatcher(), self._look_at_worker(), self._now_and_then()]
        finally:
            self._end()
            self._output.copy()

    def _wait(self, at_most_s: float | None) -> None:
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        poll.register(self._output.start, select.POLLIN)
        for kept in (self._dispatcher, self._worker):
            if kept is not None and kept.child.fileno() >= 0:
                poll.register(kept.child.fileno(), select.POLLIN)
        ready = {number for number, _ in poll.poll(None if at_most_s is None else at_most_s * 1000)}
        if self._wake_read in ready:
            os.read(self._wake_read, 4096)
        if self._output.start in ready:
            self._output.copy()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._wake_write, b"\0")

    def _look_at_dispatcher(self) -> float | None:
        return self._look("dispatcher", self._dispatcher, self._dispatcher_ended)

    def _look_at_worker(self) -> float | None:
        return self._look("worker", self._worker, self._worker_ended)

    def _look(
        self,
        name: str,
        kept: supervised_processes.SupervisedProcess | None,
        ended: Callable[[supervised_processes.SupervisedProcess], None],
    ) -> float | None:
        """Restart a process if it has ended; return the seconds until it may be restarted, or
        None.
        """
        if kept is None or self.failure is not None or not kept.child.ended():
            return None
        wait_s = kept.wait_s(self._clock.monotonic())
        if wait_s is None:
            self._fail(_ended_too_often(name, kept.child))
        elif wait_s > 0:
            return wait_s
        else:
            ended(kept)
        return None

    def _worker_ended(self, _: supervised_processes.SupervisedProcess) -> None:
        self._kill_leftovers()
        self._start_worker()
        self._started()

    def after_fork(self) -> None:
        """Close the descriptors of this home in a forked copy of the driver.

        Open copies would keep the home alive after the driver has ended.
        """
        for descriptor in (self._wake_read, self._wake_write):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._output.close()
        self._drop_listener()


_homes: weakref.WeakSet[Home] = weakref.WeakSet()


def _forked() -> None:
    for known in list(_homes):
        known.after_fork()


os.register_at_fork(after_in_child=_forked)


def write_token(path: Path) -> None:
    """Write a new token, with which the worker and drivers authenticate, to a file.

    A token in the arguments of a process would be visible in process lists.
    """
    data_directories.write_private(path, os.urandom(32).hex().encode() + b"\n")


def ending(child: child_processes.Child) -> str:
    """Return a text about the end of a process: its pid, its exit code or signal, and its last
    output.
    """
    code = child.code
    how = ""
    if code is not None:
        how = f" with signal {-code}" if code < 0 else f" with exit code {code}"
    last_line = child.last_words()
    return f"process {child.identity.pid} ended{how}" + (f": {last_line}" if last_line else "")


def _ended_too_often(name: str, child: child_processes.Child) -> errors.KilnError:
    if child.code == supervised_processes.LOCKED:
        return errors.KilnError(child.last_words() or "another process has the journal")
    return errors.KilnError(
        f"the {name} of this session does not stay alive: {ending(child)} (log: {child.log})"
    )


def _import_path(workdir: Path) -> list[str]:
    """Return the driver's import path, from which the worker imports task functions by name."""
    found = dict.fromkeys([str(workdir), *(str(Path(entry).absolute()) for entry in sys.path)])
    return [entry for entry in found if os.pathsep not in entry]
