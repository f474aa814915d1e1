"""port-forward: connections of a client to ports of a Pod, with two streams per connection.

Used by `kubelet_streaming`. Follows k8s.io/kubelet pkg/cri/streaming/portforward: a `data` and an
`error` stream with the same `requestid` (with older clients: with successive ids) and a `port` form
one connection; problems are reported on the error stream.
"""

import asyncio
import contextlib
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from kilnwork.controlplane.node import multiplexed_connection, streams_interface
from kilnwork.kit import coroutines

CREATION_S = 30.0
"""Timeout for the second stream of a pair (the kubelet's streamCreationTimeout)."""

_PIECE = 64 * 1024
_LOOPBACK = "127.0.0.1"
_LAST_PORT = 65535


@dataclass(slots=True)
class _Pair:
    """The data and error streams of one connection that are open so far."""

    by_kind: dict[str, multiplexed_connection.Stream] = field(default_factory=dict)
    complete: asyncio.Event = field(default_factory=asyncio.Event)


class Forwards:
    """Forwarded connections of one client to one Pod.

    `where` is the address of the Pod, `who` its name. `numbered` is for WebSocket channels, where
    all streams are open from the start and begin with the port in two bytes; the session ends when
    all of them have ended.
    """

    def __init__(self, where: str, *, who: str, numbered: bool = False) -> None:
        self._where = where
        self._who = who
        self._numbered = numbered
        self._pairs: dict[str, _Pair] = {}
        self._background = coroutines.BackgroundWork("port forward")
        self._connection: multiplexed_connection.StreamConnection
        self._over = asyncio.Event()

    def take(self, stream: multiplexed_connection.Stream) -> bool:
        """Accept a stream and pair it with the other stream of its connection.

        Returns False to refuse the stream.
        """
        if port_of(stream.headers) is None or stream.kind not in (
            streams_interface.DATA,
            streams_interface.ERROR,
        ):
            return False
        request = _request(stream)
        pair = self._pairs.get(request)
        if pair is None:
            pair = self._pairs[request] = _Pair()
            self._background.start(f"request {request}", self._serve(request, pair))
        if stream.kind in pair.by_kind:
            return False
        pair.by_kind[stream.kind] = stream
        if len(pair.by_kind) == 2:
            pair.complete.set()
        return True

    async def run(self, connection: multiplexed_connection.StreamConnection) -> None:
        """Serve until the client disconnects or, if `numbered`, until all streams have ended."""
        self._connection = connection
        background = coroutines.BackgroundWork("port forwards")
        ends = [
            background.start("gone", connection.gone.wait()),
            background.start("over", self._over.wait()),
        ]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await background.stop()
            await self._background.stop()

    async def _serve(self, request: str, pair: _Pair) -> None:
        try:
            await asyncio.wait_for(pair.complete.wait(), CREATION_S)
            await self._forward(
                pair.by_kind[streams_interface.DATA], pair.by_kind[streams_interface.ERROR]
            )
        except TimeoutError:
            await _complain(pair, f"request {request}: timed out waiting for streams")
        finally:
            self._pairs.pop(request, None)
            for stream in pair.by_kind.values():
                self._connection.forget(stream)
            if self._numbered and not self._pairs:
                self._over.set()

    async def _forward(
        self, data: multiplexed_connection.Stream, error: multiplexed_connection.Stream
    ) -> None:
        port = port_of(data.headers) or 0
        if self._numbered:
            for stream in (data, error):
                # The port is little-endian, as the kubelet writes it at the start of each channel.
                await stream.write(struct.pack("<H", port))
        try:
            reader, writer = await reach(self._where, port)
        except OSError as problem:
            what = f"dial tcp {self._where}:{port}: connect: {reason(problem)}"
            text = f"error forwarding port {port} to pod {self._who}: {what}"
            await error.write(text.encode())
            return
        try:
            await self._pump(data, reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        data.finish()
        error.finish()

    async def _pump(
        self,
        data: multiplexed_connection.Stream,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Copy in both directions until the port closes or the client does not read any more."""
        background = coroutines.BackgroundWork("port")
        background.start("in", _copy_in(data, writer))
        out = background.start("out", _copy_out(reader, data))
        over = background.start("over", data.over.wait())
        try:
            # The input is not awaited: a client that has sent everything still waits for output.
            await asyncio.wait({out, over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await background.stop()


async def reach(where: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a port of a Pod at its address, or else at the loopback address.

    The Pod shares the loopback address with us. The kubelet's runtimes connect to `localhost` in
    the Pod's network (containerd internal/cri/server/sandbox_portforward_linux.go), since debuggers
    and notebooks listen only there. Raises the OSError of the first attempt.
    """
    try:
        return await asyncio.open_connection(where, port, limit=_PIECE)
    except OSError:
        with contextlib.suppress(OSError):
            return await asyncio.open_connection(_LOOPBACK, port, limit=_PIECE)
        raise


async def _copy_in(data: multiplexed_connection.Stream, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await data.read():
            writer.write(piece)
            await writer.drain()
        # Only this direction is closed: the service may respond at the end of its input.
        if not data.over.is_set():
            writer.write_eof()


async def _copy_out(reader: asyncio.StreamReader, data: multiplexed_connection.Stream) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(_PIECE):
            if not await data.write(piece):
                return


async def _complain(pair: _Pair, text: str) -> None:
    error = pair.by_kind.get(streams_interface.ERROR)
    if error is not None:
        await error.write(text.encode())


def _request(stream: multiplexed_connection.Stream) -> str:
    given = stream.headers.get("requestid", "")
    if given:
        return given
    # Older clients open the error stream first, and the data stream with the next odd id.
    return str(stream.number if stream.kind == streams_interface.ERROR else stream.number - 2)


def reason(problem: OSError) -> str:
    """Return why a connection failed, in the words of Go."""
    return os.strerror(problem.errno).lower() if problem.errno else str(problem)


def port_of(headers: Mapping[str, str]) -> int | None:
    """Return the port in the headers of a stream, or None if they name no valid port."""
    text = headers.get("port", "")
    port = int(text) if text.isascii() and text.isdigit() and len(text) <= 5 else 0
    return port if 1 <= port <= _LAST_PORT else None
