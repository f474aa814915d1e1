"""Transfers between the agents of one pond, over mutual TLS with the pond's certificate.

Used by `agent`, which serves, and by `fetcher`, which requests. Content is requested by its digest
and checked by the requesting agent. The certificate, which is its own authority and is in a Secret
of the pond, decides who may request: other clients get no response.
"""

import asyncio
import contextlib
import functools
import os
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

from kilnwork.api import pond_certificate_names
from kilnwork.data import errors
from kilnwork.data.pond import origins, store
from kilnwork.kit import asgi, clock, http1_client, serving
from kilnwork.pond import connections

_READ_BYTES = 512 << 10
DOUBT_S = 30.0
"""Seconds for which a peer that has failed to respond is tried last, after all other origins."""


class PeerServer:
    """Serves the blobs and manifests of a store to the other agents.

    `served(count)` is called with the number of bytes sent. A peer that has received damaged
    content asks for a check of the blob; `damaged()` is called if the blob turns out to be damaged
    here.
    """

    def __init__(
        self,
        kept: store.PondStore,
        certificates: Path,
        *,
        served: Callable[[int], None],
        damaged: Callable[[], None],
    ) -> None:
        self._store = kept
        self._served = served
        self._damaged = damaged
        self._certificates = certificates
        self._listener: serving.Listener | None = None

    async def start(self, host: str) -> str:
        """Listen on a free port and return the address. Raises OSError."""
        pair = self._certificates
        context = serving.tls_context(
            pair / "tls.crt", pair / "tls.key", client_ca=pair / "tls.crt", demanded=True
        )
        listening = serving.bind(host, 0)
        self._listener = serving.Listener(self, listening, tls=context)
        await self._listener.start()
        shown = f"[{host}]" if ":" in host else host
        return f"{shown}:{listening.getsockname()[1]}"

    async def stop(self) -> None:
        if self._listener is not None:
            await self._listener.stop(timeout_s=0)

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        """Serve one request (ASGI)."""
        request, response = asgi.Request(scope, receive), asgi.Response(send)
        with contextlib.suppress(asgi.Disconnected):
            match request.method, request.segments:
                case "GET", ["blobs", name]:
                    await self._blob(request, name, response)
                case "GET", ["manifests", name]:
                    await self._manifest(name, response)
                case _:
                    await response.text(404, "blobs and manifests are served here")

    async def _manifest(self, name: str, response: asgi.Response) -> None:
        found = self._store.find_manifest(f"sha256:{name}")
        if found is None:
            await response.text(404, "no such manifest here")
        else:
            await response.send(200, asgi.JSON, found.encoded)

    async def _blob(self, request: asgi.Request, name: str, response: asgi.Response) -> None:
        try:
            if request.query.get("check") and not await self._is_whole(bytes.fromhex(name)):
                await response.text(410, "it was damaged here, and is set aside")
                return
            descriptor = self._store.blobs.open(bytes.fromhex(name))
        except (ValueError, errors.BlobMissing):
            await response.text(404, "no such blob here")
            return
        try:
            size = os.fstat(descriptor).st_size
            start = _start(request.header(b"range"), size)
            headers = [(b"content-range", f"bytes {start}-{size - 1}/{size}".encode())]
            await response.start(
                206 if start else 200,
                "application/octet-stream",
                length=size - start,
                headers=headers if start else (),
            )
            await self._send(descriptor, start, response)
        finally:
            os.close(descriptor)

    async def _is_whole(self, digest: bytes) -> bool:
        """Check a blob on the disk, as scrubbing does, and return whether it is intact.

        Raises BlobMissing.
        """
        blobs, before = self._store.blobs, self._store.blobs.damaged
        size = blobs.sizes().get(digest)
        if size is None:
            raise errors.BlobMissing("it is not here")
        if await asyncio.to_thread(blobs.verify, digest, size, from_disk=True):
            return True
        if blobs.damaged > before:
            self._damaged()
        return False

    async def _send(self, descriptor: int, start: int, response: asgi.Response) -> None:
        while piece := await asyncio.to_thread(os.pread, descriptor, _READ_BYTES, start):
            start += len(piece)
            await response.write(piece)
            self._served(len(piece))
        await response.end()


class Peers:
    """A client of the other agents, which fetches blobs and manifests.

    Blocking; safe to use from several threads.
    """

    def __init__(self, certificates: Path, *, time: clock.Clock) -> None:
        self._certificates = certificates
        self._clock = time
        self._doubted: dict[str, float] = {}
        """Time until which a peer is tried last, by address (monotonic seconds)."""
        self._context: ssl.SSLContext | None = None
        self._connections = connections.Connections(None, self._tls)

    def origin(self, node: str, address: str, digest: str) -> origins.Origin:
        """Return a peer as the origin of one blob.

        If the blob is requested from its beginning a second time, the content received first was
        damaged. The second request therefore has the peer check the blob on its disk.
        """
        begun = False

        def open_(offset: int, _: str) -> origins.Content:
            nonlocal begun
            check, begun = begun and not offset, begun or not offset
            return self._open(address, digest, offset, check=check)

        return origins.Origin(node, True, open_)

    def is_doubted(self, address: str) -> bool:
        """Return whether a peer has failed within the last `DOUBT_S` seconds.

        Such a peer should be tried after all other origins.
        """
        return self._clock.monotonic() < self._doubted.get(address, 0.0)

    def manifest(self, address: str, digest: str) -> bytes:
        """Return a manifest from a peer; the caller must check it.

        Raises the errors of `origins`.
        """
        with self._open(address, digest, 0, kind="manifests") as content:
            return b"".join(content.pieces())

    def close(self) -> None:
        self._connections.close()

    def _open(
        self,
        address: str,
        digest: str,
        offset: int,
        *,
        kind: str = "blobs",
        check: bool = False,
    ) -> origins.Content:
        target = f"/{kind}/{digest.removeprefix('sha256:')}" + ("?check=true" if check else "")
        try:
            return self._opened(address, digest, offset, target=target)
        except errors.SourceUnreachable:
            self._doubt(address)
            raise

    def _doubt(self, address: str) -> None:
        self._doubted[address] = self._clock.monotonic() + DOUBT_S

    def _opened(self, address: str, digest: str, offset: int, *, target: str) -> origins.Content:
        host, _, port = address.rpartition(":")
        server = connections.Server(host.strip("[]"), int(port), pond_certificate_names.SERVER_NAME)
        headers = {"Host": address}
        if offset:
            headers["Range"] = f"bytes={offset}-"
        request = connections.Request(server, target, headers)
        with contextlib.ExitStack() as stack:
            exchange = stack.enter_context(self._connections.send(request))
            if exchange.head.status == 410:
                raise errors.DataCorrupt(f"{digest} was damaged on the disk of {address}")
            if exchange.head.status not in (200, 206):
                raise errors.SourceMissing(f"{address} does not have {digest} any more")
            failed = functools.partial(self._doubt, address)
            return _PeerContent(exchange, offset, stack.pop_all(), failed=failed)

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            made.minimum_version = ssl.TLSVersion.TLSv1_2
            pair = self._certificates
            made.load_verify_locations(cafile=str(pair / "tls.crt"))
            made.load_cert_chain(pair / "tls.crt", pair / "tls.key")
            self._context = made
        return self._context


class _PeerContent(origins.Content):
    stamp = ""

    def __init__(
        self,
        exchange: connections.Exchange,
        offset: int,
        held: contextlib.ExitStack,
        *,
        failed: Callable[[], None],
    ) -> None:
        length = exchange.head.headers.get("content-length", "")
        self.start = offset if exchange.head.status == 206 else 0
        self.total = self.start + int(length) if length.isdecimal() else None
        self._connection = exchange.connection
        self._held = held
        self._failed = failed

    def pieces(self) -> Iterator[bytes | memoryview]:
        try:
            yield from self._connection.pieces()
        except (OSError, http1_client.BadResponse) as error:
            self._failed()
            raise errors.SourceUnreachable(f"the connection to a peer ended: {error}") from error

    def close(self) -> None:
        self._held.close()


def _start(header: str | None, size: int) -> int:
    """Return the start of the range in a Range header of the form that agents send, `bytes=N-`.

    Return 0 for any other header, and if the blob ends before that byte.
    """
    text = (header or "").removeprefix("bytes=").removesuffix("-")
    start = int(text) if text.isascii() and text.isdigit() and len(text) <= asgi.MAX_DIGITS else 0
    return start if start < size else 0
