"""Object server: `/objects/NAMESPACE/JOB/…`, the files of jobs, for workers that share no directory
with the manager.

Mounted by the composition roots; `data.stores.manager_http_store` is the client. GET (with `Range`)
and HEAD read an object. PUT writes one, with `If-None-Match: *` or `If-Match`: 201 when the object
is on disk, 412 if the condition fails. DELETE deletes an object. GET of the namespace lists:
`?prefix=`, `?after=` list keys below the namespace, in pages; `?directories=` lists directories.
Callers are authenticated here: a worker sends its cluster and the token of that cluster; it may
read all jobs of its namespace, create the objects that slots create, and delete the objects of
attempts that lost.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from typing import NamedTuple

from kilnwork.api import names
from kilnwork.channel import ports
from kilnwork.data import errors as data_errors
from kilnwork.data.stores import manager_http_store, port
from kilnwork.kit import asgi
from kilnwork.server import errors, guard, problems

_TYPE = "application/octet-stream"
_CREATED = frozenset({"out", "commits", "result"})
"""Directories of a job in which slots create objects."""

_REMOVED = frozenset({"out", "result"})
"""Directories in which slots delete their objects if another attempt was first; commits are never
deleted."""

_MAX_REPLACED_BYTES = 16 << 20
"""Maximum size of an object that is replaced, such as job.json; it is held in memory as a whole."""

_REFUSED = (
    "a worker may read the files of jobs in its namespace; create, not replace, what is in "
    "JOB/out, JOB/commits and JOB/result; remove what is in JOB/out and JOB/result"
)


class ObjectRequest(NamedTuple):
    """The operation that a client requests on an object.

    `key`: key of the object below the namespace, "" for a list. `create`: whether the object must
    not exist.
    """

    method: str
    key: str
    create: bool
    worker: bool


Rule = Callable[[ObjectRequest], bool]


def slots_only(asked: ObjectRequest) -> bool:
    """Return whether a client is a worker and asks for an operation that slots need; nothing else
    is allowed.
    """
    if not asked.worker:
        return False
    if asked.method in ("GET", "HEAD"):
        return True
    parts = asked.key.split("/")
    if len(parts) < 3:
        return False
    if asked.method == "DELETE":
        return parts[1] in _REMOVED
    return asked.method == "PUT" and asked.create and parts[1] in _CREATED


class _Call(NamedTuple):
    """One request for an object."""

    store: port.Store
    namespace: str
    key: str
    request: asgi.Request
    response: asgi.Response

    @property
    def place(self) -> str:
        """Key of the object in the store."""
        return f"{self.namespace}/{self.key}"

    def header(self, name: bytes) -> str:
        """Return a header of the request, or ""."""
        return self.request.header(name) or ""


class ObjectsApp:
    """ASGI app of `/objects`. `store`: the store of all namespaces. `rule`: a function that decides
    whether a request is allowed.
    """

    def __init__(
        self, store: port.Store, verifier: ports.TokenVerifier, *, rule: Rule = slots_only
    ) -> None:
        self._store = store
        self._verifier = verifier
        self._rule = rule
        self._methods: dict[str, Callable[[_Call], Awaitable[None]]] = {
            "GET": _read,
            "HEAD": _head,
            "PUT": _write,
            "DELETE": _delete,
        }

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        """Serve one request (ASGI)."""
        request, response = asgi.Request(scope, receive), problems.response(send)
        work = self._route(request, response)
        await problems.respond(work, request, response, translate=_from_error)

    async def _route(self, request: asgi.Request, response: asgi.Response) -> None:
        namespace, key = _address(request.path)
        call = _Call(self._store, namespace, key, request, response)
        handler = self._methods.get(request.method)
        if not key:
            handler = _list if request.method == "GET" else None
        if handler is None:
            raise errors.MethodNotAllowed
        worker = await guard.admit_peer(request, namespace, self._verifier)
        create = call.header(b"if-none-match") == "*"
        if not self._rule(ObjectRequest(request.method, key, create, worker)):
            raise errors.Forbidden(_REFUSED)
        await handler(call)


def _address(path: str) -> tuple[str, str]:
    """Return the namespace and the key in the path `/objects/NAMESPACE/KEY`. Raises NotFound."""
    _, _, rest = path.strip("/").partition("/")
    namespace, _, key = rest.partition("/")
    if not names.is_dns_label(namespace):
        raise errors.NotFound("objects are at /objects/NAMESPACE/KEY")
    return namespace, key


def _from_error(error: Exception) -> errors.HttpError:
    """Return the HTTP error for an exception. Here an error of the store is about the requested
    object.
    """
    match error:
        case data_errors.ObjectMissing():
            return errors.NotFound(str(error))
        case data_errors.ObjectExists() | data_errors.ObjectChanged():
            return errors.PreconditionFailed(str(error))
        case data_errors.BadKey():
            return errors.BadRequest(str(error))
        case data_errors.StoreFull() | data_errors.StoreUnreachable():
            return problems.from_error(error)
        case data_errors.StoreError():
            return errors.HttpError(str(error))
    return problems.from_error(error)


def _headers(facts: port.ObjectFacts) -> list[tuple[bytes, bytes]]:
    return [
        (b"etag", f'"{facts.etag}"'.encode()),
        (manager_http_store.MODIFIED_HEADER.lower().encode(), repr(facts.modified).encode()),
        (b"accept-ranges", b"bytes"),
    ]


async def _head(call: _Call) -> None:
    facts = await asyncio.to_thread(call.store.head, call.place)
    await call.response.start(200, _TYPE, length=facts.bytes, headers=_headers(facts))
    await call.response.end()


async def _read(call: _Call) -> None:
    wanted = call.header(b"range")
    start, end = _range(wanted)
    reading = await asyncio.to_thread(call.store.read, call.place, start=start, end=end)
    with reading:
        facts = reading.facts
        expected = call.header(b"if-match").strip('"')
        if expected and expected != facts.etag:
            raise errors.PreconditionFailed(f"{call.key} has etag {facts.etag} now")
        headers = _headers(facts)
        if wanted and start >= facts.bytes:
            headers.append((b"content-range", b"bytes */%d" % facts.bytes))
            await call.response.send(416, _TYPE, b"", headers=headers)
            return
        if wanted:
            place = f"bytes {reading.start}-{reading.end - 1}/{facts.bytes}"
            headers.append((b"content-range", place.encode()))
        length = reading.end - reading.start
        await call.response.start(206 if wanted else 200, _TYPE, length=length, headers=headers)
        await _send(call, reading)


async def _send(call: _Call, reading: port.Reading) -> None:
    pieces = iter(reading)
    at = reading.start
    try:
        while piece := await asyncio.to_thread(next, pieces, b""):
            at += len(piece)
            async with asyncio.timeout(asgi.STALL_S):
                await call.response.write(piece, more=at < reading.end)
    except (TimeoutError, data_errors.StoreError):  # the response has begun and can only be cut off
        await call.request.cut()
        return
    if reading.start == reading.end:
        await call.response.end()


def _range(text: str) -> tuple[int, int | None]:
    """Parse a `Range` header with one range, `bytes=START-END` or `bytes=START-` (RFC 9110 §14.2);
    without a header, return the whole.
    """
    if not text:
        return 0, None
    unit, _, place = text.partition("=")
    first, _, last = place.partition("-")
    if unit != "bytes" or not asgi.is_number(first) or not (asgi.is_number(last) or not last):
        raise errors.BadRequest(f"Range: {text[:100]}: write bytes=START-END, both from 0")
    return int(first), int(last) + 1 if last else None


async def _write(call: _Call) -> None:
    """Create or replace an object. Readers see either the whole object, which is then on disk, or
    nothing of it.
    """
    create = call.header(b"if-none-match") == "*"
    expected = call.header(b"if-match").strip('"') or None
    if expected is not None:
        data = await _small(call)
        facts = await asyncio.to_thread(call.store.put, call.place, data, if_match=expected)
    else:
        new = await asyncio.to_thread(call.store.writer, call.place, create=create)
        try:
            body = call.request.body()
            while piece := await body.batch(asgi.PIECE_BYTES):
                await asyncio.to_thread(new.write, piece)
            facts = await asyncio.to_thread(new.commit)
        finally:
            await asyncio.to_thread(new.abort)
    headers = [*_headers(facts), (b"content-range", b"bytes */%d" % facts.bytes)]
    await call.response.send(201, _TYPE, b"", headers=headers)


async def _small(call: _Call) -> bytes:
    """Return the body of a conditional replacement, which must be small because the store compares
    and writes in one step.
    """
    try:
        return await call.request.body().read(limit=_MAX_REPLACED_BYTES)
    except asgi.BodyTooLarge as error:
        raise errors.ContentTooLarge(
            f"more than {_MAX_REPLACED_BYTES} bytes are not replaced if they match: create an "
            "object of another name"
        ) from error


async def _delete(call: _Call) -> None:
    await asyncio.to_thread(call.store.delete, [call.place])
    await call.response.start(204, _TYPE)
    await call.response.end()


async def _list(call: _Call) -> None:
    """Send a page of objects or of names of directories. Keys are relative to the namespace."""
    query = call.request.query
    above = f"{call.namespace}/"

    def directories() -> list[str]:
        return list(call.store.directories(above + query["directories"]))

    def page() -> list[port.ObjectFacts]:
        after = query.get("after", "")
        found: Iterator[port.ObjectFacts] = call.store.list(
            above + query.get("prefix", ""), after=above + after if after else ""
        )
        return [
            facts._replace(key=facts.key.removeprefix(above))
            for facts in islice(found, manager_http_store.PAGE)
        ]

    found = await asyncio.to_thread(directories if "directories" in query else page)
    await call.response.json(found)
