"""Control of the parts of a running cluster from other processes.

`Server` is in the process that runs them: `python -m hack.kube run` and `up` serve it in the
cluster's directory. `Client` has the same methods for tests, which run in other processes. One JSON
array a line, `[METHOD, ARGUMENT]`, with the response `[TEXT OF ERROR OR NULL]`.
"""

import json
import socket
import socketserver
import threading
from pathlib import Path
from typing import Any, Protocol

METHODS = ("start_part", "stop_part", "kill_part", "pause_part", "resume_part")
_RESPONSE_TIMEOUT_S = 120.0


class Refused(Exception):
    """The process that runs the parts failed to do it; the text is its error."""


class Parts(Protocol):
    """Operations on a part: a component, `etcd`, or one of a node, `node-a/kubelet`."""

    def start_part(self, name: str) -> None: ...
    def stop_part(self, name: str) -> None: ...
    def kill_part(self, name: str) -> None: ...
    def pause_part(self, name: str) -> None: ...
    def resume_part(self, name: str) -> None: ...


def path(directory: Path) -> Path:
    return directory / "control.sock"


class Server:
    """Serves `parts` until closed, one request at a time."""

    def __init__(self, directory: Path, parts: Parts) -> None:
        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for line in self.rfile:
                    self.wfile.write(json.dumps([_do(parts, line)]).encode() + b"\n")

        path(directory).unlink(missing_ok=True)
        self._server = socketserver.UnixStreamServer(str(path(directory)), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        """Stop serving requests."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _do(parts: Parts, line: bytes) -> str | None:
    try:
        method, name = json.loads(line)
        if method not in METHODS:
            return f"{method} is none of {', '.join(METHODS)}"
        getattr(parts, method)(name)
    except Exception as error:  # noqa: BLE001 - it is the caller's, in another process
        return f"{type(error).__name__}: {error}"
    return None


class Client:
    """The parts of the cluster in `directory`. Raises Refused."""

    def __init__(self, directory: Path) -> None:
        self._path = path(directory)

    def call(self, method: str, name: str) -> None:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(_RESPONSE_TIMEOUT_S)
            link.connect(str(self._path))
            link.sendall(json.dumps([method, name]).encode() + b"\n")
            with link.makefile() as lines:
                response: list[Any] = json.loads(lines.readline())
        if response[0] is not None:
            raise Refused(response[0])
