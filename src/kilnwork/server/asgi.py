"""The little of HTTP that the REST API needs, on bare ASGI (asgi.readthedocs.io, HTTP scope).

Used by every module of this room; no routing and no knowledge of tasks.
"""

import asyncio
import functools
import types
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib import parse

import msgspec

from kilnwork.server import errors

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MOST_DIGITS = 18
"""Of a number that is read; `int` itself raises ValueError above 4300."""

_SHORT_QUERY = 512
"""Bytes of a query that is remembered."""

_ALWAYS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))

_TRUE = frozenset({"", "1", "t", "true", "yes"})
_FALSE = frozenset({"0", "f", "false", "no"})


@dataclass(slots=True)
class Request:
    """One request: `path` is decoded and without the mount's prefix, `user` whoever asks."""

    method: str
    path: str
    query: Mapping[str, str]
    user: Any
    receive: Receive

    def flag(self, name: str) -> bool:
        """A query parameter as a truth value: absent is False, present without value True."""
        text = self.query.get(name)
        if text is None or text.lower() in _FALSE:
            return False
        if text.lower() in _TRUE:
            return True
        raise errors.BadRequest(f"{name}={text}: write true or false")

    def number(self, name: str, *, least: int, most: int) -> int | None:
        """A query parameter as a whole number, None when absent. Raises `errors.BadRequest`."""
        text = self.query.get(name)
        if text is None or text == "":
            return None
        if not is_number(text) or not least <= int(text) <= most:
            raise errors.BadRequest(
                f"{name}={text[:100]}: a number from {least} to {most} is expected"
            )
        return int(text)

    async def gone(self, *, within_s: float) -> bool:
        """True as soon as the caller has hung up, False after `within_s` seconds."""
        try:
            async with asyncio.timeout(within_s):
                while (await self.receive())["type"] != "http.disconnect":
                    pass
        except TimeoutError:
            return False
        return True


def is_number(text: str) -> bool:
    """True for digits of ASCII, so few that `int` takes them."""
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS


def request(scope: Scope, receive: Receive) -> Request:
    """What the scope says."""
    raw: bytes = scope.get("query_string", b"")
    query = _short_query(raw) if len(raw) <= _SHORT_QUERY else _query(raw)
    return Request(scope["method"], scope["path"], query, scope.get("kiln.user"), receive)


def _query(raw: bytes) -> Mapping[str, str]:
    found = parse.parse_qsl(raw.decode("latin-1"), keep_blank_values=True)
    return types.MappingProxyType(dict(found))


@functools.lru_cache(maxsize=256)
def _short_query(raw: bytes) -> Mapping[str, str]:
    """Those who ask often ask the same: to take it apart takes as long as many an answer."""
    return _query(raw)


async def start(
    send: Send,
    status: int,
    content_type: str,
    *,
    length: int | None = None,
    more: Iterable[tuple[bytes, bytes]] = (),
) -> None:
    """Send status and headers, `more` among them; never cached, never guessed at by a browser.

    `length` of the body, None when it comes bit by bit.
    """
    headers = [(b"content-type", content_type.encode()), *_ALWAYS, *more]
    if length is not None:
        headers.append((b"content-length", b"%d" % length))
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def body(send: Send, data: bytes, *, more: bool = False) -> None:
    """Send a piece of the body; the last one unless `more`."""
    await send({"type": "http.response.body", "body": data, "more_body": more})


async def whole(
    send: Send,
    status: int,
    content_type: str,
    data: bytes,
    *,
    more: Iterable[tuple[bytes, bytes]] = (),
) -> None:
    """Send a whole answer; `more` headers with it."""
    await start(send, status, content_type, length=len(data), more=more)
    await body(send, data)


async def text(send: Send, status: int, value: str) -> None:
    """Answer with plain text."""
    await whole(send, status, "text/plain; charset=utf-8", value.encode())


async def json(send: Send, value: Any, *, status: int = 200) -> None:
    """Answer with a JSON document."""
    await whole(send, status, "application/json", msgspec.json.encode(value) + b"\n")


async def problem(send: Send, error: errors.HttpError) -> None:
    """Answer with problem details; `message` repeats `detail` for older callers."""
    document = {
        "type": error.type,
        "title": error.reason,
        "status": error.status,
        "reason": error.reason,
        "detail": str(error),
        "message": str(error),
        **error.members,
    }
    data = msgspec.json.encode(document) + b"\n"
    await whole(send, error.status, "application/problem+json", data, more=error.headers)
