"""Execution of one request for a resource: routing by verb and subresource, and the response.

Used by `app`, which has authenticated and authorized the request. The work is done by
`object_writer`, `deletion`, `lists`, `watches`, and the modules of the subresources.
"""

import itertools
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from kilnwork.api import api_resources, meta
from kilnwork.controlplane.apiserver import (
    authn,
    authz,
    bodies,
    deletion,
    duplicates,
    lists,
    managed_fields,
    namespaces,
    object_writer,
    options,
    patches,
    podexec,
    podlogs,
    posted_subresources,
    requests,
    response_formats,
    responses,
    scale_subresource,
    statuses,
    tables,
    tokenrequests,
    tokens,
    typed_decoding,
    watch_stream,
    watches,
    write_types,
)
from kilnwork.kit import asgi, ids

_NEED_A_NAME = ("update", "patch")
_POSTED = {
    "binding": posted_subresources.BINDING,
    "eviction": posted_subresources.EVICTION,
    "token": tokenrequests.RESOURCE,
}
"""Kinds of the bodies that are posted to subresources."""


class ServerParts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the API server, which `cluster` creates and starts."""

    writer: object_writer.ObjectWriter
    deleter: deletion.Deleter
    hub: watches.WatchHub
    namespace_controller: namespaces.NamespaceController
    authenticator: authn.Authenticator
    authorizer: authz.Authorizer
    minter: tokens.TokenIssuer
    logs: podlogs.PodLogs
    streams: podexec.PodStreams
    entropy: ids.Entropy
    address: str = ""


class ResourceHandler:
    """Handler of one request for a resource."""

    def __init__(
        self, parts: ServerParts, request: requests.ApiRequest, response: asgi.Response
    ) -> None:
        self._parts = parts
        self._request = request
        self._response = response
        self._served = parts.writer.kinds.of(request.served)
        # A request for a Namespace has a namespace for authorization, but its key has none.
        namespace = request.namespace if request.served.namespaced else ""
        self._place = write_types.WriteTarget(self._served, namespace, request.name)
        self._now = parts.writer.clock.wall()

    async def handle(self) -> None:
        """Execute the request and send the response. Raises StatusError."""
        request = self._request
        if request.subresource:
            await self._subresource()
            return
        response_formats.negotiate_shape(request.accept, custom=self._served.custom)
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
        if (
            request.verb not in self._served.verbs
            or misplaced
            or (nowhere and request.verb in ("create", "deletecollection"))
        ):
            custom = nowhere and self._served.custom
            raise statuses.PathNotServed if custom else statuses.method_not_allowed()
        await verbs[request.verb]()

    async def _subresource(self) -> None:
        request = self._request
        subresource = self._served.subresource(request.subresource)
        if subresource is None:
            if self._served.custom:
                raise statuses.not_found(self._place.kind, self._place.name)
            raise statuses.unknown_path()
        if request.verb not in subresource.verbs:
            raise statuses.method_not_allowed()
        if subresource.name == "log":
            await self._logs()
        elif subresource.name in podexec.NAMES:
            await self._streams()
        elif subresource.name == "scale":
            await self._scale()
        elif subresource.name in ("status", "ephemeralcontainers", "finalize"):
            verbs = {"get": self._get, "update": self._update, "patch": self._patch}
            await verbs[request.verb]()
        else:
            await self._post_below(subresource.name)

    async def _scale(self) -> None:
        request, writer = self._request, self._parts.writer
        if request.verb == "get":
            stored = writer.store.get(self._place.key)
            if stored is None:
                raise statuses.not_found(self._place.kind, self._place.name)
            scale = scale_subresource.scale_of(self._served, stored.decode())
            await responses.document(self._response, scale)
            return
        oddities: tuple[str, ...] = ()
        body: meta.JsonObject = {}
        if request.verb == "patch":
            raw, form = await request.body(), request.content_type
            decode = scale_subresource.applied if form == patches.APPLY else patches.decode
            change, oddities = decode(raw, form, self._served)
        else:
            body, oddities = await self._body()

            def change(_: meta.JsonObject) -> meta.JsonObject:
                return body

        warnings = self._body_warnings(
            scale_subresource.SCALE.resource, body, self._options(oddities)
        )
        raw = await scale_subresource.change(writer, self._place, change, self._options())
        await self._response.send(200, asgi.JSON, raw, headers=warnings)

    async def _logs(self) -> None:
        lookup = self._parts.writer.lookup
        await self._parts.logs.send(
            self._pod(), self._request, reader=lookup, response=self._response
        )

    async def _streams(self) -> None:
        lookup = self._parts.writer.lookup
        await self._parts.streams.serve(
            self._pod(), self._request, reader=lookup, response=self._response
        )

    def _pod(self) -> meta.JsonObject:
        target = self._place
        pod = self._parts.writer.lookup.get(api_resources.PODS, target.namespace, target.name)
        if pod is None:
            raise statuses.not_found(target.kind, target.name)
        return pod

    async def _post_below(self, name: str) -> None:
        request, parts = self._request, self._parts
        body, oddities = await self._body()
        options = self._options(oddities)
        warnings = self._body_warnings(_POSTED[name], body, options)
        if name == "binding":
            raw = await posted_subresources.bind(parts.writer, self._place, body, options)
        elif name == "eviction":
            raw = await posted_subresources.evict(
                parts.deleter, self._place, body, request, options=options
            )
        else:
            raw = await posted_subresources.token(
                parts.writer, self._place, body, options, minter=parts.minter
            )
        await self._response.send(201, asgi.JSON, raw, headers=warnings)

    def _options(self, oddities: tuple[str, ...] = ()) -> write_types.WriteContext:
        request = self._request
        apply = request.verb == "patch" and request.content_type == patches.APPLY
        parsed = options.WriteOptions.parse(request.query, verb=request.verb, apply=apply)
        return write_types.WriteContext(
            user=self._request.user,
            dry_run=parsed.dry_run,
            field_validation=parsed.field_validation,
            oddities=oddities,
            manager=managed_fields.name_of(parsed.manager, request.headers.get("user-agent", "")),
        )

    async def _body(self) -> tuple[meta.JsonObject, tuple[str, ...]]:
        raw, form = await self._request.body(), self._request.content_type
        obj = bodies.decode_object(raw, form)
        return obj, duplicates.find_duplicates(raw, form, obj, typed=not self._served.custom)

    def _body_warnings(
        self, kind: api_resources.Resource, body: meta.JsonObject, how: write_types.WriteContext
    ) -> asgi.Headers:
        """Return the `Warning` headers for a body that is not stored itself."""
        return responses.warnings(
            typed_decoding.check_body(
                kind, body, field_validation=how.field_validation, oddities=how.oddities
            )
        )

    async def _send_one(self, raw: bytes, *, code: int = 200, warnings: Sequence[str] = ()) -> None:
        raw = self._served.in_own_version(raw)
        shown = responses.one(self._served, raw, self._request, now=self._now)
        headers = responses.warnings(warnings)
        await self._response.send(code, asgi.JSON, shown, headers=headers)

    async def _get(self) -> None:
        version = self._request.query.text("resourceVersion")
        lists.check_readable(version)
        lists.check_reached(self._parts.writer.store, version)
        stored = self._parts.writer.store.get(self._place.key)
        if stored is None:
            raise statuses.not_found(self._place.kind, self._place.name)
        await self._send_one(stored.raw)

    async def _list(self) -> None:
        chosen = lists.selection(self._request, self._served)
        list_options = options.ListOptions.parse(self._request.query, watch=False)
        page = lists.page(self._parts.writer.store, self._served, chosen, list_options)
        shown = responses.many(self._served, page, self._request, now=self._now)
        await self._response.send(200, asgi.JSON, shown)

    async def _watch(self) -> None:
        form = response_formats.negotiate_watch_shape(
            self._request.accept, custom=self._served.custom
        )
        wants = watches.parse_request(
            self._request,
            self._served,
            form=self._form(form),
            entropy=self._parts.entropy,
            metadata_only=form.startswith("partial"),
        )
        hub = self._parts.hub
        # The watch is opened before the response starts, so that no change is missed in between.
        watch = hub.open(wants)
        try:
            await self._response.start(200, asgi.JSON)
            await hub.run(watch, self._request.http, self._response)
        finally:
            hub.close(watch)

    def _form(self, form: str) -> watch_stream.Form | None:
        if form == "object":
            return self._served.in_own_version if self._served.storage_version else None
        if form == "table":
            include = self._request.query.text("includeObject", "Metadata")
            clock, served = self._parts.writer.clock, self._served
            # Only the first Table of a watch has column definitions, as in the real server.
            columns = itertools.chain([True], itertools.repeat(False))

            def row(raw: bytes) -> bytes:
                obj = msgspec.json.decode(raw)
                version = {"resourceVersion": obj["metadata"]["resourceVersion"]}
                shown = tables.render(
                    served,
                    [obj],
                    now=clock.wall(),
                    include=include,
                    columns=next(columns),
                    list_metadata=version,
                )
                return msgspec.json.encode(shown)

            return row
        return lambda raw: msgspec.json.encode(response_formats.partial(msgspec.json.decode(raw)))

    async def _create(self) -> None:
        # Only creation is refused: objects can still be read and deleted, and finalizers removed.
        if self._served.terminating:
            raise statuses.terminating(self._place.kind, "create")
        body, oddities = await self._body()
        options = self._options(oddities)
        outcome = await self._parts.writer.create(self._place, body, options)
        if self._place.kind == api_resources.NAMESPACES and not options.dry_run:
            # Done before the response: Pods that the client creates at once need the account.
            await self._parts.namespace_controller.create_defaults(
                msgspec.json.decode(outcome.raw)["metadata"]["name"]
            )
        await self._send_one(outcome.raw, code=201, warnings=outcome.warnings)

    async def _update(self) -> None:
        body, oddities = await self._body()
        outcome = await self._parts.writer.replace(
            self._place, body, self._options(oddities), subresource=self._request.subresource
        )
        code = 201 if outcome.created else 200
        await self._send_one(outcome.raw, code=code, warnings=outcome.warnings)

    async def _patch(self) -> None:
        request = self._request
        if request.content_type == patches.APPLY:
            await self._apply()
            return
        patch = patches.decode(await request.body(), request.content_type, self._served)
        outcome = await self._parts.writer.change(
            self._place,
            patch.change,
            self._options(patch.oddities),
            subresource=request.subresource,
            patched=True,
        )
        await self._send_one(outcome.raw, warnings=outcome.warnings)

    async def _apply(self) -> None:
        request = self._request
        options_ = self._options()
        raw = await request.body()
        obj = bodies.decode_applied(raw)
        twice = duplicates.find_in_apply(raw)
        if twice and options_.field_validation == "Strict":
            raise statuses.bad_request(
                f"error strict decoding YAML: error converting YAML to JSON: {twice}"
            )
        outcome = await self._parts.writer.apply(
            self._place,
            obj,
            options_,
            force=request.query.flag("force"),
            subresource=request.subresource,
        )
        warnings = list(outcome.warnings)
        if twice and options_.field_validation == "Warn":
            warnings += duplicates.warnings([twice])
        code = 201 if outcome.created else 200
        await self._send_one(outcome.raw, code=code, warnings=warnings)

    async def _delete(self) -> None:
        delete_options = await deletion.read_options(self._request, self._options())
        outcome = await self._parts.deleter.delete(self._place, delete_options)
        kind = self._place.kind
        # Pods and ServiceAccounts are returned when deleted (ReturnDeletedObject upstream).
        if not outcome.gone or kind in (api_resources.PODS, api_resources.SERVICE_ACCOUNTS):
            await self._send_one(outcome.raw)
            return
        uid = msgspec.json.decode(outcome.raw)["metadata"]["uid"]
        await responses.document(self._response, statuses.success(kind, self._place.name, uid=uid))

    async def _delete_collection(self) -> None:
        request = self._request
        delete_options = await deletion.read_options(request, self._options())
        chosen = lists.selection(request, self._served)
        store = self._parts.writer.store
        list_options = options.ListOptions.parse(request.query, watch=False)
        # With a limit, only the objects of this page are deleted.
        page = lists.page(store, self._served, chosen, list_options)
        targets = [
            msgspec.structs.replace(self._place, namespace=s.key.namespace, name=s.key.name)
            for s in page.items
        ]
        outcomes = await self._parts.deleter.delete_all(targets, delete_options)
        shown = lists.encode_deleted(self._served, [o.raw for o in outcomes], page)
        await self._response.send(200, asgi.JSON, shown)
