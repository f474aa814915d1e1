"""`python -m kilnwork.worker.sidecar`: the worker contract for the containers of one Pod.

Started by executor `pod` as a native sidecar (KEP-753) of an attempt: makes the files that
docs/reference/worker-contract.md promises, in a volume that all containers of the Pod share, waits
until the others have ended, and leaves their result as its termination message. Most Pods ask for
nothing before that: hence only the little is imported that waiting takes, no asyncio and no
msgspec, and the dispatcher is connected to when somebody connects to the socket, or for inputs. The
socket appears, by a rename, when all else is there: that is what the hook waits for that keeps back
the other containers.
"""

import contextlib
import importlib
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol, cast

from kilnwork.kit import clock, sandbox

CLOCK = clock.SystemClock()

BACKLOG = 64

LAST_S = 1.0
"""How long before the end of its grace it says that it could not hand over a result."""


class Settings(NamedTuple):
    """What the Pod tells by `KILN_…`; paths are where they are to be found. `attempt`: ID, run and
    attempt. `channel`, `ca`: the dispatcher, as for workers, and the PEM of its CA. `blobs`: folder
    of the manager's blobs, None where they go over the network. `grace_s`: between SIGTERM and
    SIGKILL. `message_bytes`: how long the termination message may be. `owner`: by which user other
    containers may run does not matter, so that what is made here is for everybody in the Pod.
    """

    directory: Path
    token_file: Path
    message_file: Path
    attempt: tuple[str, int, int]
    namespace: str
    pod: str
    cluster: str
    output_type: str
    has_input: bool
    channel: str
    ca: str
    blobs: Path | None
    grace_s: float
    message_bytes: int


class Ending:
    """SIGTERM has come. `descriptor`: readable from then on."""

    def __init__(self) -> None:
        self.descriptor, self._writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.at: float | None = None
        """When, monotonic; None while it has not."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def _note(self, number: int, frame: object) -> None:
        if self.at is None:
            self.at = CLOCK.monotonic()
            os.write(self._writing, b"!")


class _Calls(Protocol):
    """`sidecar_calls`, imported by name when it is needed."""

    def serve(self, given: Settings, listener: "Listener", ending: Ending) -> None: ...


class _Result(Protocol):
    """`sidecar_result`, likewise."""

    def message(self, given: Settings, *, until: float) -> tuple[bytes, int]: ...


class Listener:
    """The socket of the attempt: it listens under another name until `publish`."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "socket"
        self._hidden = directory / ".socket"
        self._hidden.unlink(missing_ok=True)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self.socket.bind(str(self._hidden))
        self._hidden.chmod(0o666)
        self.socket.listen(BACKLOG)
        self.is_published = False

    def publish(self) -> None:
        """Everything is there: the other containers may start."""
        if not self.is_published:
            self._hidden.rename(self.path)
            self.is_published = True


def from_environment(environment: Mapping[str, str]) -> Settings:
    """Raises KeyError, ValueError: the executor sets all of it."""
    root = sandbox.root(environment)
    blobs = environment.get("KILN_BLOBS", "")

    def mounted(name: str) -> Path:
        return root / environment[name].lstrip("/")

    return Settings(
        directory=mounted("KILN_CONTRACT_DIR"),
        token_file=mounted("KILN_TOKEN_FILE"),
        message_file=mounted("KILN_MESSAGE_FILE"),
        attempt=(
            environment["KILN_TASK_ID"],
            int(environment["KILN_RUN"]),
            int(environment["KILN_ATTEMPT"]),
        ),
        namespace=environment["KILN_NAMESPACE"],
        pod=environment["KILN_POD"],
        cluster=environment["KILN_CLUSTER"],
        output_type=environment["KILN_OUTPUT_TYPE"],
        has_input=environment.get("KILN_HAS_INPUT") == "true",
        channel=environment["KILN_CHANNEL"],
        ca=environment.get("KILN_CA", ""),
        blobs=Path(blobs) if blobs else None,
        grace_s=float(environment["KILN_GRACE_SECONDS"]),
        message_bytes=int(environment["KILN_MESSAGE_BYTES"]),
    )


def main() -> int:
    """Serve until SIGTERM; 0 when the result, if there is one, is safe."""
    ending = Ending()
    given = from_environment(os.environ)
    listener = Listener(given.directory)
    if not given.has_input:
        listener.publish()
    if given.has_input or _is_wanted(listener, ending):
        calls = cast(_Calls, importlib.import_module("kilnwork.worker.sidecar_calls"))
        calls.serve(given, listener, ending)
    listener.socket.close()
    began = CLOCK.monotonic() if ending.at is None else ending.at
    return _leave_result(given, until=began + max(given.grace_s - LAST_S, given.grace_s / 2))


def _is_wanted(listener: Listener, ending: Ending) -> bool:
    """True when somebody connects, False when the end is near; whatever comes first."""
    polling = select.poll()
    polling.register(listener.socket, select.POLLIN)
    polling.register(ending.descriptor, select.POLLIN)
    return all(ready != ending.descriptor for ready, _ in polling.poll())


def _leave_result(given: Settings, *, until: float) -> int:
    message, code = b"{}", 0
    if os.path.lexists(given.directory / "output"):
        result = cast(_Result, importlib.import_module("kilnwork.worker.sidecar_result"))
        message, code = result.message(given, until=until)
    with contextlib.suppress(FileNotFoundError):
        given.message_file.write_bytes(message)
    return code


if __name__ == "__main__":
    sys.exit(main())
