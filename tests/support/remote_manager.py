"""A manager as remote workers see it: hub, channel, blobs and files on one TLS port.

Without Kubernetes: all clients share one secret. `tcp_proxy` plays the network in between.
"""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from kilnwork.api import manager_access
from kilnwork.data.stores import local
from kilnwork.dispatch.hub import hub
from kilnwork.kit import asgi, serving
from kilnwork.server import blobs, channel, errors, problems, worker_file_api
from support import certificates, hubs, short_paths, verifiers

SECRET = "opensesame"


class RemoteManager:
    """A manager that can be restarted on the same port and journal."""

    def __init__(self, directory: Path, run: Path) -> None:
        self.directory = directory
        self.socket = run / "channel.sock"
        self.blobs = directory / "blobs"
        self.files = local.LocalStore(directory / "files")
        self.requests: list[tuple[str, str]] = []
        self.forced_status: int | None = None
        """Status of all responses; None for the real one."""
        authority = certificates.Authority()
        self.ca = directory / "ca.crt"
        self.ca.write_text(authority.pem)
        pair = authority.issue_file("manager", directory, manager_access.SERVER_NAME)
        self._tls = serving.tls_context(pair, pair)
        self.port = 0
        self.lease_s = 10.0
        self.hub: hub.Hub
        self._listener: serving.Listener

    async def start(self) -> None:
        verifier = verifiers.OneSecret(SECRET)
        options = hub.HubOptions(
            blobs_dir=self.blobs, lease_s=self.lease_s, renew_s=self.lease_s / 3
        )
        self.hub = hubs.make(self.directory, secret=SECRET, options=options)
        await self.hub.start(self.socket)
        self._channel = channel.ChannelApp(self.hub.new_link)
        self._blobs = blobs.BlobsApp(self.blobs, verifier)
        self._objects = worker_file_api.ObjectsApp(self.files, verifier)
        listening = serving.bind("127.0.0.1", self.port)
        self.port = int(listening.getsockname()[1])
        self._listener = serving.Listener(self._app, listening, tls=self._tls)
        await self._listener.start()

    async def stop(self) -> None:
        await self._listener.stop(timeout_s=1.0)
        await self.hub.stop()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def _app(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        self.requests.append((scope["method"], scope["path"]))
        if self.forced_status is not None:
            error = errors.HttpError("a test says so")
            error.status = self.forced_status
            await problems.send(problems.response(send), error)
            return
        apps: dict[str, asgi.App] = {"channel": self._channel, "objects": self._objects}
        await apps.get(scope["path"].split("/")[1], self._blobs)(scope, receive, send)


@contextlib.asynccontextmanager
async def running(directory: Path) -> AsyncIterator[RemoteManager]:
    run = short_paths.directory()
    made = RemoteManager(directory, run)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()
        run.rmdir()
