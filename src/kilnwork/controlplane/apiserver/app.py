"""The ASGI app of the API server: authentication, authorization, routing and error responses.

`build` creates it from the parts; `serving` listens with it. Requests for mounted paths (the REST
API of package `server`) go to the mounted app unchanged, which may call `authenticate`. This module
routes; `resource_handler` executes.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from kilnwork.api import api_resources, selectors
from kilnwork.controlplane import errors, store
from kilnwork.controlplane.apiserver import (
    authn,
    authz,
    bodies,
    discovery,
    duplicates,
    encoding,
    impersonation,
    options,
    requests,
    resource_handler,
    responses,
    reviews,
    statuses,
    typed_decoding,
)
from kilnwork.controlplane.apiserver import openapi as openapis
from kilnwork.kit import asgi

log = logging.getLogger(__name__)

OPEN_PATHS = ("/healthz", "/readyz", "/livez", "/version", "/version/")
"""Paths that need no credential; paths below them do."""


class Mount(NamedTuple):
    """ASGI app that is mounted under a path prefix.

    It receives the whole path and authenticates its own requests.
    """

    prefix: str
    app: asgi.App


Mounts = Sequence[Mount]
"""First match wins. Read at each request, so mounts may be added later."""


def build(
    parts: resource_handler.ServerParts, mounts: Mounts = (), *, kubernetes: bool = True
) -> asgi.App:
    """Return the ASGI app of the API server.

    Without `kubernetes` it serves only the mounts and the health paths.
    """
    return _App(parts, mounts, kubernetes=kubernetes)


async def authenticate(
    parts: resource_handler.ServerParts, request: asgi.Request, named: Mapping[str, str]
) -> authn.User | None:
    """Return the user of a request, or None without a valid credential.

    `named`: the headers by lower-case name (`requests.headers`). With `Impersonate-*` headers this
    is the impersonated user. Raises StatusError when the impersonation is not allowed.
    """
    user = await parts.authenticator.authenticate(request)
    return None if user is None else impersonation.impersonated_user(user, named, parts.authorizer)


class _App:
    def __init__(
        self, parts: resource_handler.ServerParts, mounts: Mounts, *, kubernetes: bool
    ) -> None:
        self._parts = parts
        self._mounts = mounts
        self._kubernetes = kubernetes
        self._openapi = openapis.Documents()
        self._reviewer = reviews.Reviewer(parts.authenticator, parts.authorizer)

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        app = self._mounted(scope["path"])
        # Mounted apps encode their own responses.
        encoder = send if app else encoding.Encoder(send, scope)
        response = asgi.Response(encoder, headers=responses.HEADERS)
        try:
            if app is not None:
                await app(scope, receive, response)
            else:
                await self._serve(asgi.Request(scope, receive), response)
        except asgi.Disconnected:
            return
        except Exception as error:  # noqa: BLE001  no caller above can respond
            refusal = _refusal(scope, error)
            # Otherwise the client has a status already, and nothing can be added.
            if not response.started:
                await responses.refusal(response, refusal)

    async def _serve(self, sent: asgi.Request, response: asgi.Response) -> None:
        # Before authentication, as health probes have no credential.
        if sent.path in OPEN_PATHS:
            await _open_path(sent, response)
            return
        named = requests.headers(sent)
        user = await self._authenticate(sent, named, anonymous=self._kubernetes)
        if not self._kubernetes:
            raise statuses.PathNotServed
        request = requests.parse(sent, user=user, find=self._find, named=named)
        self._authorize(request)
        if request.resource is None:
            await self._document(request, response)
        elif reviews.find(
            request.resource.group, request.resource.version, request.resource.plural
        ):
            await self._review(request, response)
        else:
            await resource_handler.ResourceHandler(self._parts, request, response).handle()

    def _find(self, group: str, version: str, plural: str) -> api_resources.Resource | None:
        served = self._parts.writer.kinds.find(group, version, plural)
        found = served.resource if served is not None else reviews.find(group, version, plural)
        if found is None and not discovery.is_built_in(group, version):
            raise statuses.PathNotServed
        return found

    def _mounted(self, path: str) -> asgi.App | None:
        for prefix, app in self._mounts:
            if path.startswith(prefix) and _is_below(path, prefix):
                return app
        return None

    async def _authenticate(
        self, request: asgi.Request, named: Mapping[str, str], *, anonymous: bool
    ) -> authn.User:
        user = await authenticate(self._parts, request, named)
        if user is not None:
            return user
        # Only a request without a credential is anonymous; one with a bad token is refused.
        if anonymous and not request.bearer_token:
            return impersonation.impersonated_user(authn.ANONYMOUS, named, self._parts.authorizer)
        raise statuses.unauthorized()

    def _authorize(self, request: requests.ApiRequest) -> None:
        asked = _attributes(request)
        if self._parts.authorizer.allowed(request.user, asked).allowed:
            return
        raise statuses.forbidden(
            authz.denial_message(request.user, asked), what=request.resource, name=request.name
        )

    async def _document(self, request: requests.ApiRequest, response: asgi.Response) -> None:
        if request.method not in ("GET", "HEAD"):
            raise statuses.method_not_allowed()
        path = request.path.rstrip("/")
        kinds = self._parts.writer.kinds.served
        if path.startswith("/openapi"):
            await self._describe(path, request, response)
            return
        found = discovery.document(
            path, accept=request.accept, address=self._parts.address, kinds=kinds
        )
        if found is None:
            raise statuses.unknown_path() if path.startswith("/api/") else statuses.PathNotServed
        body, media = msgspec.json.encode(found[0]), found[1]
        # Only aggregated discovery has an ETag, as in the real server.
        if media == asgi.JSON:
            await response.send(200, media, body)
        else:
            await responses.cacheable(response, request, body, content_type=media)

    async def _describe(
        self, path: str, request: requests.ApiRequest, response: asgi.Response
    ) -> None:
        kinds = self._parts.writer.kinds.served
        page = self._openapi.find(path, kinds, accept=request.accept)
        if page is None:
            raise statuses.PathNotServed
        wanted = request.query.text("hash")
        # As kube-openapi does for the hash of an older document.
        if wanted and wanted != page.digest:
            location = f"{path}?hash={page.digest}".encode()
            await response.empty(301, ((b"location", location), (b"content-length", b"0")))
            return
        await responses.cacheable(
            response,
            request,
            page.body,
            digest=page.digest,
            content_type=page.media_type,
            forever=wanted == page.digest,
        )

    async def _review(self, request: requests.ApiRequest, response: asgi.Response) -> None:
        if request.name:
            raise statuses.unknown_path()
        if request.verb != "create":
            raise statuses.method_not_allowed()
        raw = await request.body()
        body = bodies.decode_object(raw, request.content_type)
        how = options.WriteOptions.parse(request.query, verb=request.verb)
        twice = duplicates.find_duplicates(raw, request.content_type, body, typed=True)
        warnings = typed_decoding.check_body(
            request.served, body, field_validation=how.field_validation, oddities=twice
        )
        shown = msgspec.json.encode(self._reviewer.review(request, body))
        await response.send(201, asgi.JSON, shown, headers=responses.warnings(warnings))


def _refusal(scope: asgi.Scope, error: Exception) -> statuses.StatusError:
    """Return the error Status with which the server responds after an exception."""
    match error:
        case statuses.StatusError():
            return error
        case errors.ObjectTooLarge():
            return statuses.too_large(store.MAX_OBJECT_BYTES)
        case errors.StoreFailed():
            return statuses.unavailable(str(error))
    facts = {"method": scope["method"], "path": scope["path"]}
    log.error("request failed", exc_info=error, extra=facts)
    return statuses.internal("see the server's log")


def _attributes(request: requests.ApiRequest) -> authz.Attributes:
    if request.resource is None:
        return authz.Attributes(verb=request.verb, path=request.path)
    return authz.Attributes(
        verb=request.verb,
        api_group=request.resource.group,
        resource=request.resource.plural,
        subresource=request.subresource,
        namespace=request.namespace,
        name=request.name or _selected_name(request),
    )


def _selected_name(request: requests.ApiRequest) -> str:
    """Return the name that `fieldSelector` requires with `metadata.name=NAME`, or "".

    The resourceNames of RBAC rules apply to this name.
    """
    if request.verb not in ("list", "watch", "deletecollection"):
        return ""
    try:
        fields = selectors.parse_fields(request.query.text("fieldSelector"))
    except selectors.SelectorError:
        return ""
    return fields.exact("metadata.name") or ""


def _is_below(path: str, prefix: str) -> bool:
    """Return whether a path equals a prefix or is below it.

    A path that merely begins with the same letters is not.
    """
    return path == prefix or path.startswith(prefix.rstrip("/") + "/")


async def _open_path(request: asgi.Request, response: asgi.Response) -> None:
    if request.path.startswith("/version"):
        await responses.document(response, discovery.version())
    else:
        await response.text(200, "ok")
