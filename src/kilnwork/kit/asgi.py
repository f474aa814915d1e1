"""HTTP requests and responses, in the form in which all ASGI apps of kilnwork read and write them.

Used by the REST API, the embedded API server, the node and the pond; `serving` listens for them. An
app is called with a scope, `receive` and `send` (asgi.readthedocs.io), and makes a `Request` and a
`Response` of them. Each app has its own routing and form of errors. Starlette's classes are not
used, because they take twice as long: docs/decisions/0026.
"""

import asyncio
import functools
import types
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Mapping,
    MutableMapping,
    Sequence,
)
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib import parse

import msgspec

from kilnwork.kit import errors

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]
"""Headers as in an ASGI scope: pairs of lower-case name and value."""

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"

HIJACK = "kiln.hijack"
"""Key in `scope["extensions"]` whose value is a `Hijack`."""

WHOLE = "kiln.whole"
"""Key in the message of a response's head: True if the whole body follows at once, so that
`serving` may write both together. Other servers ignore it.
"""

_HEADERS = "kiln.headers"
"""Key in the scope whose value has the first header of each name, since several apps read the
headers of one request.
"""

USER = "kiln.user"
"""Key in the scope whose value is the user that the authenticator found; None without a
credential.
"""

MAX_DIGITS = 18
"""Maximum number of digits of a number in a request; `int` itself raises ValueError above 4300."""

STALL_S = 60.0
"""Seconds without a byte of a request's body after which the request fails."""

PIECE_BYTES = 256 << 10
"""Number of bytes of a large body that a thread reads, writes or hashes at a time: with fewer,
passing them to the thread costs more than the work.
"""

_NOTICE_S = 1.0
_SHORT_QUERY_BYTES = 512
"""Maximum bytes of a query that is cached."""

_TRUE = frozenset({"", "1", "t", "true", "yes"})
_FALSE = frozenset({"0", "f", "false", "no"})


class Disconnected(errors.KilnError):
    """The client has disconnected: no response can be sent."""


class BadParameter(errors.KilnError):
    """A query parameter has an invalid value; the message names the parameter."""


class BodyStalled(errors.KilnError):
    """No bytes of the body arrived for `STALL_S`."""


class BodyTooLarge(errors.KilnError):
    """The body has `seen` bytes or more, above its `limit`."""

    def __init__(self, *, seen: int, limit: int) -> None:
        super().__init__(f"the body has {seen:,} bytes or more: {limit:,} are taken here")
        self.seen = seen
        self.limit = limit


@dataclass(frozen=True, slots=True)
class Hijacked:
    """A connection that an app has taken over, so that no other code writes to it or closes it.

    Nothing is read before `hand_over`. `early`: data that the client sent after its request.
    """

    transport: asyncio.Transport
    early: bytes

    def hand_over(self, protocol: asyncio.Protocol) -> None:
        """Pass the connection to `protocol`: call `connection_made`, then pass the early data, then
        all later data.

        The app writes its response (`101`, or a refusal) to the transport before this call.
        """
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        self.transport.resume_reading()  # nothing is read before this turn of the loop is over
        if self.early:
            protocol.data_received(self.early)


Hijack = Callable[[], Hijacked]
"""Takes the connection from HTTP. Raises `Disconnected` if the client has left meanwhile,
RuntimeError if a response has begun. Call it once.
"""


def switching(protocol: str) -> bytes:
    """Return the head of a response that accepts the change to `protocol` (RFC 9110 §15.2.2)."""
    return (
        f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n"
    ).encode("ascii")


class Refusal(NamedTuple):
    """An error response in plain text, for apps without an error format of their own."""

    status: int
    message: str
    headers: Headers = ()


class Request:
    """One HTTP request. `path` is decoded; `method` is in capitals."""

    __slots__ = ("_query", "method", "path", "receive", "scope")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.receive = receive
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self._query: Mapping[str, str] | None = None

    @property
    def user(self) -> Any:
        """The authenticated user, None without a valid credential; set by the authenticator."""
        return self.scope.get(USER)

    @property
    def segments(self) -> list[str]:
        """The segments of the path, decoded one by one, so that a segment may contain a slash."""
        raw = self.scope.get("raw_path") or self.path.encode()
        return [parse.unquote(part) for part in raw.decode("latin-1").strip("/").split("/")]

    def header(self, name: bytes) -> str | None:
        """Return the value of the first header called `name`, which must be in lower case; None if
        there is none.
        """
        found = self.first_headers.get(name)
        return None if found is None else found.decode("latin-1")

    @property
    def first_headers(self) -> Mapping[bytes, bytes]:
        """The headers by name, in lower case; of several headers with one name, the value of the
        first.
        """
        found: dict[bytes, bytes] | None = self.scope.get(_HEADERS)
        if found is None:
            found = self.scope[_HEADERS] = dict(reversed(self.scope["headers"]))
        return found

    def headers(self, name: bytes) -> list[str]:
        """Return the values of all headers called `name`, which must be in lower case."""
        if name not in self.first_headers:
            return []
        return [value.decode("latin-1") for key, value in self.scope["headers"] if key == name]

    @property
    def bearer_token(self) -> str:
        """The token of an `Authorization: Bearer` header (RFC 6750), "" without one."""
        scheme, _, token = (self.header(b"authorization") or "").strip().partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""

    @property
    def client_subject(self) -> tuple[str, tuple[str, ...]] | None:
        """Common name and organisations of the client's verified certificate, None without one."""
        certificate = self.scope.get("state", {}).get("peer_certificate")
        if not certificate:
            return None
        pairs = [pair for part in certificate.get("subject") or () for pair in part]
        name = next((value for key, value in reversed(pairs) if key == "commonName"), "")
        found = tuple(value for key, value in pairs if key == "organizationName")
        return (name, found) if name else None

    # the query

    @property
    def query(self) -> Mapping[str, str]:
        """The parameters of the URL by name; of several with the same name the last one counts."""
        if self._query is None:
            raw: bytes = self.scope.get("query_string", b"")
            self._query = _short_query(raw) if len(raw) <= _SHORT_QUERY_BYTES else _query(raw)
        return self._query

    def flag(self, name: str) -> bool:
        """Return a boolean parameter of the URL: False if it is absent, True if it is present
        without a value.

        Raises BadParameter.
        """
        text = self.query.get(name)
        if text is None or text.lower() in _FALSE:
            return False
        if text.lower() in _TRUE:
            return True
        raise BadParameter(f"{name}={text[:100]}: write true or false")

    def number(self, name: str, *, least: int, most: int) -> int | None:
        """Return a parameter of the URL as a whole number; None if it is absent or empty.

        Raises BadParameter, also outside of `least` to `most`.
        """
        text = self.query.get(name)
        if text is None or text == "":
            return None
        if not is_number(text) or not least <= int(text) <= most:
            raise BadParameter(f"{name}={text[:100]}: a number from {least} to {most} is expected")
        return int(text)

    # the body and the connection

    def body(self, *, limit: int | None = None) -> "Body":
        """Return the body of the request, to be read once.

        Raises BodyTooLarge if its Content-Length is above `limit`.
        """
        return Body(self, limit)

    async def wait_disconnected(self) -> None:
        """Wait until the client has disconnected; drop the data that it sends before."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def disconnected(self, *, within_s: float) -> bool:
        """Wait for the client to disconnect; return False if it has not after `within_s`
        seconds.
        """
        try:
            async with asyncio.timeout(within_s):
                await self.wait_disconnected()
        except TimeoutError:
            return False
        return True

    async def cut(self) -> None:
        """Abort the connection at once, with data that the client has not read.

        This is the only way to end a response that cannot be completed: a graceful close waits for
        the client.
        """
        self.scope["state"]["abort"]()
        # uvicorn notifies only the last of several requests
        await self.disconnected(within_s=_NOTICE_S)

    async def drained(self) -> bool:
        """Wait until little unsent data is left in memory, because the client has read it or has
        disconnected.

        Return True if the call had to wait: the caller should then free its own memory before it
        sends more. uvicorn itself waits only before the next piece, so that one piece more than was
        sent stays in memory.
        """
        flow = self.scope["state"]["flow"]
        if not flow.write_paused:
            return False
        await flow.drain()
        return True

    @property
    def hijack(self) -> Hijack | None:
        """Return a function that takes over the connection; None if the client does not ask for
        another protocol.

        A client asks for one by `Connection: Upgrade` (RFC 9110 §7.8).
        """
        found: Hijack | None = (self.scope.get("extensions") or {}).get(HIJACK)
        return found


class Body:
    """The body of a request, which is read as it arrives.

    Nothing is read before `piece` is called. A client that sends `Expect: 100-continue` (RFC 9110
    §10.1.1) waits until then, and does not send a body that is refused before. All methods raise
    Disconnected, BodyStalled, and BodyTooLarge above `limit` bytes. `received`: bytes so far;
    `ended`: the body is complete; `length`: the Content-Length, None without one.
    """

    __slots__ = ("_limit", "_receive", "ended", "length", "received")

    def __init__(self, request: Request, limit: int | None) -> None:
        self._receive = request.receive
        self.received = 0
        self.ended = False
        text = request.header(b"content-length")
        self.length = int(text) if text is not None and text.isdecimal() else None
        self._limit = limit
        self._check(self.length or 0)

    async def piece(self) -> bytes:
        """Return the bytes of the body that have arrived since the last call; b"" at the end."""
        while not self.ended:
            message = await _received(self._receive)
            if message["type"] == "http.disconnect":
                raise Disconnected
            data: bytes = message.get("body", b"")
            self.ended = not message.get("more_body", False)
            self.received += len(data)
            self._check(self.received)
            if data:
                return data
        return b""

    async def batch(self, size: int) -> bytes:
        """Return at least `size` bytes of the body, or all remaining ones; b"" at the end."""
        first = await self.piece()
        if self.ended or len(first) >= size:
            return first
        pieces, count = [first], len(first)
        while count < size:
            data = await self.piece()
            if not data:
                break
            pieces.append(data)
            count += len(data)
        return b"".join(pieces)

    async def read(self, *, limit: int) -> bytes:
        """Return the whole body, at most `limit` bytes."""
        self._limit = limit
        self._check(self.length or 0)
        return await self.batch(limit + 1)

    def _check(self, size: int) -> None:
        if self._limit is not None and size > self._limit:
            raise BodyTooLarge(seen=size, limit=self._limit)


class Response:
    """The response to one request, sent at once by `send`, or in pieces by `start` and `write`.

    `headers`: the headers of every response, unless the attribute is replaced. `extra`: returns
    further headers, called at the start. `started`: the head has been sent, so that no error
    response is possible. Also callable as an ASGI `send`, for apps that need one.
    """

    __slots__ = ("_extra", "_send", "headers", "started")

    def __init__(
        self, send: Send, *, headers: Headers = (), extra: Callable[[], Headers] | None = None
    ) -> None:
        self._send = send
        self.headers = headers
        self._extra = extra
        self.started = False

    async def __call__(self, message: Message) -> None:
        """Send one ASGI message."""
        self.started = True
        await self._send(message)

    async def start(
        self,
        status: int,
        content_type: str = "",
        *,
        length: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Send the status and headers of the response.

        `length`: bytes of the body; None if it is sent in pieces.
        """
        await self._send(self._head(status, content_type, length, headers))

    def _head(
        self, status: int, content_type: str, length: int | None, headers: Headers
    ) -> Message:
        sent = [*self.headers, *headers]
        if content_type:
            sent.append((b"content-type", content_type.encode()))
        if length is not None:
            sent.append((b"content-length", b"%d" % length))
        if self._extra is not None:
            sent += self._extra()
        self.started = True
        return {"type": "http.response.start", "status": status, "headers": sent}

    async def write(self, data: bytes, *, more: bool = True) -> None:
        """Send a piece of the body, which is the last piece unless `more`."""
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def end(self) -> None:
        """End the body of the response."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def send(
        self, status: int, content_type: str, data: bytes, *, headers: Headers = ()
    ) -> None:
        """Send a whole response, with its body."""
        head = self._head(status, content_type, len(data), headers)
        head[WHOLE] = True
        await self._send(head)
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def text(self, status: int, value: str, *, headers: Headers = ()) -> None:
        """Send a whole response with a body of plain text."""
        await self.send(status, TEXT, value.encode(), headers=headers)

    async def refuse(self, refusal: Refusal) -> None:
        """Send a refusal as a response in plain text."""
        await self.text(refusal.status, refusal.message, headers=refusal.headers)

    async def json(self, value: Any, *, status: int = 200) -> None:
        """Send a whole response whose body is `value` as JSON and a line feed."""
        await self.send(status, JSON, msgspec.json.encode(value) + b"\n")

    async def empty(self, status: int, headers: Headers = ()) -> None:
        """Send a response without body and content type, such as 204 or 304."""
        await self.start(status, headers=headers)
        await self.end()


def is_number(text: str) -> bool:
    """Return whether a text consists of ASCII digits, few enough for `int`."""
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS


def _query(raw: bytes) -> Mapping[str, str]:
    found = parse.parse_qsl(raw.decode("latin-1"), keep_blank_values=True)
    return types.MappingProxyType(dict(found))


@functools.lru_cache(maxsize=256)
def _short_query(raw: bytes) -> Mapping[str, str]:
    """Parse a short query string, with a cache: polling clients repeat it, and parsing costs as
    much as responding.
    """
    return _query(raw)


async def _received(receive: Receive) -> Message:
    """Return the next ASGI message, without a deadline if it is available already.

    The body of a small request usually is available, and a timer would cost more than the rest of
    the work.
    """
    waiting: Any = receive()
    try:
        first = waiting.send(None)
    except StopIteration as done:
        message: Message = done.value
        return message
    try:
        async with asyncio.timeout(STALL_S):
            return await _rest(waiting, first)
    except TimeoutError as error:
        raise BodyStalled(f"nothing of the body came for {STALL_S:g} s") from error


@types.coroutine
def _rest(begun: Coroutine[Any, None, Message], awaited: Any) -> Generator[Any, None, Message]:
    """Finish a coroutine that was started by hand and waits for `awaited`; return its result."""
    try:
        while True:
            try:
                yield awaited
            except BaseException as error:  # noqa: BLE001 - it is for the coroutine to handle
                awaited = begun.throw(error)
            else:
                awaited = begun.send(None)
    except StopIteration as done:
        message: Message = done.value
        return message
