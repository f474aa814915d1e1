"""A scripted `kiln up` for commands: it responds to each path with JSON and records the requests.

It runs in threads of the test process, since a command has an event loop of its own.
"""

import http.server
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib import parse

from kilnwork.api import manager_access


class Request(NamedTuple):
    """One received request."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Any
    """The JSON value in the body, or None if it is empty."""


class Response(NamedTuple):
    """One scripted response."""

    body: Any
    status: int = 200


class ScriptedCliServer:
    """HTTP server with scripted responses, and the requests that it got.

    `responses`: lists of responses by `METHOD PATH`; the last of a list is repeated. `requests`:
    all requests but those with which a command finds out what the server is.
    """

    def __init__(self, directory: Path) -> None:
        self.kubeconfig = directory / "kubeconfig"
        self.responses: dict[str, list[Response]] = {}
        self.requests: list[Request] = []
        handler = type("Handler", (_Handler,), {"script": self})
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.kubeconfig.write_text(
            json.dumps(
                {
                    "current-context": "c",
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                    "clusters": [{"name": "c", "cluster": {"server": address}}],
                    "users": [{"name": "u", "user": {"token": "t0ken"}}],
                }
            )
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def respond(self, line: str, *bodies: Any) -> None:
        """Respond to `METHOD PATH` with these JSON values, one after the other."""
        self.responses[line] = [
            body if isinstance(body, Response) else Response(body) for body in bodies
        ]

    def next_response(self, request: Request) -> Response:
        if request.path == manager_access.ENDPOINTS_PATH:
            return Response({"channel": "tls://127.0.0.1:1"})
        self.requests.append(request)
        left = self.responses.get(f"{request.method} {request.path}")
        if left is None:
            return Response({"error": f"no such path: {request.path}"}, 404)
        return left.pop(0) if len(left) > 1 else left[0]


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: ScriptedCliServer

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        path, _, query = self.path.partition("?")
        response = self.script.next_response(
            Request(
                self.command, path, dict(parse.parse_qsl(query)), json.loads(body) if body else None
            )
        )
        content = json.dumps(response.body).encode()
        self.send_response(response.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_PUT = do_DELETE = do_POST = do_PATCH = do_GET  # noqa: N815 - names that http.server calls

    def log_message(self, *_: object) -> None:
        """Keep standard error to what the command prints."""
