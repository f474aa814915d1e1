"""A small blocking HTTP/1.1 client on a connected socket (RFC 9112).

Used by `endpoints` (managers), `channel.http_upgrade` (the Upgrade), the pond (sources and peers),
and the worker's calls in Pods and relay (heads only). It exists because `http.client` imports `ssl`
and `email`, which processes that talk over a Unix socket do not need. No redirects, no proxies, no
compression.
"""

import socket
from collections.abc import Iterable, Iterator, Mapping

from kilnwork.kit import errors

MAX_HEAD_BYTES = 64 << 10
_READ_BYTES = 256 << 10
_JOINED_BYTES = 64 << 10
"""Maximum bytes of a body that is sent together with its head: two small packets cost 40 ms where
Nagle's algorithm meets a delayed ACK.
"""

_END = b"\r\n\r\n"


class BadResponse(errors.KilnError):
    """The peer sent something that is not an HTTP/1.1 response; close the connection."""


class ResponseHead:
    """The status and headers of a response. Names are in lower case; values of repeated headers are
    joined by a comma.
    """

    __slots__ = ("headers", "reason", "status")

    def __init__(self, status: int, reason: str, headers: dict[str, str]) -> None:
        self.status = status
        self.reason = reason
        self.headers = headers


def request_head(method: str, path: str, headers: Mapping[str, str]) -> bytes:
    """Return the bytes of a request's head. Raises ValueError for characters that would end a
    line.
    """
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if any("\r" in line or "\n" in line for line in lines) or " " in path:
        raise ValueError("a line break in a header, or a space in a path")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def parse_head(head: bytes) -> ResponseHead:
    """Parse a response's head, which is passed without the empty line. Raises BadResponse."""
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    status, _, reason = rest.partition(" ")
    if version not in ("HTTP/1.1", "HTTP/1.0") or not (status.isdigit() and len(status) == 3):
        raise BadResponse(f"not an HTTP response: {first[:80]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise BadResponse(f"not a header: {line[:80]!r}")
        name, value = name.lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return ResponseHead(int(status), reason, headers)


def cut_head(received: bytes) -> tuple[bytes, bytes] | None:
    """Split received bytes into the head and the bytes after it; None while the head is incomplete.
    Raises BadResponse if it is too long.
    """
    head, end, rest = received.partition(_END)
    if end:
        return head, rest
    if len(received) > MAX_HEAD_BYTES:
        raise BadResponse("the head of an HTTP response has no end")
    return None


class Connection:
    """A connection for one exchange after another, each as `send`, `read_head`, then the body.

    Raises OSError and BadResponse, after which it can only be closed.
    """

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._early = b""
        self._left = 0
        self._chunked = False
        self.reusable = True
        """Whether the connection may be used again; if False, it must be closed after this
        exchange.
        """

    def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        *,
        body: Iterable[bytes | memoryview] = (),
        length: int | None = None,
    ) -> None:
        """Send a whole request. `length`: length of the body in bytes, None for no body."""
        sent = dict(headers)
        if length is not None:
            sent["Content-Length"] = str(length)
        head = request_head(method, path, sent)
        for piece in body:
            if head and len(piece) <= _JOINED_BYTES:
                piece = head + piece  # noqa: PLW2901 - it goes with its head
            elif head:
                self.socket.sendall(head)
            head = b""
            self.socket.sendall(piece)
        if head:
            self.socket.sendall(head)

    def read_head(self, *, to: str = "GET") -> ResponseHead:
        """Return the head of the response. `to`: method of the request."""
        while (cut := cut_head(self._early)) is None:
            self._more()
        head, self._early = cut
        found = parse_head(head)
        if found.status == 100:
            return self.read_head(to=to)
        headers = found.headers
        self._chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        length = headers.get("content-length")
        if to == "HEAD" or found.status in (101, 204, 304):
            self._left, self._chunked = 0, False
        elif self._chunked or length is not None:
            self._left = 0 if self._chunked else _number(length or "", 10)
        else:
            self._left = -1
        self.reusable = self._left >= 0 and "close" not in headers.get("connection", "").lower()
        return found

    @property
    def finished(self) -> bool:
        """Whether the body of the response has been read and no data followed it."""
        return not self._chunked and self._left == 0 and not self._early

    @property
    def early(self) -> bytes:
        """The bytes received after the head, which belong to the next protocol after a 101."""
        return self._early

    def pieces(self) -> Iterator[bytes]:
        """Yield the body of the response in pieces. Raises BadResponse if it is incomplete."""
        if self._chunked:
            yield from self._chunks()
            self._chunked = False
        while self._left:
            if not self._early and not self._more(at_end=self._left < 0):
                return
            piece = self._early if self._left < 0 else self._early[: self._left]
            self._early = self._early[len(piece) :]
            self._left -= len(piece) if self._left > 0 else 0
            yield piece

    def read(self, *, most: int = 1 << 20) -> bytes:
        """Return the whole body of the response, at most `most` bytes."""
        found = bytearray()
        for piece in self.pieces():
            found += piece
            if len(found) > most:
                self.reusable = False
                break
        return bytes(found[:most])

    def close(self) -> None:
        self.socket.close()

    def _chunks(self) -> Iterator[bytes]:
        while True:
            size = _number(self._line().partition(b";")[0].decode("latin-1").strip(), 16)
            if size == 0:
                while self._line():
                    continue
                return
            while size:
                if not self._early:
                    self._more()
                piece, self._early = self._early[:size], self._early[size:]
                size -= len(piece)
                yield piece
            if self._line():
                raise BadResponse("a chunk is longer than it said")

    def _line(self) -> bytes:
        while b"\r\n" not in self._early:
            if len(self._early) > MAX_HEAD_BYTES:
                raise BadResponse("a line without an end")
            self._more()
        line, _, self._early = self._early.partition(b"\r\n")
        return line

    def _more(self, *, at_end: bool = False) -> bool:
        data = self.socket.recv(_READ_BYTES)
        if not data and not at_end:
            raise BadResponse("the connection ended in the middle of a response")
        self._early += data
        return bool(data)


def _number(text: str, base: int) -> int:
    try:
        found = int(text, base)
    except ValueError:
        found = -1
    if found < 0 or not text.isalnum():
        raise BadResponse(f"not a length: {text[:40]!r}")
    return found
