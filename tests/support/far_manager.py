"""A manager as workers over the network see it: hub, channel and blobs on one TLS port, no more.

Without Kubernetes: everybody has one secret. `Wire` is the network in between, which can be cut and
stalled.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

from kilnwork.api import manager
from kilnwork.dispatch import hub, journal
from kilnwork.kit import clock, ids, serving
from kilnwork.server import asgi, blobs, channel, errors
from support import certificates, short, verifiers

SECRET = "opensesame"


class FarManager:
    """May be restarted, on the same port and journal."""

    def __init__(self, folder: Path, run: Path) -> None:
        self.folder = folder
        self.socket = run / "channel.sock"
        self.blobs = folder / "blobs"
        self.requests: list[tuple[str, str]] = []
        self.answer_instead: int | None = None
        """Status with which all requests are answered, None for the right answer."""
        authority = certificates.Authority()
        self.ca = folder / "ca.crt"
        self.ca.write_text(authority.pem)
        pair = authority.issue_file("manager", folder, manager.SERVER_NAME)
        self._tls = serving.tls_context(pair, pair)
        self.port = 0
        self.lease_s = 10.0
        self.hub: hub.Hub
        self._listener: serving.Listener

    async def start(self) -> None:
        """Serve."""
        verifier = verifiers.OneSecret(SECRET)
        self.hub = hub.Hub(
            journal.Journal(self.folder / "journal.db"),
            clock=clock.SystemClock(),
            verifier=verifier,
            logs_dir=self.folder / "logs",
            entropy=ids.system_entropy(),
            options=hub.Options(
                blobs_dir=self.blobs, lease_s=self.lease_s, renew_s=self.lease_s / 3
            ),
        )
        await self.hub.start(self.socket)
        self._channel = channel.Channel(self.hub.new_link)
        self._blobs = blobs.Blobs(self.blobs, verifier)
        listening = serving.bind("127.0.0.1", self.port)
        self.port = int(listening.getsockname()[1])
        self._listener = serving.Listener(self._app, listening, tls=self._tls)
        await self._listener.start()

    async def stop(self) -> None:
        """As a manager that is told to."""
        await self._listener.stop(timeout_s=1.0)
        await self.hub.stop()

    async def restart(self) -> None:
        """Another life."""
        await self.stop()
        await self.start()

    async def _app(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        self.requests.append((scope["method"], scope["path"]))
        if self.answer_instead is not None:
            error = errors.HttpError("a test says so")
            error.status = self.answer_instead
            await asgi.problem(send, error)
            return
        app = self._channel if scope["path"] == manager.CHANNEL_PATH else self._blobs
        await app(scope, receive, send)


@contextlib.asynccontextmanager
async def serving_in(folder: Path) -> AsyncIterator[FarManager]:
    """A manager that runs."""
    run = short.folder()
    made = FarManager(folder, run)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()
        run.rmdir()


class Wire:
    """A port that leads to another; what is cut or stalled is so for those who are connected."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._server: asyncio.Server | None = None
        self._pairs: set[asyncio.Task[None]] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self.port = 0
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *problem: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.gather(*self._pairs, return_exceptions=True)

    def cut(self) -> None:
        """End all connections."""
        for pair in self._pairs:
            pair.cancel()

    def stall(self) -> None:
        """Pass on nothing, in silence."""
        self._flows.clear()

    def flow(self) -> None:
        """Go on."""
        self._flows.set()

    async def _serve(self, near: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        current = asyncio.current_task()
        assert current is not None
        self._pairs.add(current)
        self.connections += 1
        far_out = None
        try:
            far, far_out = await asyncio.open_connection("127.0.0.1", self._to)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(near, far_out))
                both.create_task(self._pump(far, near_out))
        except (OSError, asyncio.CancelledError, ExceptionGroup):
            pass
        finally:
            self._pairs.discard(current)
            for writer in (near_out, far_out):
                if writer is not None:
                    writer.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            await self._flows.wait()
            sink.write(data)
            await sink.drain()
        raise ConnectionResetError
