"""Context that all handlers of this package share, and responses that several handlers send.

Created by `app`. A document is encoded once per version of a job: a client that polls gets cached
bytes.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from typing import TypeVar
from urllib import parse

import msgspec

from kilnwork.data.stores import port
from kilnwork.jobs import file_job_service, file_job_types
from kilnwork.kit import asgi, clock
from kilnwork.server import errors, ports
from kilnwork.server.jobs import (
    body,
    documents,
    http_resource_base,
    input_writer,
    range_headers,
    rate_limits,
    settings,
)

_T = TypeVar("_T")

_CACHED = 4096
"""Number of cached documents, some kilobytes each."""

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

_OF_A_USER = (b"authorization", b"x-kiln-token", b"origin")

_SLOW_AT_ONCE = 2
"""Number of files that are unpacked, split or indexed at once: the number of cores of a small
machine. For each of them another thread computes hashes, and both compete with requests for the
interpreter lock."""

_KNOWN_S = 1.0
"""How long a namespace and its TaskClusters are cached."""


@dataclass(slots=True, kw_only=True)
class HandlerContext:
    """Context of the handlers: the service of file jobs, the store, authorization, and helpers of
    this package.
    """

    jobs: file_job_service.FileJobs
    rights: ports.Rights
    clusters: ports.Clusters
    clock: clock.Clock
    settings: settings.JobsApiSettings
    limits: rate_limits.RequestLimits
    room: input_writer.DiskRoom
    pool: futures.Executor
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_SLOW_AT_ONCE))
    _cache: OrderedDict[tuple[bytes, int], bytes] = field(default_factory=OrderedDict)
    _places: dict[str, tuple[float, frozenset[str]]] = field(default_factory=dict)

    @property
    def store(self) -> port.Store:
        """The store of all files."""
        return self.jobs.store

    async def check(
        self, request: http_resource_base.JobRequest, verb: str, *, name: str = ""
    ) -> str:
        """Check that the caller may do `verb` on jobs in the request's namespace, and return the
        namespace. Raises 400, 401, 403.
        """
        namespace = request.namespace
        if request.user is None:
            self._check_anonymous(request, namespace)
            return namespace
        question = ports.Question(
            verb=verb, namespace=namespace, name=name, resource=http_resource_base.RESOURCE
        )
        refused = await self.rights.refusal(request.user, question)
        if refused is not None:
            raise errors.Forbidden(refused)
        return namespace

    async def check_everywhere(self, request: http_resource_base.JobRequest, verb: str) -> None:
        """Check that the caller may do `verb` in all namespaces. A namespace in the request is
        ignored, as in `kubectl get -A`. Raises 400, 401, 403."""
        self.require_token(request)
        _ = request.namespace  # must be a valid name nevertheless
        question = ports.Question(verb=verb, namespace="", resource=http_resource_base.RESOURCE)
        refused = await self.rights.refusal(request.user, question)
        if refused is not None:
            raise errors.Forbidden(refused)

    def _check_anonymous(self, request: http_resource_base.JobRequest, namespace: str) -> None:
        """Check that a caller without a token may be served.

        aksjobscheduler does not authenticate callers. Under `--source-compat`, callers
        without a token may use only the loopback port, and not through a page in a browser, which
        may post forms here (Origin, Sec-Fetch-Site) or know our address under another name.
        """
        host = (request.header(b"host") or "").lower()
        good = (
            self.settings.source is not None
            and namespace == http_resource_base.DEFAULT_NAMESPACE
            and request.scope["scheme"] == "http"
            and (host.rpartition(":")[0] in _LOOPBACK or host in _LOOPBACK)
            and (request.header(b"sec-fetch-site") or "none") == "none"
            and all(request.header(name) is None for name in _OF_A_USER)
        )
        if not good:
            raise unauthorized_error()

    async def find_job(
        self, request: http_resource_base.JobRequest, verb: str
    ) -> file_job_types.JobView:
        """Return the job that the path names. Raises 400, 401, 403, 404, and `SeveralJobs`."""
        ref = request.param("job")
        namespace = await self.check(request, verb, name=ref)
        view = self.jobs.job(namespace, ref)
        if view is None:
            raise errors.NotFound(
                f'there is no job "{ref[:100]}" in namespace "{namespace}": it never was, was '
                "deleted, or its time to live is over"
            )
        return view

    def check_namespace(self, namespace: str) -> None:
        """Raise NotFound if a namespace does not exist, since nothing would ever run in it."""
        self.clusters_of(namespace)

    def check_cluster(self, namespace: str, cluster: str) -> None:
        """Raise UnprocessableContent if a TaskCluster does not exist."""
        known = self.clusters_of(namespace)
        if cluster not in known:
            raise errors.UnprocessableContent(
                f'clusterName: {cluster[:100]}: namespace "{namespace}" has no such TaskCluster; '
                f"those that exist: {', '.join(sorted(known)) or 'none'}"
            )

    def clusters_of(self, namespace: str) -> frozenset[str]:
        """Return the names of the TaskClusters in a namespace, as of at most a second ago. Raises
        NotFound, and NotReady while the server starts.
        """
        now = self.clock.monotonic()
        until, known = self._places.get(namespace, (0.0, frozenset()))
        if now < until:
            return known
        if namespace not in self.clusters.namespaces():
            raise errors.NotFound(f'namespace "{namespace}" does not exist')
        known = frozenset(one.name for one in self.clusters.clusters(namespace))
        self._places[namespace] = (now + _KNOWN_S, known)
        return known

    def require_token(self, request: http_resource_base.JobRequest) -> None:
        """Raise Unauthorized if the caller has no token.

        Call it for everything that aksjobscheduler does not have: under `--source-compat`, callers
        without a token get only what aksjobscheduler has.
        """
        if request.user is None:
            raise errors.Unauthorized

    async def run(self, work: Callable[[], _T]) -> _T:
        """Run blocking work in a thread, and wait until it has ended, even if the caller is
        cancelled.
        """
        return await body.run(self.pool, work)

    async def in_turn(self, work: Callable[[], _T]) -> _T:
        """Run work that holds the interpreter lock for long, limited to `_SLOW_AT_ONCE` at once.

        Raises TooManyRequests.
        """
        return await body.run_in_turn(self.turns, self.pool, work)

    def encode_document(
        self, view: file_job_types.JobView, *, warnings: Sequence[str] = ()
    ) -> bytes:
        """Return the JSON document of a job, which is the same bytes for the same version of the
        job.

        `warnings`: replace the warnings of the document, for a request that causes additional
        warnings.
        """
        if warnings:
            shown = documents.job(view, now=self.clock.wall(), compat=self.settings.source)
            shown = msgspec.structs.replace(shown, warnings=tuple(warnings))
            return msgspec.json.encode(shown) + b"\n"
        key = (view.uuid, view.version)
        found = self._cache.get(key)
        if found is None:
            shown = documents.job(view, now=self.clock.wall(), compat=self.settings.source)
            found = self._cache[key] = msgspec.json.encode(shown) + b"\n"
            if len(self._cache) > _CACHED:
                self._cache.popitem(last=False)
        return found

    def progress_members(self, view: file_job_types.JobView) -> dict[str, object]:
        """Return the members that show the progress of a job in a 409 response."""
        found = documents.progress(view, now=self.clock.wall())
        return {"phase": view.phase, "progress": msgspec.to_builtins(found)}

    async def send_job(
        self,
        request: http_resource_base.JobRequest,
        response: asgi.Response,
        view: file_job_types.JobView,
        *,
        status: int = 200,
    ) -> None:
        """Send the document of a job, or 304 if the client has this version of it."""
        etag = job_etag(view)
        header = (b"etag", etag.encode())
        if status == 200 and range_headers.matches_any(request.header(b"if-none-match"), etag):
            await response.empty(304, (header,))
            return
        await response.send(status, asgi.JSON, self.encode_document(view), headers=(header,))


def job_etag(view: file_job_types.JobView) -> str:
    """Return the entity tag of a job's document; versions increase with each change."""
    return f'"{view.uuid.hex()}-{view.version}"'


def job_location(view: file_job_types.JobView) -> bytes:
    """Return the URL path of a job."""
    return f"/jobs/{parse.quote(view.id)}{namespace_query(view.namespace)}".encode()


def namespace_query(namespace: str) -> str:
    """Return the namespace as a query string, or "" for the default namespace."""
    return "" if namespace == http_resource_base.DEFAULT_NAMESPACE else f"?namespace={namespace}"


def unauthorized_error(what: str = "this") -> errors.Unauthorized:
    """Return a 401 error that tells the client which credential to send (RFC 6750 §3)."""
    return errors.Unauthorized(
        f"{what} needs a token that is known here: send Authorization: Bearer TOKEN "
        "(`kiln token` prints one)"
    )
