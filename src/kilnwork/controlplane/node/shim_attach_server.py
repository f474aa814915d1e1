"""The shim's part of attach: gives clients the live output and the input of a container.

Used by `shim`. The client (`exec_link.attach`) sends one line with two descriptors, the write ends
of pipes for standard output and error. The reply is `{"n": 1, "input": …}`. If the container has an
input (or a terminal), the reply comes with a descriptor to which the client writes. From then on
the container's output is copied to the pipes until the output ends or the client disconnects.

A client that reads too slowly is disconnected: the container and its log must not wait for it.
Standard library only.
"""

import fcntl
import json
import os
import socket
from typing import Any

from kilnwork.controlplane.node import shim_container as containers
from kilnwork.controlplane.node import shim_exec_server, stdio

PIPE = 1024 * 1024
"""Size of a pipe: bytes of output that a client may lag behind. The maximum for a user
(pipe(7))."""


class _Listener:
    """One attached client."""

    def __init__(self, client: shim_exec_server.ExecConnection, outputs: list[int]) -> None:
        self.client = client
        self._outputs = dict(zip(stdio.STREAMS, outputs, strict=True))
        for output in outputs:
            os.set_blocking(output, False)
            try:
                fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, PIPE)
            except OSError:
                continue  # the default of 64 KiB remains

    def copy_output(self, stream: str, piece: bytes) -> None:
        """Copy a piece of output. Disconnect the client if its pipe cannot take all of it."""
        try:
            # A closed listener remains listed until the shim sees the shutdown of the socket.
            taken = os.write(self._outputs[stream], piece) if self._outputs else len(piece)
        except BlockingIOError:
            taken = 0
        except OSError:
            taken = -1
        # A partial write ends the listener too, since later output would leave a gap.
        if taken != len(piece):
            if taken >= 0:
                self.client.send({"event": "slow"})
            self.close()
            # The socket stays open: the shim's selector sees the shutdown and unregisters it.
            self.client.connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        stdio.close(list(self._outputs.values()))
        self._outputs.clear()


_Pair = tuple[_Listener, containers.ShimContainer]


class Attachments:
    """All connections of clients that are attached to containers."""

    def __init__(self) -> None:
        self._all: list[_Pair] = []

    def start(
        self,
        client: shim_exec_server.ExecConnection,
        request: dict[str, Any],
        held: containers.ShimContainer | None,
    ) -> bool:
        """Attach the client to the container. Return False if the connection is to be closed.

        This is the case if the container does not run, the client sent other than two descriptors,
        or the client has disconnected.
        """
        outputs = client.take_descriptors()
        if held is None or held.root is None or len(outputs) != len(stdio.STREAMS):
            stdio.close(outputs)
            client.send({"n": request["n"], "error": "the container is not running"})
            return False
        listener = _Listener(client, outputs)
        lent = held.lend_input()
        reply = json.dumps({"n": request["n"], "input": lent is not None}).encode() + b"\n"
        try:
            socket.send_fds(client.connection, [reply], [] if lent is None else [lent])
        except OSError:
            listener.close()
            return False
        finally:
            stdio.close([] if lent is None else [lent])
        held.listeners.append(listener.copy_output)
        self._all.append((listener, held))
        return True

    def disconnected(self, client: shim_exec_server.ExecConnection) -> None:
        """Detach a client that has disconnected."""
        for listener, held in self._drop([pair for pair in self._all if pair[0].client is client]):
            held.listeners.remove(listener.copy_output)

    def container_ended(
        self, held: containers.ShimContainer
    ) -> list[shim_exec_server.ExecConnection]:
        """Detach all clients of a container that has ended, and return their connections."""
        gone = self._drop([pair for pair in self._all if pair[1] is held])
        return [listener.client for listener, _ in gone]

    def _drop(self, pairs: list[_Pair]) -> list[_Pair]:
        for pair in pairs:
            pair[0].close()
            self._all.remove(pair)
        return pairs
