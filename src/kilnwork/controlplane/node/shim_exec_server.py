"""The shim's part of exec: a further process in a running container, on the caller's descriptors.

Used by `shim`. The caller (`exec_link`) connects to the shim's socket and sends one line with three
descriptors (SCM_RIGHTS), which become standard input, output and error, so the shim copies no
bytes. The reply is `{"n": 1, "pid": …}` or `{"n": 1, "error": …, "running": …}`. When the process
has ended, `{"event": "ended", "code": …}` follows and the connection closes. If the caller closes
the connection first, the process group gets the signal that `hangup` names: SIGHUP by default, as
from a terminal that is closed.

The process has the environment, the working directory and the marker of the container, and ends
with the container. Standard library only, like all of the shim.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
from typing import Any

from kilnwork.controlplane.node import shim_container as containers

MAX_LINE = 4 * 1024 * 1024
"""Maximum size of a request in bytes; Linux allows 2 MiB of arguments."""

DESCRIPTORS = 3
_RECEIVE = 64 * 1024


class ExecConnection:
    """A connection to the shim before its first request, or for an exec or attach request."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.pid = 0
        self.hangup = int(signal.SIGHUP)
        self.settled = False
        """True after the request has been read: any further bytes end the connection."""
        self._received = b""
        self._descriptors: list[int] = []

    def read(self) -> bool:
        """Read what has arrived. Return False if the other side has closed or sends too much."""
        try:
            piece, descriptors, _, _ = socket.recv_fds(
                # Close-on-exec, like all descriptors that Python opens (PEP 446).
                self.connection,
                _RECEIVE,
                DESCRIPTORS,
                socket.MSG_CMSG_CLOEXEC,
            )
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._descriptors += descriptors
        self._received += piece
        enough = len(self._received) > MAX_LINE or len(self._descriptors) > DESCRIPTORS
        return bool(piece) and not enough and not self.settled

    def take(self) -> tuple[bytes, bytes] | None:
        """Return the first line and the bytes after it, or None until the line is complete."""
        line, newline, rest = self._received.partition(b"\n")
        if not newline:
            return None
        self._received = b""
        self.settled = True
        return line, rest

    def take_descriptors(self) -> list[int]:
        """Return the descriptors that came with the line. The caller closes them."""
        taken, self._descriptors = self._descriptors, []
        return taken

    def send(self, message: dict[str, Any]) -> None:
        """Send one line. There are too few lines to fill the socket."""
        with contextlib.suppress(OSError):
            self.connection.send(json.dumps(message).encode() + b"\n")

    def close(self) -> None:
        """Close the connection and the descriptors that were not taken."""
        for descriptor in self.take_descriptors():
            os.close(descriptor)
        self.connection.close()


class Execs:
    """The running processes of all exec requests."""

    def __init__(self) -> None:
        self._running: dict[int, ExecConnection] = {}

    def start(
        self, client: ExecConnection, request: dict[str, Any], held: containers.ShimContainer | None
    ) -> bool:
        """Start the requested process. Return whether the caller must wait for its end."""
        descriptors = client.take_descriptors()
        try:
            if held is None or held.root is None:
                client.send({"n": request["n"], "error": "the container is not running"})
                return False
            if len(descriptors) != DESCRIPTORS:
                client.send({"n": request["n"], "error": f"needs {DESCRIPTORS} descriptors"})
                return False
            client.hangup = int(request.get("hangup", client.hangup))
            client.pid = _execute(request, held, descriptors)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            argv = [str(word) for word in request.get("argv") or ()]
            text = containers.explain_failure(argv, *_process_context(held), error=error)
            client.send({"n": request["n"], "error": text, "running": True})
            return False
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self._running[client.pid] = client
        client.send({"n": request["n"], "pid": client.pid})
        return True

    def exited(self, pid: int, status: int) -> ExecConnection | None:
        """Report that a child has exited. Return the connection that started it, or None."""
        client = self._running.pop(pid, None)
        if client is not None:
            code = os.waitstatus_to_exitcode(status)
            # A signal is reported as by a shell: 128 plus its number.
            client.send({"event": "ended", "code": code if code >= 0 else 128 - code})
        return client

    def disconnected(self, client: ExecConnection) -> None:
        """Send the hangup signal to the process of a client that has disconnected."""
        # A process in `_running` has not been reaped, so no other process can have its pid.
        if self._running.pop(client.pid, None) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(client.pid, client.hangup)


def _process_context(held: containers.ShimContainer | None) -> tuple[dict[str, str], str]:
    try:
        return ({}, "") if held is None else held.process_context()
    except OSError:
        return {}, ""


def _execute(
    request: dict[str, Any], held: containers.ShimContainer, descriptors: list[int]
) -> int:
    argv = request["argv"]
    if not argv or not all(isinstance(word, str) for word in argv):
        raise ValueError("a command is needed")
    env, cwd = held.process_context()
    if request.get("tty"):
        env.setdefault("TERM", containers.TERM)
    prepare = containers.before_exec(held.dropped_privileges(), tty=bool(request.get("tty")))
    child = subprocess.Popen(
        argv,
        stdin=descriptors[0],
        stdout=descriptors[1],
        stderr=descriptors[2],
        cwd=cwd,
        env={**env, containers.MARKER: held.record.id},
        # The session is also a process group, which `disconnected` signals as a whole.
        start_new_session=True,
        preexec_fn=prepare,  # noqa: PLW1509 - one thread
        umask=0o022,
    )
    child.returncode = 0  # the shim waits for all its children: Popen must not
    return child.pid
