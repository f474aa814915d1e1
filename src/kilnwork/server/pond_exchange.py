"""`/ponds/NAMESPACE/NAME/…`: the exchange between the agents of ponds and the manager.

Mounted by the composition roots; `kilnwork.pond.manager_link` is the client,
`api.pond_messages` defines the messages. Callers are authenticated here: an agent sends the
token of its DataPond, which only the Pods of that pond mount, and can access no other pond.
"""

import asyncio

import msgspec

from kilnwork.api import pond_messages
from kilnwork.data import errors as data_errors
from kilnwork.data.pond import manifest
from kilnwork.kit import asgi
from kilnwork.kit import errors as kit_errors
from kilnwork.server import errors, guard, pond_ports, problems

MAX_REPORT_BYTES = 64 << 20
"""Maximum size of a report, for a node with very many snapshots."""

MAX_WAIT_S = 60
_BYTES = "application/octet-stream"

_decode = msgspec.json.Decoder(pond_messages.Report).decode


class PondExchange:
    """ASGI app of `/ponds`."""

    def __init__(
        self,
        ledger: pond_ports.AgentLedger,
        verifier: pond_ports.AgentVerifier,
        files: pond_ports.JobFiles,
    ) -> None:
        self._ledger = ledger
        self._files = files
        self._verifier = verifier

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        """Serve one request (ASGI)."""
        request, response = asgi.Request(scope, receive), problems.response(send)
        await problems.respond(self._route(request, response), request, response)

    async def _route(self, request: asgi.Request, response: asgi.Response) -> None:
        match request.method, request.segments:
            case "POST", ["ponds", namespace, pond, "nodes", node]:
                await self._admit(request, namespace, pond)
                await self._exchange(request, (namespace, pond, node), response)
            case "GET", ["ponds", namespace, pond, "manifests", name]:
                await self._admit(request, namespace, pond)
                await self._send(namespace, pond, name, response=response)
            case "PUT", ["ponds", namespace, pond, "manifests", name]:
                await self._admit(request, namespace, pond)
                await self._take(request, (namespace, pond, name), response)
            case "GET", ["ponds", namespace, pond, "jobs", job, directory]:
                await self._admit(request, namespace, pond)
                await response.send(
                    200, asgi.JSON, await self._files.listing(namespace, job, directory)
                )
            case "GET", ["ponds", namespace, pond, "jobs", job, directory, path]:
                await self._admit(request, namespace, pond)
                await self._files.send(request, (namespace, job, directory, path), response)
            case _:
                raise errors.NotFound("agents of ponds are at /ponds/NAMESPACE/NAME/nodes/NODE")

    async def _admit(self, request: asgi.Request, namespace: str, pond: str) -> None:
        token = guard.token_of(request)
        if not token:
            raise errors.Unauthorized
        try:
            good = await self._verifier.verify(namespace, pond, token)
        except kit_errors.KilnError as error:
            raise errors.NotReady(str(error)) from error
        if not good:
            raise errors.Unauthorized

    async def _exchange(
        self, request: asgi.Request, place: tuple[str, str, str], response: asgi.Response
    ) -> None:
        wait_s = request.number("wait", least=0, most=MAX_WAIT_S) or 0
        body = await request.body().read(limit=MAX_REPORT_BYTES)
        try:
            report = _decode(body)
        except msgspec.MsgspecError as error:
            raise errors.BadRequest(f"no report of an agent: {error}") from error
        self._ledger.take_report(*place, report)
        order = await self._ledger.order(*place, knows=report.knows, wait_s=wait_s)
        await response.send(200, asgi.JSON, msgspec.json.encode(order))

    async def _send(self, namespace: str, pond: str, name: str, *, response: asgi.Response) -> None:
        found = self._ledger.find_manifest(namespace, pond, f"sha256:{name}")
        if found is None:
            raise errors.NotFound(f"the manager has no manifest sha256:{name}")
        await response.send(200, _BYTES, found.encoded)

    async def _take(
        self, request: asgi.Request, place: tuple[str, str, str], response: asgi.Response
    ) -> None:
        namespace, pond, name = place
        body = await request.body().read(limit=manifest.MAX_BYTES)
        try:
            made = await asyncio.to_thread(manifest.parse, body, digest=f"sha256:{name}")
        except data_errors.ManifestRefused as error:
            raise errors.BadRequest(str(error)) from error
        self._ledger.put_manifest(namespace, pond, made)
        await response.start(204, "")
        await response.end()
