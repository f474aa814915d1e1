"""`python -P -c "from kilnwork.worker.sidecar import run; run()"`: serves the worker contract in a
Pod.

Started by executor `pod` as a native sidecar (KEP-753) of an attempt's Pod. It makes the files that
docs/reference/worker-contract.md promises in a volume that all containers of the Pod share, waits
until the other containers have ended, and reports their result as its termination message. It
connects to the dispatcher only when a client connects to the socket, or to fetch inputs. The socket
is renamed into place last: the startup hook, which holds back the other containers, waits for it.
All files are accessible to every user, since the other containers may run as any.

Most Pods never use the socket, yet each pays for this process. So it waits with built-in modules
only: `enum`, `typing` and `pathlib` take longer to import than the interpreter to start, and so
does `runpy`, which `-m` needs. Hence `_signal` and `_socket` instead of `signal` and `socket`, and
paths as strings.
"""

import _signal  # type: ignore[import-not-found]  # typeshed has only `signal`
import _socket
import importlib
import os
import select
import time

BACKLOG = 64

TYPE_CHECKING = False  # as `typing.TYPE_CHECKING`
if TYPE_CHECKING:
    from typing import Any, NoReturn, Protocol

    class _Calls(Protocol):
        """The module `sidecar_socket_server`, which is imported by name when it is needed."""

        def serve(self, listener: "Listener", ending: "Ending") -> None: ...

    class _Result(Protocol):
        """The module `sidecar_result`, which is imported by name when it is needed."""

        def message(self, *, began: float | None) -> tuple[bytes, int]: ...


READY_S = 60
"""Maximum seconds until the inputs are there; after that the sidecar exits, and the kubelet starts
it again.
"""

READY = ".ready"
"""Name of the pipe at which the startup hook waits; see `executors.pod.sidecar_container`."""


class Ending:
    """Flag that SIGTERM has arrived.

    `descriptor` is readable from then on.
    """

    def __init__(self) -> None:
        self.descriptor, self._writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.at: float | None = None
        """Monotonic time at which SIGTERM arrived; None before."""
        # The descriptor must be non-blocking, or a signal handler could hang.
        _signal.set_wakeup_fd(self._writing)
        for number in (_signal.SIGTERM, _signal.SIGINT):
            _signal.signal(number, self._note)

    def _note(self, number: int, frame: object) -> None:
        if self.at is None:
            self.at = time.monotonic()  # noqa: TID251 - `kit.clock` needs `typing`


class Listener:
    """The attempt's listening socket, which has another file name until `publish`."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._hidden = f"{directory}/.socket"
        if os.path.lexists(self._hidden):  # left by a sidecar that was killed
            os.unlink(self._hidden)  # noqa: PTH108
        self.socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK)
        self.socket.bind(self._hidden)
        # chmod, since bind(2) applies the umask.
        os.chmod(self._hidden, 0o666)  # noqa: PTH101, S103
        self.socket.listen(BACKLOG)
        self.is_published = False

    def publish(self) -> None:
        """Rename the socket to its final name, which tells the other containers to start.

        Call when all files exist.
        """
        if self.is_published:
            return
        os.rename(self._hidden, f"{self._directory}/socket")  # noqa: PTH104
        self.is_published = True
        _signal.alarm(0)
        try:
            hook = os.open(f"{self._directory}/{READY}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            # ENXIO: the hook does not wait yet, and looks for the socket before it waits.
            return
        os.write(hook, b"\n")
        os.close(hook)


def run() -> "NoReturn":
    """Run the sidecar, and exit without the interpreter's cleanup, because nothing is left to
    write.
    """
    os._exit(main())


def main() -> int:
    """Serve the worker contract until SIGTERM, then store the result, if there is one; return the
    exit code.
    """
    ending = Ending()
    _signal.signal(_signal.SIGALRM, lambda *_: os._exit(1))
    _signal.alarm(READY_S)
    directory = _mount_path("KILN_CONTRACT_DIR")
    listener = Listener(directory)
    has_input = os.environ.get("KILN_HAS_INPUT") == "true"
    if not has_input:
        listener.publish()
    if has_input or _is_wanted(listener, ending):
        calls: _Calls = _module("sidecar_socket_server")
        calls.serve(listener, ending)
    listener.socket.close()
    return _leave_result(directory, ending)


def _mount_path(name: str) -> str:
    """Return the real path of a mount, whose mount path is in the environment variable `name`; see
    `kit.mount_path_resolution`.
    """
    return os.environ.get("CONTAINER_SANDBOX_MOUNT_POINT", "") + os.environ[name]


def _module(name: str) -> "Any":
    return importlib.import_module(f"kilnwork.worker.{name}")


def _is_wanted(listener: Listener, ending: Ending) -> bool:
    """Wait for a client or for SIGTERM; return False if SIGTERM comes first, else True."""
    polling = select.poll()
    polling.register(listener.socket.fileno(), select.POLLIN)
    polling.register(ending.descriptor, select.POLLIN)
    # If both are ready, SIGTERM counts.
    return all(ready != ending.descriptor for ready, _ in polling.poll())


def _leave_result(directory: str, ending: Ending) -> int:
    message, code = b"{}", 0
    began = ending.at
    if os.path.lexists(f"{directory}/output"):
        result: _Result = _module("sidecar_result")
        message, code = result.message(began=began)
    try:
        # No O_CREAT: a file that is not mounted would be read by no process.
        file = os.open(_mount_path("KILN_MESSAGE_FILE"), os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    except FileNotFoundError:
        return code
    os.write(file, message)
    os.close(file)
    return code
