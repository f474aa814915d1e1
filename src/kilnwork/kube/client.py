"""A client with the verbs of a Kubernetes API for any resource, as coroutines.

Used by reflectors, controllers, the local node and the command line. Objects are passed as anything
that encodes to JSON and returned as JSON or as the requested struct. Raises the classes of
`kube.errors`; `transport` documents the cases in which a request is repeated automatically.
"""

import builtins
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar, overload
from urllib import parse

import msgspec

from kilnwork.api import api_resources as resources
from kilnwork.api import meta
from kilnwork.kit import asgi, clock, http_types
from kilnwork.kube import config, errors, object_decoding, objects, transport, watch_stream

T = TypeVar("T")

PAGE = 500
"""Number of objects per page of a list: what client-go uses; decoding them takes a few
milliseconds.
"""
WATCH_S = 60
"""Seconds that one watch request lasts before it is repeated. Short, since a real server may forget
an open watch: one that began while its CRD was replaced never reports anything. This costs one
request per minute, and the server sends a bookmark right before it ends a watch.
"""
LATE_S = 15
"""Seconds after `WATCH_S` by which a server must have ended a watch; later the watch counts as
dead.
"""


class Listed(msgspec.Struct, Generic[T], frozen=True):
    """A page of a list, or a whole list.

    `continue_` is empty at the end of the list. `unreadable`: keys of the objects that cannot be
    decoded, with an empty name if even the name cannot be read.
    """

    items: Sequence[T]
    resource_version: str
    continue_: str = ""
    unreadable: Sequence[objects.Key] = ()


class Client:
    """A client of one API server; an async context manager.

    A namespaced request without a namespace uses that of the object, else that of the
    configuration; `list` and `watch` without a namespace are for all namespaces. `timeout_s` limits
    every request except watches and endless streams. `app`: the server itself, if it is in this
    process.
    """

    def __init__(
        self,
        settings: config.Config,
        *,
        user_agent: str = "kilnwork",
        timeout_s: float = 30.0,
        time: clock.Clock | None = None,
        app: asgi.App | None = None,
    ) -> None:
        self.config = settings
        self._timeout_s = timeout_s
        self._http = transport.Transport(
            settings, user_agent=user_agent, time=time or clock.SystemClock(), app=app
        )

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._http.__aexit__(*exc)

    @property
    def throttled(self) -> int:
        """How often a request had to wait because the server was too busy (429); for metrics."""
        return self._http.throttled

    @overload
    async def get(
        self, resource: resources.Resource, name: str, namespace: str | None = None
    ) -> meta.JsonObject: ...

    @overload
    async def get(
        self,
        resource: resources.Resource,
        name: str,
        namespace: str | None = None,
        *,
        type: type[T],
    ) -> T: ...

    async def get(
        self,
        resource: resources.Resource,
        name: str,
        namespace: str | None = None,
        *,
        type: Any = dict,  # noqa: A002
    ) -> Any:
        """Return an object in its current state on the server."""
        response = await self.raw("GET", self._path(resource, name, namespace))
        return object_decoding.whole(response.body, type)

    async def list(
        self,
        resource: resources.Resource,
        namespace: str | None = None,
        *,
        type: type[T],  # noqa: A002
        label_selector: str = "",
        field_selector: str = "",
    ) -> Listed[T]:
        """Return all objects of a resource at one resource version.

        Objects that cannot be decoded are omitted from the items.
        """

        async def gather(limit: int) -> Listed[T]:
            items: builtins.list[T] = []
            unreadable: builtins.list[objects.Key] = []
            last: Listed[T] = Listed((), "")
            async for last in self.pages(
                resource,
                namespace,
                type=type,
                label_selector=label_selector,
                field_selector=field_selector,
                limit=limit,
            ):
                items.extend(last.items)
                unreadable.extend(last.unreadable)
            # All pages are of one snapshot, so the version of any of them would do.
            return Listed(items, last.resource_version, unreadable=unreadable)

        try:
            return await gather(PAGE)
        except errors.Expired:
            return await gather(0)  # the server dropped the snapshot between two pages

    async def pages(
        self,
        resource: resources.Resource,
        namespace: str | None = None,
        *,
        type: type[T],  # noqa: A002
        label_selector: str = "",
        field_selector: str = "",
        limit: int = PAGE,
    ) -> AsyncGenerator[Listed[T], None]:
        """Yield a list in pages, all of one snapshot.

        Raises Expired if the server drops the snapshot meanwhile.
        """
        # A limit of 0 asks for the whole list as one page.
        query = _selection(label_selector, field_selector, limit=str(limit))
        while True:
            page = await self._page(resource, namespace, type, query=query)
            yield page
            if not page.continue_:
                return
            query["continue"] = page.continue_

    async def create(
        self,
        resource: resources.Resource,
        obj: Any,
        namespace: str | None = None,
        *,
        strict: bool = False,
        acts_as: str = "",
        dry_run: bool = False,
    ) -> meta.JsonObject:
        """Create `obj` (its metadata has name or generateName); return the stored object.

        `strict`: raise Invalid for fields that the server does not know, instead of dropping them.
        `acts_as`: the user to impersonate; requires the verb `impersonate` on that user. `dry_run`:
        the server checks the request without storing anything.
        """
        namespace = namespace or objects.key(obj)[0] or None
        path = self._path(resource, None, namespace)
        query = _given(
            {"fieldValidation": "Strict" if strict else "", "dryRun": "All" if dry_run else ""}
        )
        headers = {"Impersonate-User": acts_as} if acts_as else None
        return await self._send("POST", path, _typed(resource, obj), query=query, headers=headers)

    async def replace(
        self,
        resource: resources.Resource,
        obj: Any,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> meta.JsonObject:
        """Replace the object that has the name of `obj`, and return the stored object.

        Raises Conflict if the object has changed since `obj` was read.
        """
        # A resourceVersion in `obj` makes the server check that nothing has changed.
        in_object, name = objects.key(obj)
        path = self._path(resource, name, namespace or in_object or None, subresource)
        return await self._send("PUT", path, _typed(resource, obj))

    async def merge_patch(
        self,
        resource: resources.Resource,
        name: str,
        patch: Any,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> meta.JsonObject:
        """Apply a JSON merge patch (RFC 7386) to an object, and return the stored object.

        Raises Conflict for an outdated resourceVersion in the patch.
        """
        path = self._path(resource, name, namespace, subresource)
        return await self._send("PATCH", path, patch, content_type=http_types.MERGE_PATCH)

    async def json_patch(
        self,
        resource: resources.Resource,
        name: str,
        operations: Sequence[meta.JsonObject],
        namespace: str | None = None,
    ) -> meta.JsonObject:
        """Apply a JSON patch (RFC 6902) to an object, and return the stored object.

        Raises Conflict if the patch replaces an outdated resourceVersion.
        """
        path = self._path(resource, name, namespace)
        return await self._send("PATCH", path, operations, content_type=http_types.JSON_PATCH)

    async def apply(
        self,
        resource: resources.Resource,
        obj: meta.JsonObject,
        *,
        manager: str,
        force: bool = False,
        subresource: str | None = None,
    ) -> meta.JsonObject:
        """Apply an object server-side (KEP-555), and return the stored object.

        `obj` contains all fields that `manager` is to own. Creates the object if it does not exist.
        Raises Conflict if another manager owns one of the fields, unless `force` is set.
        """
        namespace, name = objects.key(obj)
        path = self._path(resource, name, namespace or None, subresource)
        query = _given({"fieldManager": manager, "force": "true" if force else ""})
        return await self._send(
            "PATCH", path, _typed(resource, obj), content_type=http_types.APPLY, query=query
        )

    async def delete(  # noqa: PLR0913 - what DeleteOptions have
        self,
        resource: resources.Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_s: int | None = None,
        propagation: str | None = None,
    ) -> meta.JsonObject:
        """Request the deletion of an object.

        Raises Conflict if `uid` is given and another object has the name now, or if
        `resource_version` is given and the object has changed since. `propagation`: Background,
        Foreground or Orphan; None: the server's default.
        """
        options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        conditions = {"uid": uid, "resourceVersion": resource_version}
        if given := {name: value for name, value in conditions.items() if value is not None}:
            options["preconditions"] = given
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if propagation is not None:
            options["propagationPolicy"] = propagation
        return await self._send("DELETE", self._path(resource, name, namespace), options)

    async def create_sub(
        self,
        resource: resources.Resource,
        name: str,
        sub: str,
        body: Any,
        namespace: str | None = None,
    ) -> meta.JsonObject:
        """Create a subresource of an object: `token` of a ServiceAccount, `eviction` of a Pod."""
        return await self._send("POST", self._path(resource, name, namespace, sub), body)

    async def watch(
        self,
        resource: resources.Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        type: type[T],  # noqa: A002
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncGenerator[watch_stream.Change[T], None]:
        """Yield changes after `resource_version`, until the server ends the stream.

        The end of the stream is no error. Raises Expired if the server no longer has the changes
        since then. Close the generator (`contextlib.aclosing`) when leaving it early.
        """
        query = _selection(
            label_selector,
            field_selector,
            watch="true",
            allowWatchBookmarks="true",
            resourceVersion=resource_version,
            timeoutSeconds=str(WATCH_S),
        )
        request = http_types.ClientRequest(
            method="GET",
            path=_base(resource, namespace),
            query=query,
            # The server should end the watch first; this limit is for a server that does not.
            timeout_s=WATCH_S + LATE_S,
            head_timeout_s=self._timeout_s,
        )
        async with self._http.watch(request) as content:
            async for lines in watch_stream.batches(self._http, content):
                for line in lines:
                    yield watch_stream.change(line, type)

    async def raw(  # noqa: PLR0913 - what a request has
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = http_types.JSON,
        accept: str = http_types.JSON,
        headers: Mapping[str, str] | None = None,
    ) -> http_types.ClientResponse:
        """Send a request with any method and encoded path, and return the response.

        For requests that have no method here (discovery, Tables).
        """
        request = http_types.ClientRequest(
            method=method,
            path=path,
            query=query,
            body=body,
            content_type=content_type,
            accept=accept,
            timeout_s=self._timeout_s,
            headers=headers,
        )
        return await self._http.send(request)

    async def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, endless: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """Send a GET for an encoded path, and yield the body of the response as it arrives.

        `endless`: no time limit, for a log that is followed. Close the generator
        (`contextlib.aclosing`) when leaving it early.
        """
        request = http_types.ClientRequest(
            method="GET",
            path=path,
            query=query,
            accept="*/*",
            timeout_s=None if endless else self._timeout_s,
            head_timeout_s=self._timeout_s,
        )
        async with self._http.open(request) as response:
            transport.keep_alive(response)
            async for piece in watch_stream.pieces(self._http, response.content):
                yield piece

    async def _send(
        self,
        method: str,
        path: str,
        body: Any,
        *,
        content_type: str = http_types.JSON,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> meta.JsonObject:
        response = await self.raw(
            method,
            path,
            query=query,
            body=msgspec.json.encode(body),
            content_type=content_type,
            headers=headers,
        )
        return object_decoding.whole(response.body, dict)

    async def _page(
        self,
        resource: resources.Resource,
        namespace: str | None,
        as_type: type[T],
        *,
        query: Mapping[str, str],
    ) -> Listed[T]:
        response = await self.raw("GET", _base(resource, namespace), query=query)
        items, metadata, unreadable = object_decoding.items(response.body, as_type)
        return Listed(items, metadata.resource_version, metadata.continue_, unreadable)

    def _path(
        self,
        resource: resources.Resource,
        name: str | None,
        namespace: str | None,
        sub: str | None = None,
    ) -> str:
        path = _base(resource, namespace or self.config.namespace)
        for part in (name, sub):
            if part is not None:
                path += "/" + _segment(part)
        return path


def _typed(resource: resources.Resource, obj: Any) -> Any:
    """Return the object with apiVersion and kind, which a server requires for custom resources."""
    if not isinstance(obj, dict):
        return obj
    return {"apiVersion": resource.api_version, "kind": resource.kind, **obj}


def _base(resource: resources.Resource, namespace: str | None) -> str:
    return resource.base(None if namespace is None else _segment(namespace))


def _segment(text: str) -> str:
    """Return the text as one segment of a URL path.

    It is checked by the server's rule, IsValidPathSegmentName.
    """
    if text in ("", ".", "..") or "/" in text or "%" in text:
        raise errors.Invalid(400, "BadRequest", f'"{text}" cannot be the name of an object')
    return parse.quote(text, safe="")


def _selection(label_selector: str, field_selector: str, **more: str) -> dict[str, str]:
    return _given({"labelSelector": label_selector, "fieldSelector": field_selector, **more})


def _given(query: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in query.items() if value}
