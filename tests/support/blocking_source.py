"""HTTP source of files for DataPonds on real nodes that can make a node wait.

A requesting node is identified by the range of its address: hack/kube gives each node a range for
its Pods.
"""

import collections
import http.server
import threading
from collections.abc import Mapping
from typing import Any, Self

WAIT_S = 120.0


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Ignore errors: agents close their connections whenever they like."""


def _stamp(content: bytes | None) -> str:
    return f'"{hash(content):x}"'


class BlockingSource:
    """HTTP server as a context manager. `files` maps paths to content and may be changed; `gets`
    lists (range, path) of each request that got a file.
    """

    def __init__(self, address: str, files: Mapping[str, bytes]) -> None:
        self.files = dict(files)
        self.gets: collections.Counter[tuple[str, str]] = collections.Counter()
        self.free = threading.Event()
        """While this is not set, only the range that asked first is served."""
        self.free.set()
        self.first: str | None = None
        """The range that asked first since `hold`."""
        self.gates: dict[str, threading.Event] = collections.defaultdict(threading.Event)
        """Events by path below `/gates/`: a request there waits for its event."""
        self._lock = threading.Lock()
        self._server = _Server((address, 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.uri = f"http://{address}:{self._server.server_port}/"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.free.set()
        for gate in self.gates.values():
            gate.set()
        self._server.shutdown()
        self._server.server_close()

    def hold(self) -> None:
        """From now on serve only the node that asks first, until `free` is set."""
        self.first = None
        self.free.clear()

    def sent(self) -> int:
        """Return how many files were sent so far."""
        return self.gets.total()

    def _admit(self, asked_by: str) -> None:
        with self._lock:
            if self.first is None:
                self.first = asked_by
        if asked_by != self.first:
            self.free.wait(WAIT_S)

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        source = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = self.path.lstrip("/")
                if path.startswith("gates/"):
                    source.gates[path.removeprefix("gates/")].wait(WAIT_S)
                    self._reply(200, b"open\n")
                    return
                asked_by = self.client_address[0].rpartition(".")[0]
                source._admit(asked_by)
                content = source.files.get(path)
                if content is None:
                    self._reply(404, b"")
                    return
                source.gets[asked_by, path] += 1
                self._reply(200, content, ETag=_stamp(content))

            def do_HEAD(self) -> None:
                content = source.files.get(self.path.lstrip("/"))
                self._reply(404 if content is None else 200, content or b"", ETag=_stamp(content))

            def _reply(self, status: int, content: bytes, **headers: str) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        return Handler
