"""Responses on the wire: JSON bodies, lists, tables, Status, and their headers.

Used by `app` and `resource_handler`, which decide what to send. This module encodes it as JSON in
the shape that the client accepts; `encoding` makes YAML of it.
"""

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from kilnwork.controlplane.apiserver import (
    builtin,
    lists,
    requests,
    response_formats,
    statuses,
    tables,
)
from kilnwork.kit import asgi

HEADERS = ((b"cache-control", b"no-cache, private"),)
"""Default headers of every response (WithCacheControl of k8s.io/apiserver)."""


async def cacheable(
    response: asgi.Response,
    request: requests.ApiRequest,
    body: bytes,
    *,
    digest: str = "",
    content_type: str = asgi.JSON,
    forever: bool = False,
) -> None:
    """Send a body that clients may cache: with an ETag, or 304 if it matches (RFC 9110 §13.1.2).

    `digest`: the hash of the body, if known. `forever`: the URL names exactly this content.
    """
    tag = f'"{digest or hashlib.sha512(body).hexdigest().upper()}"'.encode()
    cache = b"public, immutable" if forever else b"public"
    # The default Cache-Control would forbid caching.
    response.headers = ()
    headers = [(b"etag", tag), (b"vary", b"Accept"), (b"cache-control", cache)]
    if request.headers.get("if-none-match", "").encode() == tag:
        await response.empty(304, headers)
        return
    await response.send(200, content_type, body, headers=headers)


async def document(response: asgi.Response, value: Any) -> None:
    """Send a JSON document."""
    await response.send(200, asgi.JSON, msgspec.json.encode(value))


async def refusal(response: asgi.Response, error: statuses.StatusError) -> None:
    """Send a Status, or Go's plain text for a path that is not served."""
    if isinstance(error, statuses.PathNotServed):
        await response.text(error.code, f"{error.message}\n")
        return
    headers = [(k.lower().encode(), v.encode("latin-1")) for k, v in error.headers.items()]
    headers += warnings(error.warnings)
    await response.send(error.code, asgi.JSON, error.body(), headers=headers)


def warnings(texts: Iterable[str]) -> asgi.Headers:
    """Return `Warning` headers (RFC 7234 §5.5) as Kubernetes sends them; clients print them."""
    return [(b"warning", f'299 - "{_quotable(text)}"'.encode()) for text in texts]


def _quotable(text: str) -> str:
    # A line break would end the header.
    plain = "".join(c if c.isprintable() else " " for c in text)
    return plain.replace("\\", "\\\\").replace('"', '\\"')


def one(
    served: builtin.ServedResource, body: bytes, request: requests.ApiRequest, *, now: float
) -> bytes:
    """Return an object encoded in the format that the client accepts."""
    form = response_formats.negotiate_shape(request.accept, custom=served.custom)
    if form == "partial-list":
        raise _no_such_form("PartialObjectMetadataList", f"not a list ({_go_type(served)})")
    if form == "table":
        include = request.query.text("includeObject", "Metadata")
        obj = msgspec.json.decode(body)
        version = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        shown = tables.render(served, [obj], now=now, include=include, list_metadata=version)
        return msgspec.json.encode(shown)
    if form == "partial":
        return msgspec.json.encode(response_formats.partial(msgspec.json.decode(body)))
    return body


def many(
    served: builtin.ServedResource,
    page: lists.ListPage,
    request: requests.ApiRequest,
    *,
    now: float,
) -> bytes:
    """Return a page of objects encoded in the format that the client accepts."""
    form = response_formats.negotiate_shape(request.accept, custom=served.custom)
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


def _go_type(served: builtin.ServedResource, suffix: str = "") -> str:
    """Return the Go type that kube-apiserver names in the error."""
    if served.custom:
        return f"*unstructured.Unstructured{suffix}"
    package = served.resource.group.partition(".")[0] or "core"
    return f"*{package}.{served.resource.kind}{suffix}"
