"""The ASGI app: who asks, may they, what do they want, and the answer.

`build` makes it from the parts; `serving` listens with it. Requests for mounted paths (the REST
API of room `server`) go to their app as they are, which may `authenticate` them as this one does.
This module routes; `resources` does.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from kilnwork.api import resource
from kilnwork.controlplane import errors, store
from kilnwork.controlplane.apiserver import (
    answers,
    authn,
    authz,
    bodies,
    discovery,
    duplicates,
    encoding,
    impersonation,
    options,
    reading,
    requests,
    resources,
    reviews,
    statuses,
)
from kilnwork.controlplane.apiserver import openapi as openapis
from kilnwork.controlplane.apiserver import parts as parts_

log = logging.getLogger(__name__)

OPEN_PATHS = ("/healthz", "/readyz", "/livez", "/version")
"""What is answered without a credential."""


class Mount(NamedTuple):
    """An ASGI app under a path prefix; it sees the whole path, and checks by itself who comes."""

    prefix: str
    app: requests.App


Mounts = Sequence[Mount]
"""First match wins; read at each request, so that it may grow."""


def build(parts: parts_.Parts, mounts: Mounts = (), *, kubernetes: bool = True) -> requests.App:
    """The app. Without `kubernetes` only the mounts and the health paths are served."""
    return _App(parts, mounts, kubernetes=kubernetes)


async def authenticate(
    parts: parts_.Parts, scope: requests.Scope, named: Mapping[str, str]
) -> authn.User | None:
    """The user of a request with the headers `named`, also one that acts as another; None without a
    good credential. Raises StatusError when they may not act as the other."""
    certificate = scope.get("state", {}).get("peer_certificate")
    user = await parts.authenticator.authenticate(scope["headers"], certificate)
    return None if user is None else impersonation.acting(user, named, parts.authorizer)


class _App:
    def __init__(self, parts: parts_.Parts, mounts: Mounts, *, kubernetes: bool) -> None:
        self._parts = parts
        self._mounts = mounts
        self._kubernetes = kubernetes
        self._openapi = openapis.Documents()
        self._reviewer = reviews.Reviewer(parts.authenticator, parts.authorizer)

    async def __call__(
        self, scope: requests.Scope, receive: requests.Receive, send: requests.Send
    ) -> None:
        if scope["type"] != "http":
            return
        mounted = self._mounted(scope["path"])
        guarded = _Guarded(send if mounted else encoding.Encoder(send, scope))
        try:
            await self._serve(scope, receive, guarded, mounted)
        except statuses.StatusError as error:
            await guarded.refuse(error)
        except errors.ObjectTooLarge:
            await guarded.refuse(statuses.too_large(store.MAX_OBJECT_BYTES))
        except errors.StoreFailed as error:
            await guarded.refuse(statuses.unavailable(str(error)))
        except Exception:
            log.exception(
                "request failed", extra={"method": scope["method"], "path": scope["path"]}
            )
            await guarded.refuse(statuses.internal("see the server's log"))

    async def _serve(
        self,
        scope: requests.Scope,
        receive: requests.Receive,
        send: requests.Send,
        mounted: Mount | None,
    ) -> None:
        if mounted is not None or _is_open(scope["path"]):
            await (mounted.app if mounted is not None else _open_path)(scope, receive, send)
            return
        named = requests.headers(scope)
        user = await self._authenticate(scope, named, anonymous=self._kubernetes)
        if not self._kubernetes:
            raise statuses.NoPage
        request = requests.parse(scope, receive, user=user, find=self._find, named=named)
        self._authorize(request)
        if request.resource is None:
            await self._document(request, send)
        elif reviews.find(
            request.resource.group, request.resource.version, request.resource.plural
        ):
            await self._review(request, send)
        else:
            await resources.Resources(self._parts, request, send).answer()

    def _find(self, group: str, version: str, plural: str) -> resource.Resource | None:
        served = self._parts.writer.kinds.find(group, version, plural)
        found = served.resource if served is not None else reviews.find(group, version, plural)
        if found is None and not discovery.is_built_in(group, version):
            raise statuses.NoPage
        return found

    def _mounted(self, path: str) -> Mount | None:
        for mount in self._mounts:
            prefix = mount.prefix
            if path.startswith(prefix) and _is_below(path, prefix):
                return mount
        return None

    async def _authenticate(
        self, scope: requests.Scope, named: Mapping[str, str], *, anonymous: bool
    ) -> authn.User:
        user = await authenticate(self._parts, scope, named)
        if user is not None:
            return user
        if anonymous and authn.bearer_token(scope["headers"]) is None:
            return impersonation.acting(authn.ANONYMOUS, named, self._parts.authorizer)
        raise statuses.unauthorized()

    def _authorize(self, request: requests.Request) -> None:
        asked = _attributes(request)
        if self._parts.authorizer.allowed(request.user, asked).allowed:
            return
        raise statuses.forbidden(
            authz.refusal(request.user, asked), what=request.resource, name=request.name
        )

    async def _document(self, request: requests.Request, send: requests.Send) -> None:
        if request.method not in ("GET", "HEAD"):
            raise statuses.method_not_allowed()
        path = request.path.rstrip("/")
        kinds = self._parts.writer.kinds.served
        if path.startswith("/openapi"):
            await self._describe(path, request, send)
            return
        found = discovery.document(
            path, accept=request.accept, address=self._parts.address, kinds=kinds
        )
        if found is None:
            raise statuses.unknown_path() if path.startswith("/api/") else statuses.NoPage
        body, media = msgspec.json.encode(found[0]), found[1]
        if media == answers.JSON:
            await answers.raw(send, body)
        else:
            await answers.cacheable(send, request, body, content_type=media)

    async def _describe(self, path: str, request: requests.Request, send: requests.Send) -> None:
        kinds = self._parts.writer.kinds.served
        page = self._openapi.find(path, kinds, accept=request.accept)
        if page is None:
            raise statuses.NoPage
        wanted = request.query.text("hash")
        if wanted and wanted != page.digest:
            await answers.redirect(send, f"{path}?hash={page.digest}")
            return
        await answers.cacheable(
            send,
            request,
            page.body,
            digest=page.digest,
            content_type=page.media_type,
            forever=wanted == page.digest,
        )

    async def _review(self, request: requests.Request, send: requests.Send) -> None:
        if request.name:
            raise statuses.unknown_path()
        if request.verb != "create":
            raise statuses.method_not_allowed()
        raw = await request.body()
        body = bodies.decode_object(raw, request.content_type)
        how = options.WriteOptions.parse(request.query, verb=request.verb)
        twice = duplicates.texts(raw, request.content_type, body, typed=True)
        warnings = reading.judge_body(
            request.served, body, field_validation=how.field_validation, oddities=twice
        )
        shown = msgspec.json.encode(self._reviewer.answer(request, body))
        await answers.raw(send, shown, code=201, headers=answers.warnings(warnings))


class _Guarded:
    """`send` that remembers whether an answer has begun: after that no Status can be sent."""

    def __init__(self, send: requests.Send) -> None:
        self._send = send
        self._begun = False

    async def __call__(self, message: requests.Message) -> None:
        self._begun = True
        await self._send(message)

    async def refuse(self, error: statuses.StatusError) -> None:
        if not self._begun:
            await answers.refusal(self._send, error)


def _attributes(request: requests.Request) -> authz.Attributes:
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


def _selected_name(request: requests.Request) -> str:
    """`fieldSelector=metadata.name=x` asks for one object: rules by resourceNames hold for it."""
    if request.verb not in ("list", "watch", "deletecollection"):
        return ""
    text = request.query.text("fieldSelector")
    prefix = "metadata.name="
    return text.removeprefix(prefix) if text.startswith(prefix) and "," not in text else ""


def _is_open(path: str) -> bool:
    return path.startswith(OPEN_PATHS) and any(_is_below(path, p) for p in OPEN_PATHS)


def _is_below(path: str, prefix: str) -> bool:
    """Whether `path`, which may begin with the letters of `prefix`, is there or below it."""
    return path == prefix or path.startswith(prefix.rstrip("/") + "/")


async def _open_path(scope: requests.Scope, receive: requests.Receive, send: requests.Send) -> None:
    if scope["path"] == "/version":
        await answers.document(send, discovery.version())
    else:
        await answers.text(send, "ok")
