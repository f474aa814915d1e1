"""The ASGI app: who asks, may they, what do they want, and the answer.

`build` makes it from the parts; `serving` listens with it. Requests for mounted paths (the REST
API of room `server`) pass the same authentication and go on with `scope["kiln.user"]`. This module
routes; what happens is in `crud`, `deletion`, `lists`, `watching` and `subresources`.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from kilnwork.api import meta, resource
from kilnwork.controlplane import errors
from kilnwork.controlplane.apiserver import (
    answers,
    authn,
    authz,
    bodies,
    builtin,
    crud,
    deletion,
    discovery,
    impersonation,
    lists,
    namespaces,
    patching,
    podlogs,
    requests,
    reviews,
    statuses,
    subresources,
    tables,
    tokens,
    watching,
)
from kilnwork.controlplane.apiserver import openapi as openapis
from kilnwork.kit import ids

log = logging.getLogger(__name__)

OPEN_PATHS = ("/healthz", "/readyz", "/livez", "/version")
"""What is answered without a credential."""

_NEED_A_NAME = ("update", "patch")


class Mount(NamedTuple):
    """An ASGI app under a path prefix; it sees the whole path.

    `asks`: only users with a credential get there, who are in `scope["kiln.user"]`; without, the
    app checks by itself who comes.
    """

    prefix: str
    app: requests.App
    asks: bool = True


Mounts = Sequence[Mount]
"""First match wins; read at each request, so that it may grow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the API server is made of; all of it is running when requests come."""

    writer: crud.Writer
    deleter: deletion.Deleter
    hub: watching.Hub
    keeper: namespaces.Keeper
    authenticator: authn.Authenticator
    authorizer: authz.Authorizer
    minter: tokens.Tokens
    logs: podlogs.PodLogs
    entropy: ids.Entropy
    address: str = ""


def build(parts: Parts, mounts: Mounts = (), *, kubernetes: bool = True) -> requests.App:
    """The app. Without `kubernetes` only the mounts and the health paths are served."""
    return _App(parts, mounts, kubernetes=kubernetes)


class _App:
    def __init__(self, parts: Parts, mounts: Mounts, *, kubernetes: bool) -> None:
        self._parts = parts
        self._mounts = mounts
        self._kubernetes = kubernetes

    async def __call__(
        self, scope: requests.Scope, receive: requests.Receive, send: requests.Send
    ) -> None:
        if scope["type"] != "http":
            return
        guarded = _Guarded(send)
        try:
            await self._serve(scope, receive, guarded)
        except statuses.StatusError as error:
            await guarded.refuse(error)
        except errors.StoreFailed as error:
            await guarded.refuse(statuses.unavailable(str(error)))
        except Exception:
            log.exception(
                "request failed", extra={"method": scope["method"], "path": scope["path"]}
            )
            await guarded.refuse(statuses.internal("see the server's log"))

    async def _serve(
        self, scope: requests.Scope, receive: requests.Receive, send: requests.Send
    ) -> None:
        path: str = scope["path"]
        mounted = self._mounted(path)
        if _is_open(path) or (mounted is not None and not mounted.asks):
            scope["kiln.user"] = authn.ANONYMOUS
            await (mounted.app if mounted is not None else _open_path)(scope, receive, send)
            return
        user = await self._authenticate(scope)
        if mounted is not None:
            scope["kiln.user"] = user
            await mounted.app(scope, receive, send)
            return
        if not self._kubernetes:
            raise statuses.unknown_path()
        request = requests.parse(scope, receive, user=user, find=_find)
        self._authorize(request)
        if request.resource is None:
            await self._document(request, send)
        elif reviews.find(
            request.resource.group, request.resource.version, request.resource.plural
        ):
            await self._review(request, send)
        else:
            await _Resources(self._parts, request, send).answer()

    def _mounted(self, path: str) -> Mount | None:
        for mount in self._mounts:
            if path == mount.prefix or path.startswith(mount.prefix.rstrip("/") + "/"):
                return mount
        return None

    async def _authenticate(self, scope: requests.Scope) -> authn.User:
        certificate = scope.get("state", {}).get("peer_certificate")
        user = await self._parts.authenticator.authenticate(scope["headers"], certificate)
        if user is None:
            raise statuses.unauthorized()
        return impersonation.acting(user, requests.headers(scope), self._parts.authorizer)

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
        if path.startswith("/openapi"):
            shown = openapis.document(path, accept=request.accept)
            if shown is None:
                raise statuses.unknown_path()
            await answers.raw(send, shown)
            return
        found = discovery.document(path, accept=request.accept, address=self._parts.address)
        if found is None:
            raise statuses.unknown_path()
        await answers.raw(send, msgspec.json.encode(found[0]), content_type=found[1])

    async def _review(self, request: requests.Request, send: requests.Send) -> None:
        if request.verb != "create":
            raise statuses.method_not_allowed()
        body = bodies.decode_object(await request.body(), request.content_type)
        shown = reviews.answer(
            request.served, body, user=request.user, authorizer=self._parts.authorizer
        )
        await answers.document(send, shown, code=201)


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


class _Resources:
    """One request for a resource."""

    def __init__(self, parts: Parts, request: requests.Request, send: requests.Send) -> None:
        self._parts = parts
        self._request = request
        self._send = send
        self._served = builtin.of(request.served)
        self._place = crud.where(request.served, request.namespace, request.name)
        self._now = parts.writer.clock.wall()

    async def answer(self) -> None:
        """Route by verb and subresource."""
        request = self._request
        if request.subresource:
            await self._subresource()
            return
        verbs: dict[str, Callable[[], Awaitable[None]]] = {
            "get": self._get,
            "list": self._list,
            "watch": self._watch,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }
        nowhere = request.served.namespaced and not request.namespace
        misplaced = request.verb == "create" if request.name else request.verb in _NEED_A_NAME
        if misplaced or (nowhere and request.verb in ("create", "deletecollection")):
            raise statuses.method_not_allowed()
        await verbs[request.verb]()

    async def _subresource(self) -> None:
        request = self._request
        found = self._served.subresource(request.subresource)
        if found is None:
            raise statuses.unknown_path()
        if request.verb not in found.verbs:
            raise statuses.method_not_allowed()
        if found.name == "log":
            await self._logs()
        elif found.name in ("status", "finalize"):
            verbs = {"get": self._get, "update": self._update, "patch": self._patch}
            await verbs[request.verb]()
        else:
            await self._post_below(found.name)

    async def _logs(self) -> None:
        writer = self._parts.writer
        pod = writer.lookup.get(resource.PODS, self._place.namespace, self._place.name)
        if pod is None:
            raise statuses.not_found(self._place.kind, self._place.name)
        await self._parts.logs.send(pod, self._request, reader=writer.lookup, send=self._send)

    async def _post_below(self, name: str) -> None:
        request, parts = self._request, self._parts
        body, options = await self._body(), self._options()
        if name == "binding":
            raw = await subresources.bind(parts.writer, self._place, body, options)
        elif name == "eviction":
            raw = await subresources.evict(
                parts.deleter, self._place, body, request, options=options
            )
        else:
            raw = await subresources.token(
                parts.writer, self._place, body, options, minter=parts.minter
            )
        await answers.raw(self._send, raw, code=201)

    def _options(self) -> crud.Options:
        query = self._request.query
        return crud.Options(
            user=self._request.user,
            dry_run=query.dry_run,
            field_validation=query.field_validation,
        )

    async def _body(self) -> meta.JsonObject:
        return bodies.decode_object(await self._request.body(), self._request.content_type)

    async def _send_one(self, raw: bytes, *, code: int = 200, warnings: Sequence[str] = ()) -> None:
        shown = answers.one(self._served, raw, self._request, now=self._now)
        headers = answers.warnings(warnings)
        await answers.raw(self._send, shown, code=code, headers=headers)

    async def _get(self) -> None:
        found = self._parts.writer.store.get(self._place.key)
        if found is None:
            raise statuses.not_found(self._place.kind, self._place.name)
        await self._send_one(found.raw)

    async def _list(self) -> None:
        chosen = lists.selection(self._request, self._served)
        page = lists.page(self._parts.writer.store, self._served, chosen, self._request.query)
        shown = answers.many(self._served, page, self._request, now=self._now)
        await answers.raw(self._send, shown)

    async def _watch(self) -> None:
        form = lists.accepted(self._request.accept)
        wants = watching.asked(
            self._request, self._served, form=self._form(form), entropy=self._parts.entropy
        )
        watch = self._parts.hub.open(wants)
        await answers.start(self._send, 200)
        await self._parts.hub.run(watch, self._request.receive, self._send)

    def _form(self, form: str) -> watching.Form | None:
        if form == "object":
            return None
        if form == "table":
            include = self._request.query.text("includeObject", "Metadata")
            clock, served = self._parts.writer.clock, self._served

            def row(raw: bytes) -> bytes:
                obj = msgspec.json.decode(raw)
                version = {"resourceVersion": obj["metadata"]["resourceVersion"]}
                shown = tables.render(
                    served, [obj], now=clock.wall(), include=include, list_metadata=version
                )
                return msgspec.json.encode(shown)

            return row
        return lambda raw: msgspec.json.encode(lists.partial(msgspec.json.decode(raw)))

    async def _create(self) -> None:
        outcome = await self._parts.writer.create(self._place, await self._body(), self._options())
        if self._place.kind == resource.NAMESPACES and not self._options().dry_run:
            await self._parts.keeper.furnish(msgspec.json.decode(outcome.raw)["metadata"]["name"])
        await self._send_one(outcome.raw, code=201, warnings=outcome.warnings)

    async def _update(self) -> None:
        outcome = await self._parts.writer.replace(
            self._place,
            await self._body(),
            self._options(),
            subresource=self._request.subresource,
        )
        await self._send_one(outcome.raw, warnings=outcome.warnings)

    async def _patch(self) -> None:
        request = self._request
        change = patching.decode(await request.body(), request.content_type, request.served)
        outcome = await self._parts.writer.change(
            self._place, change, self._options(), subresource=request.subresource
        )
        await self._send_one(outcome.raw, warnings=outcome.warnings)

    async def _delete(self) -> None:
        asked = await deletion.asked(self._request, self._options())
        outcome = await self._parts.deleter.delete(self._place, asked)
        kind = self._place.kind
        if not outcome.gone or kind in (resource.PODS, resource.SERVICE_ACCOUNTS):
            await self._send_one(outcome.raw)
            return
        uid = msgspec.json.decode(outcome.raw)["metadata"]["uid"]
        await answers.document(self._send, statuses.success(kind, self._place.name, uid=uid))

    async def _delete_collection(self) -> None:
        request = self._request
        asked = await deletion.asked(request, self._options())
        chosen = lists.selection(request, self._served)
        store = self._parts.writer.store
        page = lists.page(store, self._served, chosen, request.query)
        places = [
            replace(self._place, namespace=s.key.namespace, name=s.key.name) for s in page.items
        ]
        outcomes = await self._parts.deleter.delete_all(places, asked)
        shown = lists.encode_deleted(self._served, [o.raw for o in outcomes], store.sequence)
        await answers.raw(self._send, shown)


def _find(group: str, version: str, plural: str) -> resource.Resource | None:
    served = builtin.find(group, version, plural)
    return served.resource if served is not None else reviews.find(group, version, plural)


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
    return any(path == p or path.startswith(f"{p}/") for p in OPEN_PATHS)


async def _open_path(scope: requests.Scope, receive: requests.Receive, send: requests.Send) -> None:
    if scope["path"] == "/version":
        await answers.document(send, discovery.version())
    else:
        await answers.text(send, "ok")
