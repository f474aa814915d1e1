"""HTTP load: uploads that cost the sender nothing, and many small requests.

Used by `files.py`, for the server and its floor alike. Loopback only; parses only as much of
responses as it needs.
"""

import asyncio
import json
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_HEADERS_END = b"\r\n\r\n"
BOUNDARY = "kilnworkbench7MA4YWxk"


def head(method: str, path: str, *, length: int | None = None, more: dict[str, str]) -> bytes:
    """Return the head of a request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"{name}: {value}" for name, value in more.items()]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    return "\r\n".join((*lines, "", "")).encode()


def upload(
    port: int, path: str, file: Path, *, headers: dict[str, str], form: bool = False
) -> tuple[float, Any]:
    """Return the seconds until a POST of `file` gets its response, and the JSON of the response.

    The kernel sends the file (sendfile). `form`: as the field `file` of a multipart form.
    """
    before = after = b""
    headers = dict(headers)
    if form:
        disposition = 'form-data; name="file"; filename="in.jsonl"'
        before = f"--{BOUNDARY}\r\nContent-Disposition: {disposition}\r\n\r\n".encode()
        after = f"\r\n--{BOUNDARY}--\r\n".encode()
        headers["Content-Type"] = f"multipart/form-data; boundary={BOUNDARY}"
    length = len(before) + file.stat().st_size + len(after)
    began = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port)) as link, file.open("rb") as source:
        link.sendall(head("POST", path, length=length, more=headers) + before)
        link.sendfile(source)
        link.sendall(after)
        response = received(link)
    return time.perf_counter() - began, json.loads(response)


def get(port: int, path: str, *, headers: dict[str, str]) -> bytes:
    """Return the body of one response, which must be a 200."""
    return ask(port, head("GET", path, more=headers))


def ask(port: int, request: bytes) -> bytes:
    """Return the body of the response to one request."""
    with socket.create_connection(("127.0.0.1", port)) as link:
        link.sendall(request)
        return received(link)


def received(link: socket.socket) -> bytes:
    """Return the body of a successful response with a length."""
    data = b""
    while (end := response_end(data)) is None or len(data) < end:
        if not (more := link.recv(1 << 18)):
            raise AssertionError(f"the server closed the connection after {data[:300]!r}")
        data += more
    check(data)
    return data.partition(_HEADERS_END)[2]


def response_end(data: bytes) -> int | None:
    """Return the length of the first response in `data`; None: its headers are incomplete."""
    at = data.find(_HEADERS_END)
    if at < 0:
        return None
    length = _LENGTH.search(data, 0, at + 2)
    if length is None:
        raise AssertionError(f"a response without a length: {data[:300]!r}")
    return at + len(_HEADERS_END) + int(length[1])


def check(response: bytes) -> None:
    """Raise AssertionError unless the response is successful."""
    if not response.startswith(b"HTTP/1.1 2"):
        raise AssertionError(f"the server responded {response[:600]!r}")


@dataclass
class Load:
    """Results of many requests. `latencies_s`: of each."""

    seconds: float = 0.0
    latencies_s: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Return responses a second."""
        return len(self.latencies_s) / self.seconds


class _Connection(asyncio.Protocol):
    """Sends the next request after each response, until the time is over."""

    def __init__(self, request: Callable[[], bytes], load: Load, until: float) -> None:
        self._request, self._load, self._until = request, load, until
        self._data = b""
        self._sent = 0.0
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        self._data = self._data + data if self._data else data
        try:
            end = response_end(self._data)
            if end is None or len(self._data) < end:
                return
            check(self._data)
        except AssertionError as error:
            self._end(error)
            return
        self._load.latencies_s.append(time.perf_counter() - self._sent)
        self._data = b""
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error or AssertionError("the server closed a connection"))

    def _next(self) -> None:
        self._sent = time.perf_counter()
        if self._sent > self._until:
            self._end(None)
            self._transport.close()
        else:
            self._transport.write(self._request())

    def _end(self, error: Exception | None) -> None:
        if self.over.done():
            return
        if error is None:
            self.over.set_result(None)
        else:
            self.over.set_exception(error)


def send_many(port: int, request: Callable[[], bytes], *, connections: int, seconds: float) -> Load:
    """Send requests on so many connections, one at a time on each."""
    load = Load()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        began = time.perf_counter()
        made = [
            await loop.create_connection(
                lambda: _Connection(request, load, began + seconds), "127.0.0.1", port
            )
            for _ in range(connections)
        ]
        await asyncio.gather(*(connection.over for _, connection in made))
        load.seconds = time.perf_counter() - began

    uvloop.run(run())
    return load
