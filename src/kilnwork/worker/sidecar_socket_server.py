"""The server of a Pod's task socket, which handles requests over a link to the dispatcher.

Used by `sidecar` once a client has connected to the socket, or to fetch inputs. The requests are
those of any task, see `task_socket`. The link is like an agent's, but for one attempt. While there
is no dispatcher, the sidecar waits for one; it does not end the attempt.
"""

import asyncio
import contextlib
import logging
import math
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

from kilnwork.api import attempts
from kilnwork.channel import errors as channel_errors
from kilnwork.channel import messages, worker_side
from kilnwork.kit import clock, coroutines, ids, logs, scratch
from kilnwork.worker import (
    relay,
    settings,
    sidecar,
    sidecar_settings,
    task_socket,
    unix_http_server,
)

log = logging.getLogger(__name__)

_UNIX = "unix:"


def serve(listener: sidecar.Listener, ending: sidecar.Ending) -> None:
    """Serve the attempt's socket until SIGTERM."""
    logs.setup()
    given = sidecar_settings.from_environment(os.environ)
    asyncio.run(_Sidecar(given, listener).run(ending))


class _Children:
    """Counter of the children that the attempt has requested without a key.

    Kept in a file, so that a restarted sidecar continues the count.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / ".children"

    def next(self) -> int:
        """Increase the count by one and return it."""
        with contextlib.suppress(OSError, ValueError):
            return self._keep(int(self._path.read_text()) + 1)
        return self._keep(1)

    def _keep(self, count: int) -> int:
        new = self._path.with_name(".children.new")
        new.write_text(str(count))
        # A sidecar that is killed leaves the old count or the new one, never half of one.
        new.rename(self._path)
        return count


class _Sidecar:
    """The owner of the link for one attempt. Implements `worker_side.Owner`."""

    def __init__(self, given: sidecar_settings.SidecarSettings, listener: sidecar.Listener) -> None:
        self._given = given
        self._listener = listener
        self._calls: task_socket.TaskSocket
        task, run, attempt = given.attempt
        self._ref = attempts.AttemptRef(ids.task_id(task), run, attempt)

    async def run(self, ending: sidecar.Ending) -> None:
        """Fetch the inputs, if there are any, and serve requests until SIGTERM."""
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        # asyncio leaves the wake-up descriptor alone as long as it handles no signals itself.
        loop.add_reader(ending.descriptor, stopping.set)
        try:
            async with self._channel_path() as path:
                await self._serve(path, stopping)
        finally:
            loop.remove_reader(ending.descriptor)

    async def _serve(self, path: str, stopping: asyncio.Event) -> None:
        link = worker_side.Peer(
            self,
            path=path,
            place=lambda: self._given.channel,
            clock=clock.SystemClock(),
            entropy=ids.system_entropy(),
            patience_s=math.inf,
        )
        calls = self._calls = task_socket.TaskSocket(
            self._ref,
            cluster=self._given.cluster,
            link=link,
            clock=clock.SystemClock(),
            children=_Children(self._given.directory).next,
        )
        server = unix_http_server.UnixHttpServer(calls.handle)
        # A copy: the server closes its own, and `sidecar` closes the original.
        await server.start(socket.socket(fileno=os.dup(self._listener.socket.fileno())))
        background = coroutines.BackgroundWork("sidecar")
        background.start("link", self._linked(link))
        try:
            await stopping.wait()
        finally:
            await server.close()
            await background.stop()

    async def _linked(self, link: worker_side.Peer) -> None:
        """Serve the link to the dispatcher until it is refused for good.

        After a final refusal, requests get no response: the attempt that makes them has ended.
        """
        try:
            await link.serve()
        except channel_errors.ChannelError as error:
            log.error("no link to the dispatcher", extra={"why": str(error)})  # noqa: TRY400

    @contextlib.asynccontextmanager
    async def _channel_path(self) -> AsyncIterator[str]:
        """Provide the path of the dispatcher's Unix socket, or of the socket of a relay to the
        dispatcher.
        """
        given = self._given
        if given.channel.startswith(_UNIX):
            yield given.channel.removeprefix(_UNIX)
            return
        host, _, port = given.channel.removeprefix(settings.NETWORK).rpartition(":")
        directory = scratch.Scratch(settings.DIRECTORY_PREFIX)
        ca = directory.path / "ca.crt"
        ca.write_text(given.ca)
        remote = settings.RemoteManager(host.strip("[]"), int(port), ca, directory.path)
        passing = relay.Relay(remote)
        try:
            await passing.start()
            yield remote.channel
        finally:
            await passing.stop()
            directory.close()

    # peer.Owner

    def hello(self, *, epoch: int) -> messages.AttemptHello:
        given = self._given
        return messages.AttemptHello(
            version=messages.VERSION,
            ref=self._ref,
            credential=given.token_file.read_text().strip(),
            namespace=given.namespace,
            pod=given.pod,
            epoch=epoch,
        )

    def welcomed(self, welcome: messages.Welcome) -> None:
        """Send the progress that was kept while there was no link.

        The peer itself repeats the requests that have no response yet.
        """
        self._calls.welcomed()

    def received(self, order: worker_side.Order) -> None:
        """Accept the inputs that the dispatcher sends."""
        # Only once: the other containers may be reading the file already.
        if isinstance(order, messages.Run) and not self._listener.is_published:
            _write(self._given.directory / "input", order.inputs or b"{}")
            self._listener.publish()

    def settled(self, ref: attempts.AttemptRef) -> None:
        """Do nothing, because this link reports no ends."""

    def lease_ended(self) -> None:
        """Do nothing, because the attempt continues while a new link is made."""


def _write(path: Path, content: bytes) -> None:
    """Write a file that any user may read, because the other containers may run as any user."""
    new = path.with_name(f".{path.name}")
    # O_EXCL: another container may have made a link of that name here.
    with contextlib.suppress(FileNotFoundError):
        new.unlink()
    descriptor = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        # fchmod, since the mode given to open(2) is reduced by the umask.
        os.fchmod(file.fileno(), 0o644)
        file.write(content)
    new.rename(path)
