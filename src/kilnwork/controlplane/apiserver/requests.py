"""Parsing of a request into verb, resource, namespace, name and query.

Follows k8s.io/apiserver/pkg/endpoints/request. This module does not access the store and decides
nothing.
"""

import re
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Self

import msgspec

from kilnwork.api import api_resources as kinds
from kilnwork.controlplane.apiserver import authn, statuses
from kilnwork.kit import asgi

Find = Callable[[str, str, str], kinds.Resource | None]
"""(group, version, plural) → the served resource, or None."""

_NUMBER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
"""Pattern of integers with at most 18 digits, so that they fit into 64 bits (strconv.ParseInt of
Go)."""

# Go skips a pair with a semicolon (net/url since 1.17).
_BROKEN = re.compile("%(?![0-9A-Fa-f]{2})|;")

_SHOWN = 40
"""Number of characters of an invalid value that the error message shows."""


class Query(msgspec.Struct, frozen=True):
    """Parsed query string of a URL.

    A flag is False if it is absent, `0` or `false` (upper or lower case), else True.
    """

    values: Mapping[str, str]

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """Parse a query string, keeping the first value of each name, like Go's url.ParseQuery.

        Blank values are kept; malformed pairs are skipped.
        """
        if not raw:
            return cls({})
        pairs = [p for p in raw.decode("latin-1").split("&") if not _BROKEN.search(p)]
        values: dict[str, str] = {}
        for name, value in urllib.parse.parse_qsl("&".join(pairs), keep_blank_values=True):
            values.setdefault(name, value)
        return cls(values)

    def text(self, name: str, default: str = "") -> str:
        return self.values.get(name, default)

    def flag(self, name: str) -> bool:
        """Return whether the flag is set (rule of Convert_Slice_string_To_bool in apimachinery)."""
        value = self.values.get(name)
        return value is not None and value.lower() not in ("0", "false")

    def number(self, name: str) -> int | None:
        """Return the integer value of `name`, or None if absent. Raises 400 for other values."""
        value = self.values.get(name)
        if value is None:
            return None
        if not _NUMBER.fullmatch(value):
            shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
            raise statuses.bad_request(f'strconv.ParseInt: parsing "{shown}": invalid syntax')
        return int(value)


class RequestTarget(msgspec.Struct, frozen=True):
    """Resource, object or subresource that a URL path names.

    `subresource` may contain slashes (`proxy/a/b`).
    """

    resource: kinds.Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class ApiRequest(msgspec.Struct, frozen=True):
    """One request of an authenticated user, as Kubernetes reads it (RequestInfo there)."""

    verb: str
    """The RBAC verb: get, list, watch, create, update, patch, delete or deletecollection; for other
    paths the HTTP method in lower case."""
    method: str
    path: str
    resource: kinds.Resource | None
    """None for paths that name no resource (discovery, health)."""
    namespace: str
    """Empty for all namespaces and for cluster-scoped resources, except that a request for a
    Namespace has its name here: it is authorized in that namespace."""
    name: str
    subresource: str
    query: Query
    headers: Mapping[str, str]
    """Header values by lower-case name."""
    user: authn.User
    http: asgi.Request

    @property
    def content_type(self) -> str:
        """Return the media type of the body without parameters; JSON when it is not given."""
        header = self.headers.get("content-type", "")
        return header.partition(";")[0].strip().lower() or "application/json"

    @property
    def accept(self) -> str:
        """Return the Accept header as sent; `*/*` when absent."""
        return self.headers.get("accept", "") or "*/*"

    @property
    def served(self) -> kinds.Resource:
        """Return the resource. Raises 404 if the request has none."""
        if self.resource is None:
            raise statuses.unknown_path()
        return self.resource

    async def body(self, *, limit: int = statuses.MAX_BODY_BYTES) -> bytes:
        """Return the whole body. Call it once.

        Raises 413 beyond `limit` bytes, 504 if the client stops sending.
        """
        try:
            return await self.http.body().read(limit=limit)
        except asgi.BodyTooLarge as error:
            raise statuses.too_large(limit) from error
        except asgi.BodyStalled as error:
            raise statuses.timed_out() from error


def headers(request: asgi.Request) -> dict[str, str]:
    """Return the headers by lower-case name; values of a repeated header are joined by commas."""
    by_name: dict[str, str] = {}
    for raw_name, raw_value in request.scope.get("headers", ()):
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        by_name[name] = f"{by_name[name]},{value}" if name in by_name else value
    return by_name


def parse(
    request: asgi.Request,
    *,
    user: authn.User,
    find: Find,
    named: Mapping[str, str] | None = None,
) -> ApiRequest:
    """Parse a request.

    Raises 404 for a resource path that is not served, 405 for a method without a verb, 400 for the
    names `.` and `..`.

    `named` are the headers, if the caller has parsed them already.
    """
    method, path = request.method, request.path
    query = Query.parse(request.scope.get("query_string", b""))
    target = split(path, find)
    verb = method.lower() if target is None else _verb(method, target, query)
    return ApiRequest(
        verb=verb,
        method=method,
        path=path,
        resource=None if target is None else target.resource,
        namespace="" if target is None else target.namespace,
        name="" if target is None else target.name,
        subresource="" if target is None else target.subresource,
        query=query,
        headers=headers(request) if named is None else named,
        user=user,
        http=request,
    )


def split(path: str, find: Find) -> RequestTarget | None:
    """Return the target of a path, or None for a path without a resource.

    Raises 404 for a resource that is not served.
    """
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 3 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) >= 4 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    # `status` and `finalize` are subresources of the Namespace (namespaceSubresources upstream).
    if rest[0] == "namespaces" and len(rest) >= 3 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    served = find(group, version, rest[0])
    if served is None or (namespace and not served.namespaced):
        raise statuses.unknown_path()
    name = rest[1] if len(rest) > 1 else ""
    if name and served.namespaced and not namespace:
        raise statuses.unknown_path()
    # A name must be a valid segment of a path (IsValidPathSegmentName of apimachinery).
    if name in (".", ".."):
        raise statuses.bad_request(f"Name parameter invalid: \"{name}\": may not be '{name}'")
    # A request for a Namespace is authorized in that namespace, as in Kubernetes.
    if rest[0] == "namespaces":
        namespace = name
    return RequestTarget(served, namespace, name, "/".join(rest[2:]))


def _verb(method: str, target: RequestTarget, query: Query) -> str:
    if method == "GET":
        if target.name:
            return "get"
        return "watch" if query.flag("watch") else "list"
    if method == "DELETE":
        return "delete" if target.name else "deletecollection"
    verb = {"POST": "create", "PUT": "update", "PATCH": "patch"}.get(method)
    if verb is None:
        raise statuses.method_not_allowed()
    return verb
