"""The kubelet's paths `/exec`, `/attach` and `/portForward`, whose responses are streams.

Used by `kubelet_api.KubeletApp` after authentication and authorization. Error messages are the
kubelet's (k8s.io/kubernetes pkg/kubelet/server/server.go).
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib import parse

from kilnwork.controlplane.node import (
    exec_link,
    exec_statuses,
    execs,
    multiplexed_connection,
    port_forwards,
    shim_container,
    streams_interface,
    upgrades,
)
from kilnwork.kit import asgi, coroutines

log = logging.getLogger(__name__)

PATHS = ("exec", "attach", "portForward")

_ASKED = {
    "input": streams_interface.STDIN,
    "output": streams_interface.STDOUT,
    "error": streams_interface.STDERR,
}
"""Query parameter → the stream that it requests."""


class FoundContainer(NamedTuple):
    """A running container that a request names."""

    record: shim_container.ContainerRecord
    address: str
    """Address at which ports of the Pod are reached."""


Find = Callable[[str, str, str], FoundContainer | asgi.Refusal]
"""(namespace, pod, container) → the newest start of the container; with "", any container of the
Pod."""


class ExecPaths:
    """Handles all streaming sessions of a node. `shim` is the path of the shim's socket.

    Call `stop` before the listener is closed.
    """

    def __init__(self, find: Find, *, shim: Path) -> None:
        self._find = find
        self._shim = shim
        self._background = coroutines.BackgroundWork("streams")

    async def stop(self) -> None:
        await self._background.stop()

    async def serve(self, request: asgi.Request, response: asgi.Response) -> None:
        """Respond to one request. Its session continues in the background."""
        stream_request = _StreamRequest(request)
        try:
            refusal = stream_request.refusal or self._begin(stream_request)
        except asgi.Disconnected:
            return
        if refusal is not None:
            await response.refuse(refusal)

    def _begin(self, asked: "_StreamRequest") -> asgi.Refusal | None:
        found_container = self._find(asked.namespace, asked.pod, asked.container)
        if isinstance(found_container, FoundContainer) and asked.uid not in (
            "",
            found_container.record.id.split("/")[0],
        ):
            found_container = asgi.Refusal(404, "pod not found")
        if isinstance(found_container, asgi.Refusal):
            return found_container
        if asked.what == "portForward":
            agreed = upgrades.port_forward(asked.headers, asked.ports)
        else:
            agreed = upgrades.remote_command(asked.headers, asked.wanted())
        if isinstance(agreed, asgi.Refusal):
            return agreed
        if asked.hijack is None:
            return asgi.Refusal(400, "Upgrade request required")
        if asked.what == "portForward":
            forwards = port_forwards.Forwards(
                found_container.address, who=asked.pod, numbered=agreed.has_status
            )
            connection = _connect(asked.hijack, agreed, forwards.take)
            self._background.start("port forward", _forward(forwards, connection))
        else:
            gathering = execs.ExecStreams(asked.wanted(agreed.version), as_json=agreed.has_status)
            connection = _connect(asked.hijack, agreed, gathering.take)
            session = self._command(
                asked, gathering, connection, container=found_container.record.id
            )
            self._background.start(asked.what, session)
        return None

    async def _command(
        self,
        asked: "_StreamRequest",
        gathering: execs.ExecStreams,
        connection: multiplexed_connection.StreamConnection,
        *,
        container: str,
    ) -> None:
        """Run one exec or attach session, up to its final Status."""
        try:
            opened = await gathering.all(connection)
            if opened is None:
                return
            session = execs.ExecSession(connection=connection, streams=opened, tty=asked.tty)
            if asked.what == "attach":
                status = await execs.attach(session, shim=self._shim, container=container)
            else:
                command = exec_link.ExecCommand(container, asked.argv, tty=asked.tty)
                status = await execs.execute(session, shim=self._shim, command=command)
            if status is not None:
                error = opened[streams_interface.ERROR]
                await error.write(exec_statuses.encode(status, as_json=gathering.as_json))
                error.finish()
            await connection.close()
        finally:
            connection.abort()


async def _forward(
    forwards: port_forwards.Forwards, connection: multiplexed_connection.StreamConnection
) -> None:
    try:
        await forwards.run(connection)
        await connection.close()
    finally:
        connection.abort()


def _connect(
    hijack: asgi.Hijack,
    agreed: upgrades.UpgradeAgreement,
    take: Callable[[multiplexed_connection.Stream], bool],
) -> multiplexed_connection.StreamConnection:
    """Take the connection over from HTTP, send the response head, and start the stream protocol."""
    taken = hijack()
    # Written past the HTTP server: the connection speaks another protocol from here on.
    taken.transport.write(agreed.head)
    connection = multiplexed_connection.StreamConnection(agreed.codec, on_open=take)
    taken.hand_over(connection)
    return connection


class _StreamRequest:
    """A parsed request. `refusal` is the error response if the request is invalid."""

    def __init__(self, request: asgi.Request) -> None:
        parts = request.segments
        text = request.scope["query_string"].decode("latin-1")
        query = parse.parse_qs(text, keep_blank_values=True, errors="surrogateescape")
        self.headers: asgi.Headers = request.scope["headers"]
        self.hijack = request.hijack
        self.refusal: asgi.Refusal | None = None
        self.what, names = parts[0], parts[1:]
        self.container = names.pop() if self.what != "portForward" and names else ""
        # The kubelet also accepts /exec/NAMESPACE/POD/UID/CONTAINER.
        self.uid = names.pop() if len(names) == 3 else ""
        self.argv = query.get("command", [])
        self.tty = query.get("tty") == ["1"]
        self.streams = [kind for word, kind in _ASKED.items() if query.get(word) == ["1"]]
        # A terminal has one output; the kubelet drops stderr too (NewOptions of remotecommand).
        if self.tty and streams_interface.STDERR in self.streams:
            self.streams.remove(streams_interface.STDERR)
        self.ports: list[int] = []
        if len(names) != 2 or request.method not in ("GET", "POST"):
            self.refusal = asgi.Refusal(404, "404 page not found")
            return
        self.namespace, self.pod = names
        if self.what == "portForward":
            self._read_ports(query.get("port", []))
        elif not self.streams:
            text = "you must specify at least 1 of stdin, stdout, stderr"
            self.refusal = asgi.Refusal(400, text)

    def _read_ports(self, given: list[str]) -> None:
        for text in ",".join(given).split(",") if given else []:
            port = port_forwards.port_of({"port": text})
            if port is None:
                self.refusal = asgi.Refusal(400, f'unable to parse "{text}" as a port')
                return
            self.ports.append(port)

    def wanted(self, version: str = "") -> set[str]:
        """Return the streams that the client will open. Protocol version 2 has no window sizes."""
        resize = {streams_interface.RESIZE} if self.tty and not version.startswith("v2.") else set()
        return {streams_interface.ERROR, *self.streams, *resize}
