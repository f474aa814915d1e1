"""A link through HTTP: upgrades a connection to `/channel` and provides a socket for it.

Used by drivers, executor processes and call processes whose dispatcher is on another machine.
`channel.blocking_link` reads and writes a plain socket, which a TLS connection is not. So this
module makes a socket pair, and a thread copies bytes between one end of the pair and the TLS
connection. The thread reads no more than it can write, and stops when either side closes.
"""

import contextlib
import os
import select
import socket
import ssl
import threading
import weakref
from collections.abc import Mapping
from typing import Protocol

from kilnwork.api import manager_access
from kilnwork.channel import errors
from kilnwork.endpoints import manager_client
from kilnwork.kit import errors as kit_errors
from kilnwork.kit import http1_client, http_types

READ_BYTES = 1 << 16

_WAITING_BYTES = 1 << 18
"""Number of bytes that wait to be written to the socket pair at which no more are read from the
TLS connection.
"""

_WANTED = select.POLLIN | select.POLLOUT

_DRAIN_S = 2.0
"""Maximum seconds for which the copying waits after one side has ended and no byte can be moved;
then the rest is dropped.
"""


class NotSwitched(errors.ChannelError):
    """The server's `response` was not 101 Switching Protocols."""

    def __init__(self, response: http_types.ClientResponse) -> None:
        super().__init__(f"{response.status} {response.reason} instead of a channel")
        self.response = response


class Manager(manager_client.Connector, Protocol):
    """The address of the manager and the credentials for it (`endpoints.connector`)."""

    @property
    def server(self) -> str: ...
    def path(self, path: str) -> str: ...


def open_channel(to: Manager) -> socket.socket:
    """Open a channel to a manager through HTTP; return a connected socket.

    Raises OSError and ChannelError for failures that may pass, ConfigurationError for others.
    """
    renewed = False
    while True:
        try:
            return _open(to)
        except NotSwitched as error:
            status = error.response.status
            # The token may have expired: try once with a new one.
            if status == 401 and not renewed:
                renewed = True
                to.refused()
            elif status in (401, 403):
                raise kit_errors.ConfigurationError(
                    f"{to.server} refuses the channel: {error.response.message()}"
                ) from error
            else:
                raise


def _open(to: Manager) -> socket.socket:
    headers = to.headers()  # may raise: no connection is open yet
    try:
        return switch(to.connect(), to.path(manager_access.CHANNEL_PATH), headers)
    except http1_client.BadResponse as error:
        raise errors.LinkClosed(f"{to.server}: {error}") from error


def switch(connected: socket.socket, path: str, headers: Mapping[str, str]) -> socket.socket:
    """Upgrade a new HTTP connection to a channel; return a connected socket.

    The connection belongs to this function from now on. `path`: the path of `/channel` at this
    server. Raises OSError, `kit.http1_client.BadResponse` or `NotSwitched`.
    """
    try:
        connection = http1_client.Connection(connected)
        asked = {**headers, "Connection": "Upgrade", "Upgrade": manager_access.CHANNEL_PROTOCOL}
        connection.send("GET", path, asked)
        head = connection.read_head()
        if head.status != 101:
            body = connection.read(most=1 << 16)
            raise NotSwitched(http_types.ClientResponse(head.status, head.reason, body))
        # Bytes that came together with the 101 cannot be put back into the socket.
        if not isinstance(connected, ssl.SSLSocket) and not connection.early:
            # The timeout was for the handshake; a link may be silent for long.
            connected.settimeout(None)
            return connected
        return _Pump(connected, connection.early).start()
    except BaseException:
        connected.close()
        raise


class _Pump:
    """Thread that copies bytes between `far` and a socket pair.

    `early`: bytes that were already read from `far`.
    """

    def __init__(self, far: socket.socket, early: bytes) -> None:
        self._far = far
        self._to_near = bytearray(early)
        self._to_far = b""
        self._hung_up: set[int] = set()

    def start(self) -> socket.socket:
        given, self._near = socket.socketpair()
        # A weak reference: a reader that drops its socket without closing it must end the pump too.
        self._given = weakref.ref(given)
        self._near.setblocking(False)
        self._far.setblocking(False)
        _pumps.add(self)
        threading.Thread(target=self._run, name="kiln tunnel", daemon=True).start()
        return given

    def _run(self) -> None:
        try:
            with contextlib.suppress(OSError):
                self._move()
        finally:
            # A close alone would not end the connection: forked children may have copies of it.
            with contextlib.suppress(OSError):
                self._far.shutdown(socket.SHUT_RDWR)
            self.close()

    def close(self) -> None:
        self._far.close()
        self._near.close()

    def forked(self) -> None:
        """Close the descriptors in the child of a fork, where this thread does not exist."""
        # Closing an SSLSocket sends no close_notify, so the parent's connection is not affected.
        self.close()
        given = self._given()
        if given is not None:
            given.close()

    def _move(self) -> None:
        """Copy bytes until either side has closed and its last bytes were copied."""
        near_ended = far_ended = False
        while True:
            moved = False
            if not far_ended and len(self._to_near) < _WAITING_BYTES:
                data = _read(self._far)
                far_ended, moved = data == b"", bool(data)
                self._to_near += data or b""
            if not near_ended and not self._to_far:
                data = _read(self._near)
                near_ended, moved = data == b"", moved or bool(data)
                self._to_far = data or b""
            moved = self._write(near_ended=near_ended) or moved
            if (far_ended and not self._to_near) or (near_ended and not self._to_far):
                return
            if far_ended and near_ended:
                return
            # Poll only when no bytes moved: TLS may hold decrypted bytes that poll(2) does not see.
            if not moved and not self._wait(near_ended=near_ended, far_ended=far_ended):
                return

    def _write(self, *, near_ended: bool) -> bool:
        moved = False
        if self._to_near and not near_ended:
            count = _written(self._near, self._to_near)
            del self._to_near[:count]
            moved = count > 0
        if self._to_far:
            count = _written(self._far, self._to_far)
            self._to_far = self._to_far[count:]
            moved = moved or count > 0
        return moved

    def _wait(self, *, near_ended: bool, far_ended: bool) -> bool:
        """Wait until either side is ready; return False when last bytes cannot be delivered."""
        polling = select.poll()
        if not far_ended:
            room = len(self._to_near) < _WAITING_BYTES
            wanted = (select.POLLIN if room else 0) | (select.POLLOUT if self._to_far else 0)
            self._register(polling, self._far, wanted)
        if not near_ended:
            wanted = (0 if self._to_far else select.POLLIN) | (
                select.POLLOUT if self._to_near else 0
            )
            self._register(polling, self._near, wanted)
        ending = near_ended or far_ended or self._hung_up
        ready = polling.poll(_DRAIN_S * 1000 if ending else None)
        self._hung_up |= {end for end, events in ready if not events & _WANTED}
        return bool(ready)

    def _register(self, polling: select.poll, end: socket.socket, wanted: int) -> None:
        # With no events wanted, poll(2) still reports an end that has hung up, at once and always.
        # Its last bytes are read when there is room for them.
        if end.fileno() not in self._hung_up:
            polling.register(end, wanted)


def _read(end: socket.socket) -> bytes | None:
    """Return the bytes that have arrived at a socket: None if none yet, b"" after its end."""
    try:
        return end.recv(READ_BYTES)
    # TLS may have to write before it can read, for example after a key update.
    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return None
    # A peer that closes without close_notify causes an SSLError; that is an end like any other.
    except (ConnectionError, ssl.SSLError):
        return b""


def _written(end: socket.socket, data: bytes | bytearray) -> int:
    """Write bytes to a socket, and return how many it took.

    After 0, TLS needs the same bytes again.
    """
    try:
        return end.send(data)
    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return 0


_pumps: "weakref.WeakSet[_Pump]" = weakref.WeakSet()


def _after_fork() -> None:
    for pump in list(_pumps):
        pump.forked()


os.register_at_fork(after_in_child=_after_fork)
