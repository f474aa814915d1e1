"""HTTP file server, a source of ponds: ETag, Range, If-Range, HEAD; counts requests, has faults.

`python -m tests.support.file_server DIRECTORY` serves a directory from a separate process and
prints the port.
"""

import hashlib
import http.server
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self
from urllib import parse


class FileServer:
    """HTTP server of files in memory or, with `directory`, on disk.

    `requests`: method, path and Range of each request; `sent`: bytes of all bodies. `cut`: bytes of
    a body after which connections end; `pause_s`: delay before each response; `token`: required
    bearer token; `redirects`: targets by path; `damage(path, content)`: returns what is sent
    instead, under the old ETag.
    """

    def __init__(
        self, files: dict[str, bytes] | None = None, directory: Path | None = None
    ) -> None:
        self.files = dict(files or {})
        self.directory = directory
        self.requests: list[tuple[str, str, str]] = []
        self.sent = 0
        self.cut: int | None = None
        self.token = ""
        self.redirects: dict[str, str] = {}
        self.ranges = True
        self.heads = True
        self.tags = True
        self.damage: Callable[[str, bytes], bytes] = lambda _, content: content
        self.seen: Callable[[str], None] = lambda authorization: None
        self.connections = 0
        self.pause_s = 0.0
        self._pause = threading.Event()
        self.hangs = False
        """Whether it takes requests and never responds."""
        handler = type("Handler", (_Handler,), {"lake": self})
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    @property
    def gets(self) -> list[str]:
        return [path for method, path, _ in self.requests if method == "GET"]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._pause.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def pause(self) -> None:
        """Sleep as a slow server does before its response."""
        if self.pause_s:
            self._pause.wait(self.pause_s)
        if self.hangs:
            self._pause.wait()

    def read(self, path: str) -> bytes | None:
        if self.directory is None:
            return self.files.get(path)
        try:
            return (self.directory / path).read_bytes()
        except OSError:
            return None


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    lake: FileServer

    def setup(self) -> None:
        super().setup()
        self.lake.connections += 1

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""

    def do_HEAD(self) -> None:
        self._respond(with_body=False)

    def do_GET(self) -> None:
        self._respond(with_body=True)

    def _respond(self, *, with_body: bool) -> None:
        lake, path = self.lake, parse.unquote(self.path.partition("?")[0].lstrip("/"))
        lake.requests.append((self.command, path, self.headers.get("Range", "")))
        lake.pause()
        lake.seen(self.headers.get("Authorization", ""))
        if not lake.heads and self.command == "HEAD":
            return self._refuse(405)
        if lake.token and self.headers.get("Authorization") != f"Bearer {lake.token}":
            return self._refuse(401)
        if path in lake.redirects:
            self.send_response(302)
            self.send_header("Location", lake.redirects[path])
            self.send_header("Content-Length", "0")
            return self.end_headers()
        content = lake.read(path)
        if content is None:
            return self._refuse(404)
        tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        content = lake.damage(path, content)
        start = self._start(tag, len(content))
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if lake.tags:
            self.send_header("ETag", tag)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if with_body:
            self._send(content[start:])
        return None

    def _start(self, tag: str, size: int) -> int:
        asked = self.headers.get("Range", "")
        if not asked or not self.lake.ranges or self.headers.get("If-Range", tag) != tag:
            return 0
        start = int(asked.removeprefix("bytes=").removesuffix("-"))
        return start if start < size else 0

    def _send(self, content: bytes) -> None:
        cut = self.lake.cut
        part = content if cut is None else content[:cut]
        self.lake.sent += len(part)
        self.wfile.write(part)
        if len(part) < len(content):
            self.close_connection = True

    def _refuse(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()


if __name__ == "__main__":
    with FileServer(directory=Path(sys.argv[1])) as served:
        sys.stdout.write(f"{served.port}\n")
        sys.stdout.flush()
        sys.stdin.read()
        sys.stdout.write(f"{len(served.requests)} {served.sent}\n")
