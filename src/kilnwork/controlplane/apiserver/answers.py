"""Answers on the wire: JSON bodies, lists, tables, Status, and the headers around them.

Used by `app`. Nothing is decided here.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from kilnwork.controlplane.apiserver import builtin, forms, lists, requests, statuses, tables

JSON = "application/json"
_UNCACHED = (b"cache-control", b"no-cache, private")

Headers = Sequence[tuple[bytes, bytes]]


async def start(
    send: requests.Send, code: int, *, content_type: str = JSON, headers: Headers = ()
) -> None:
    """Send status line and headers."""
    listed = [(b"content-type", content_type.encode()), *headers]
    if not any(name == b"cache-control" for name, _ in headers):
        listed.append(_UNCACHED)
    await send({"type": "http.response.start", "status": code, "headers": listed})


async def raw(
    send: requests.Send,
    body: bytes,
    *,
    code: int = 200,
    content_type: str = JSON,
    headers: Headers = (),
) -> None:
    """Send a whole answer."""
    length = (b"content-length", str(len(body)).encode())
    await start(send, code, content_type=content_type, headers=(length, *headers))
    await send({"type": "http.response.body", "body": body})


async def cacheable(
    send: requests.Send,
    request: requests.Request,
    body: bytes,
    *,
    digest: str = "",
    content_type: str = JSON,
    forever: bool = False,
) -> None:
    """Send what clients keep: with its ETag, or only 304 to who has it (RFC 9110 §13.1.2).

    `digest`: of the body, if known. `forever`: the URL names just this content.
    """
    tag = f'"{digest or hashlib.sha512(body).hexdigest().upper()}"'.encode()
    cache = b"public, immutable" if forever else b"public"
    headers = [(b"etag", tag), (b"vary", b"Accept"), (b"cache-control", cache)]
    if request.headers.get("if-none-match", "").encode() == tag:
        await send({"type": "http.response.start", "status": 304, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
        return
    await raw(send, body, content_type=content_type, headers=headers)


async def redirect(send: requests.Send, target: str) -> None:
    """Send the client elsewhere for good."""
    headers = [(b"location", target.encode()), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 301, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def document(send: requests.Send, value: Any, *, code: int = 200) -> None:
    """Send a JSON document."""
    await raw(send, msgspec.json.encode(value), code=code)


async def text(send: requests.Send, value: str, *, code: int = 200) -> None:
    """Send plain text."""
    await raw(send, value.encode(), code=code, content_type="text/plain; charset=utf-8")


async def refusal(send: requests.Send, error: statuses.StatusError) -> None:
    """Send a Status, or Go's own text for a path that nobody serves."""
    if isinstance(error, statuses.NoPage):
        await text(send, f"{error.message}\n", code=error.code)
        return
    headers = [(k.lower().encode(), v.encode("latin-1")) for k, v in error.headers.items()]
    headers += warnings(error.warnings)
    await raw(send, error.body(), code=error.code, headers=headers)


def warnings(texts: Iterable[str]) -> Headers:
    """`Warning` headers (RFC 7234 §5.5) as Kubernetes sends them; clients print them."""
    return [(b"warning", f'299 - "{_quotable(text)}"'.encode()) for text in texts]


def _quotable(text: str) -> str:
    plain = "".join(c if c.isprintable() else " " for c in text)
    return plain.replace("\\", "\\\\").replace('"', '\\"')


def one(served: builtin.Served, body: bytes, request: requests.Request, *, now: float) -> bytes:
    """One object in the form that the client accepts."""
    form = forms.accepted(request.accept, custom=served.custom)
    if form == "partial-list":
        raise _no_such_form("PartialObjectMetadataList", f"not a list ({_go_type(served)})")
    if form == "table":
        include = request.query.text("includeObject", "Metadata")
        found = msgspec.json.decode(body)
        version = {"resourceVersion": found["metadata"].get("resourceVersion", "")}
        shown = tables.render(served, [found], now=now, include=include, list_metadata=version)
        return msgspec.json.encode(shown)
    if form == "partial":
        return msgspec.json.encode(forms.partial(msgspec.json.decode(body)))
    return body


def many(
    served: builtin.Served, page: lists.Page, request: requests.Request, *, now: float
) -> bytes:
    """A page of objects in the form that the client accepts."""
    form = forms.accepted(request.accept, custom=served.custom)
    if form == "table":
        shown = tables.render(
            served,
            (stored.decode() for stored in page.items),
            now=now,
            include=request.query.text("includeObject", "Metadata"),
            list_metadata=page.metadata(),
        )
        return msgspec.json.encode(shown)
    if form == "partial":
        raise _no_such_form("PartialObjectMetadata", f"a list ({_go_type(served, 'List')})")
    if form == "partial-list":
        return msgspec.json.encode(lists.partial_list(page))
    return lists.encode(served, page)


def _no_such_form(asked: str, found: str) -> statuses.StatusError:
    return statuses.not_acceptable(f"you requested {asked}, but the requested object is {found}")


def _go_type(served: builtin.Served, suffix: str = "") -> str:
    """What the real server calls it in that refusal."""
    if served.custom:
        return f"*unstructured.Unstructured{suffix}"
    package = served.resource.group.partition(".")[0] or "core"
    return f"*{package}.{served.resource.kind}{suffix}"
