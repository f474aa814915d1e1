"""Contents of ponds: the nodes and leases of a DataPond, `/v1/namespaces/NS/dataponds/NAME/…`.

| path below | |
|---|---|
| GET nodes | each node: room, snapshots, leases, bytes fetched, served and evicted |
| GET leases | all leases, with the progress of each node |
| GET leases/LEASE | one lease of a user |
| PUT leases/LEASE | fetch snapshots to nodes, and keep them: `wait=SECONDS` waits for completion |
| DELETE leases/LEASE | release the snapshots of a lease |

Used by `task_api`. The client repeats the PUT until the lease is ready: only the PUT makes it
progress.
"""

from collections.abc import Sequence

import msgspec

from kilnwork.api import kinds, pond_views
from kilnwork.data import errors as data_errors
from kilnwork.kit import asgi, clock
from kilnwork.server import errors, pond_ports, ports

MAX_WAIT_S = 60
MAX_BODY_BYTES = 4 << 20
FILE_JOBS = "jobs"
"""Resource name of file jobs in authorization, as used by `/jobs`."""

_decode = msgspec.json.Decoder(pond_views.LeaseRequest).decode


class Ponds:
    """Handler of requests for the contents of a DataPond; raises the errors to send."""

    def __init__(
        self, ledger: pond_ports.PeopleLedger, rights: ports.Rights, *, time: clock.Clock
    ) -> None:
        self._ledger = ledger
        self._rights = rights
        self._clock = time

    async def send(
        self, request: asgi.Request, place: tuple[str, str, list[str]], response: asgi.Response
    ) -> None:
        """Serve a request for a path below a DataPond."""
        namespace, pond, rest = place
        match request.method, rest:
            case "GET", ["nodes"]:
                await self._check(request, namespace, pond, verb="get")
                found = self._ledger.node_views(namespace, pond)
                await self._items(found, pond, response)
            case "GET", ["leases"]:
                await self._check(request, namespace, pond, verb="get")
                leases = self._ledger.lease_views(namespace, pond)
                await self._items(leases, pond, response)
            case "GET", ["leases", lease]:
                await self._check(request, namespace, pond, verb="get")
                await self._show(namespace, pond, lease, response=response)
            case "PUT", ["leases", lease]:
                await self._check(request, namespace, pond, verb="update", sub="leases")
                await self._ask(request, (namespace, pond, lease), response)
            case "DELETE", ["leases", lease]:
                await self._check(request, namespace, pond, verb="delete", sub="leases")
                await self._take_back(namespace, pond, lease, response=response)
            case _, ["nodes"] | ["leases"] | ["leases", _]:
                raise errors.MethodNotAllowed
            case _:
                raise errors.NotFound("a DataPond has nodes and leases here")

    async def _check(
        self, request: asgi.Request, namespace: str, pond: str, *, verb: str, sub: str = ""
    ) -> None:
        question = ports.Question(
            verb=verb,
            namespace=namespace,
            name=pond,
            subresource=sub,
            resource=kinds.DATA_PONDS.plural,
        )
        refused = await self._rights.refusal(request.user, question)
        if refused is not None:
            raise errors.Forbidden(refused)

    async def _check_jobs(
        self, request: asgi.Request, namespace: str, wanted: pond_views.LeaseRequest
    ) -> None:
        """Raise Forbidden if the lease names a file job that the caller may not read.

        Without this check the agents would fetch the file job for any caller, because they may read
        all file jobs of the namespace.
        """
        for one in wanted.snapshots:
            if one.from_ is not None and one.from_.files is not None:
                question = ports.Question(
                    verb="get", namespace=namespace, name=one.from_.files, resource=FILE_JOBS
                )
                refused = await self._rights.refusal(request.user, question)
                if refused is not None:
                    raise errors.Forbidden(refused)

    async def _items(
        self, found: Sequence[msgspec.Struct] | None, pond: str, response: asgi.Response
    ) -> None:
        if found is None:
            raise _no_pond(pond)
        await response.send(200, asgi.JSON, msgspec.json.encode({"items": found}))

    async def _show(
        self, namespace: str, pond: str, lease: str, *, response: asgi.Response
    ) -> None:
        found = self._ledger.lease_views(namespace, pond)
        if found is None:
            raise _no_pond(pond)
        for one in found:
            if one.user and one.name == lease:
                await response.send(200, asgi.JSON, msgspec.json.encode(one))
                return
        raise _no_lease(pond, lease)

    async def _ask(
        self, request: asgi.Request, place: tuple[str, str, str], response: asgi.Response
    ) -> None:
        wait_s = request.number("wait", least=0, most=MAX_WAIT_S) or 0
        body = await request.body().read(limit=MAX_BODY_BYTES)
        try:
            wanted = _decode(body)
        except msgspec.MsgspecError as error:
            raise errors.UnprocessableContent(f"no request for a lease: {error}") from error
        await self._check_jobs(request, place[0], wanted)
        until = self._clock.monotonic() + wait_s
        while True:
            try:
                view = self._ledger.ask(*place, wanted)
            except data_errors.PondError as error:
                raise errors.UnprocessableContent(str(error)) from error
            if view is None:
                raise _no_pond(place[1])
            left_s = until - self._clock.monotonic()
            if view.ready or left_s <= 0 or _failed(view):
                status = 200 if view.ready else 202
                await response.send(status, asgi.JSON, msgspec.json.encode(view))
                return
            await self._ledger.changed(within_s=left_s)

    async def _take_back(
        self, namespace: str, pond: str, lease: str, *, response: asgi.Response
    ) -> None:
        done = self._ledger.take_back(namespace, pond, lease)
        if done is None:
            raise _no_pond(pond)
        if not done:
            raise _no_lease(pond, lease)
        await response.start(204, "")
        await response.end()


def _failed(view: pond_views.LeaseView) -> bool:
    return any(one.state == "Failed" for one in view.snapshots.values())


def _no_pond(pond: str) -> errors.NotFound:
    return errors.NotFound(f'there is no DataPond "{pond}" in this namespace')


def _no_lease(pond: str, lease: str) -> errors.NotFound:
    return errors.NotFound(f'there is no lease "{lease}" of DataPond "{pond}"')
