"""The shim: parent and subreaper of every container process, so that these survive the server.

`shim_link.launch` starts the shim as `python -S -P -m …shim` with the directory that contains
kilnwork in PYTHONPATH (no site-packages: the shim stays small and starts in milliseconds), in a
session of its own. There is one shim per data directory, which a lock ensures. It serves one node
at a time on a Unix socket. A request is one JSON object per line, `{"n": 1, "do": "start", …}`,
with the reply `{"n": 1, …}`; between replies the shim sends `{"event": "ended", "container": {…}}`.
A connection whose first request is `hello` becomes the node's; a connection that begins with `exec`
or `attach` is served separately (`shim_exec_server`, `shim_attach_server`); any other connection is
closed.

Without a node for `patience` seconds, the shim stops all containers and exits. If the shim itself
is killed, the next one adopts the containers that it finds by pid and start time
(`shim_container.ContainerRecord`). Containers receive their environment through the socket, never
in a command line. Standard library only.

A process that clears its environment *and* leaves its parent cannot be identified; it is killed
together with the last container that may have started it.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kilnwork.controlplane.node import shim_attach_server, shim_exec_server
from kilnwork.controlplane.node import shim_container as containers
from kilnwork.kit import clock, locks, processes

PROTOCOL = 3
PATIENCE_S = 65.0
"""Seconds without a node before the shim exits. Longer than a worker waits for a server (60 s), so
that workers exit by themselves first."""

LEAVE_GRACE_S = 2.0
MAX_REQUEST = 8 * 1024 * 1024
_RECEIVE = 64 * 1024
_WAITING = 1024
"""Backlog of the listening socket: each exec is a connection, and connections beyond it are
refused."""

_TICK_S = 5.0

LOCK = "lock"
"""Lock file in the directory, which contains the pid of the shim."""

LOCKED = 3
"""Exit code when another shim holds the directory."""


class Shim:
    """The event loop of the shim, in one thread: signals, connections, output pipes, deadlines."""

    def __init__(
        self, directory: Path, socket_path: Path, *, patience_s: float, now: clock.Clock
    ) -> None:
        self._records = containers.RecordDirectory(directory)
        self._socket_path = socket_path
        self._patience_s = patience_s
        self._now = now
        self._selector = selectors.DefaultSelector()
        self._held: dict[str, containers.ShimContainer] = {}
        self._running: dict[str, containers.ShimContainer] = {}
        """Containers in `_held` that have not ended. A Pod may leave hundreds of ended ones."""
        self._execs = shim_exec_server.Execs()
        self._attachments = shim_attach_server.Attachments()
        self._connection: socket.socket | None = None
        self._received = b""
        self._unsent = b""
        self._alone_since = now.monotonic()
        self._leaving = False
        self._requests: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "hello": self._hello,
            "start": self._start,
            "stop": self._stop,
            "forget": self._forget,
            "leave": self._leave,
        }

    def run(self) -> None:
        """Serve until the shim must leave and all containers have ended.

        It must leave when a node asks for it, at SIGTERM, SIGINT or SIGHUP, or when no node has
        been connected for `patience_s`.
        """
        # Signals come first: a child that ends during adoption must wake the loop.
        wakeup = self._catch_signals()
        self._adopt()
        listener = self._listen()
        self._reap()
        while self._running or not self._leaving:
            for key, _ in self._selector.select(self._wait_s()):
                if key.fileobj is listener:
                    self._accept(listener)
                elif key.fileobj is wakeup:
                    # Received before reaping: a signal during the reaping must wake the next round.
                    wakeup.recv(_RECEIVE)
                    self._reap()
                elif key.fileobj is self._connection:
                    self._read_node()
                elif isinstance(key.data, containers.ShimContainer):
                    self._read_pipe(key.fd, key.data)
                elif isinstance(key.data, shim_exec_server.ExecConnection):
                    self._read_first_request(key.data)
            self._tick()
        self._flush()
        self._socket_path.unlink(missing_ok=True)

    def _catch_signals(self) -> socket.socket:
        receiver, sender = socket.socketpair()
        receiver.setblocking(False)
        sender.setblocking(False)
        signal.set_wakeup_fd(sender.detach(), warn_on_full_buffer=False)
        # Without a Python handler, nothing is written to the wakeup descriptor.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self._leave({}))
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
        self._selector.register(receiver, selectors.EVENT_READ)
        return receiver

    def _listen(self) -> socket.socket:
        # We hold the lock, so an existing socket belongs to a shim that has ended.
        self._socket_path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self._socket_path))
        listener.listen(_WAITING)
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        return listener

    def _adopt(self) -> None:
        for record in self._records.load():
            held = containers.ShimContainer(record, now=self._now, adopted=True)
            self._held[record.id] = held
            if not held.ended:
                self._running[record.id] = held
                held.adopt()
                self._watch_pipes(held)

    # Connections

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        client = shim_exec_server.ExecConnection(connection)
        self._selector.register(connection, selectors.EVENT_READ, client)

    def _read_first_request(self, client: shim_exec_server.ExecConnection) -> None:
        """Read the first request of a new connection, which decides about its use.

        Until then the connection has no rights.
        """
        if client.connection.fileno() < 0:
            return  # closed earlier in this round, as its process has ended
        alive = client.read()
        first_line = client.take() if alive else None
        if first_line is None:
            if not alive:
                self._execs.disconnected(client)
                self._attachments.disconnected(client)
                self._drop_connection(client)
            return
        try:
            request = json.loads(first_line[0])
            do, _ = request["do"], request["n"]
            start = {"exec": self._execs.start, "attach": self._attachments.start}.get(do)
            held = None if start is None else self._held.get(request["container"])
        except (ValueError, KeyError, TypeError):
            do, start, held = "", None, None
        if do == "hello":
            self._take_over(client, first_line)
        elif start is None or not start(client, request, held):
            self._drop_connection(client)

    def _take_over(
        self, client: shim_exec_server.ExecConnection, first_line: tuple[bytes, bytes]
    ) -> None:
        """Make this the node's connection. An older one belongs to a server that has ended."""
        self._disconnect()
        for descriptor in client.take_descriptors():
            os.close(descriptor)
        self._connection = client.connection
        self._selector.modify(client.connection, selectors.EVENT_READ)
        line, self._received = first_line
        self._execute_request(line)
        self._flush()

    def _drop_connection(self, client: shim_exec_server.ExecConnection) -> None:
        self._selector.unregister(client.connection)
        client.close()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._selector.unregister(self._connection)
            self._connection.close()
        self._connection = None
        self._received = self._unsent = b""
        self._alone_since = self._now.monotonic()

    def _read_node(self) -> None:
        assert self._connection is not None  # noqa: S101 - for the type checker
        try:
            piece = self._connection.recv(_RECEIVE)
        except BlockingIOError:
            # The call came because the socket can be written to again.
            piece = None
        except OSError:
            piece = b""
        if piece is not None:
            *lines, self._received = (self._received + piece).split(b"\n")
            if (
                not piece
                or len(self._received) > MAX_REQUEST
                or not all(map(self._execute_request, lines))
            ):
                self._disconnect()
                return
        self._flush()

    def _execute_request(self, line: bytes) -> bool:
        """Execute one request and reply.

        Returns False for invalid JSON, which ends the connection.
        """
        try:
            request = json.loads(line)
            do = self._requests[request["do"]]
            number = request["n"]
        except (ValueError, KeyError, TypeError):
            return False
        try:
            reply = do(request)
        except (ValueError, KeyError, TypeError, OSError) as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        self._send({"n": number, **reply})
        return True

    # Requests

    def _hello(self, _: dict[str, Any]) -> dict[str, Any]:
        records = [held.record._asdict() for held in self._held.values()]
        return {"version": PROTOCOL, "pid": os.getpid(), "containers": records}

    def _start(self, request: dict[str, Any]) -> dict[str, Any]:
        """Start a container, unless a container with this id is known."""
        order = containers.StartRequest(
            *(request[field] for field in containers.StartRequest._fields)
        )
        if not containers.valid_id(order.id):
            raise ValueError("not a container id")
        held = self._held.get(order.id)
        if held is None:
            if self._leaving:
                raise ValueError("the shim is leaving")
            record = containers.ContainerRecord(
                order.id, order.directory, boot=containers.boot_id()
            )
            # Saved first: if this shim is killed, the next one ends all processes with the marker.
            self._records.save(record)
            held = self._held[order.id] = containers.ShimContainer(record, now=self._now)
            held.start(order)
            if not held.ended:
                self._running[record.id] = held
            self._watch_pipes(held)
            self._save(held)
        return {"container": held.record._asdict()}

    def _stop(self, request: dict[str, Any]) -> dict[str, Any]:
        held = self._held.get(request["id"])
        if held is not None:
            held.stop(float(request["grace_s"]))
        return {}

    def _forget(self, request: dict[str, Any]) -> dict[str, Any]:
        held = self._held.get(request["id"])
        if held is not None:
            if not held.ended:
                raise ValueError("the container has not ended")
            del self._held[held.record.id]
            self._records.forget(held.record.id)
        return {}

    def _leave(self, request: dict[str, Any]) -> dict[str, Any]:
        self._leaving = True
        for held in self._running.values():
            held.stop(float(request.get("grace_s", LEAVE_GRACE_S)))
        return {}

    # Deadlines and ended processes

    def _wait_s(self) -> float:
        times = [due for held in self._running.values() if (due := held.due()) is not None]
        if self._connection is None and not self._leaving:
            times.append(self._alone_since + self._patience_s)
        return max(0.0, min([_TICK_S, *(t - self._now.monotonic() for t in times)]))

    def _tick(self) -> None:
        now = self._now.monotonic()
        due = [h for h in self._running.values() if (at := h.due()) is not None and at <= now]
        if due:
            self._step_all(due)
        abandoned = self._connection is None and now >= self._alone_since + self._patience_s
        if abandoned and not self._leaving:
            log_line(f"no server for {self._patience_s:g} s: leaving")
            self._leave({})
        self._flush()

    def _step_all(self, due: list[containers.ShimContainer]) -> None:
        """Step all due containers, with one scan of all processes for containers that end together.

        A scan for each container would take a minute when hundreds are killed at once.
        """
        alone = self._childless()
        markers = [held.marker for held in due if held.root is None]
        # Strays are killed here, since a process that has cleared its environment has no marker.
        if markers and not alone:
            self._end_strays()
        clear = processes.unused_markers(markers) if len(markers) > 1 and not alone else set()
        for held in due:
            self._step(held, alone=alone, clear=held.marker in clear)

    def _step(self, held: containers.ShimContainer, *, alone: bool, clear: bool) -> None:
        held.step(alone=alone, clear=clear)
        if held.ended:
            del self._running[held.record.id]
            self._watch_pipes(held)
            for client in self._attachments.container_ended(held):
                self._drop_connection(client)
            self._save(held)
            self._send({"event": "ended", "container": held.record._asdict()})

    def _end_strays(self) -> None:
        """Kill children that cannot have been started by a container that still runs."""
        roots = [root for h in self._running.values() if (root := h.root) is not None]
        root_pids = {root.pid for root in roots}
        for pid in processes.children(os.getpid()):
            child = processes.identify(pid)
            if pid in root_pids or child is None or not child.alive():
                continue
            # A process that started after the child cannot be its ancestor.
            if all(root.started > child.started for root in roots):
                processes.signal_all([pid, *processes.descendants(pid)], signal.SIGKILL)

    def _reap(self) -> None:
        roots = {held.root.pid: held for held in self._running.values() if held.root is not None}
        # One SIGCHLD may stand for several ended children: signals are not counted (signal(7)).
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            # There are children, but none of them has ended.
            if pid == 0:
                return
            # A child that is neither a root nor an exec is an adopted orphan of a container.
            if pid in roots:
                roots[pid].exited(status)
            elif (client := self._execs.exited(pid, status)) is not None:
                self._drop_connection(client)

    def _childless(self) -> bool:
        # WNOWAIT leaves a zombie for _reap. ECHILD: there are no children, not even zombies.
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
        return False

    # Output, records and replies

    def _read_pipe(self, pipe: int, held: containers.ShimContainer) -> None:
        if not held.read(pipe):
            self._close_pipe(pipe, held)

    def _watch_pipes(self, held: containers.ShimContainer) -> None:
        """Start to read the pipes of a container, or close them if the container has ended."""
        for pipe in list(held.pipes):
            if held.ended:
                self._close_pipe(pipe, held)
            else:
                self._selector.register(pipe, selectors.EVENT_READ, held)

    def _close_pipe(self, pipe: int, held: containers.ShimContainer) -> None:
        if pipe in self._selector.get_map():
            self._selector.unregister(pipe)
        os.close(pipe)
        del held.pipes[pipe]

    def _save(self, held: containers.ShimContainer) -> None:
        try:
            self._records.save(held.record)
        except OSError as error:
            log_line(f"record of {held.record.id} not written: {error.strerror}")

    def _send(self, message: dict[str, Any]) -> None:
        if self._connection is not None:
            self._unsent += json.dumps(message).encode() + b"\n"

    def _flush(self) -> None:
        if self._connection is None or not self._unsent:
            return
        try:
            # `sendall` would block the shim if the node does not read.
            sent = self._connection.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._disconnect()
            return
        self._unsent = self._unsent[sent:]
        writing = selectors.EVENT_WRITE if self._unsent else 0
        self._selector.modify(self._connection, selectors.EVENT_READ | writing)


def log_line(text: str) -> None:
    """Write one line to standard error, which is the shim's log file. A full disk is ignored."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{clock.rfc3339_micro(clock.SystemClock().wall())} shim {text}\n")
        sys.stderr.flush()


def main() -> int:
    """Run the shim with the arguments DIRECTORY SOCKET PATIENCE; return the exit code.

    The arguments are read without argparse to keep the process small.
    """
    directory, socket_path, patience = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
    # Only this user may open the socket and the records.
    os.umask(0o077)
    if not locks.OwnerLock(directory / LOCK).take():
        return LOCKED
    # Called before any container starts: orphans of containers must come to this process, not init.
    processes.become_subreaper()
    Shim(directory, socket_path, patience_s=patience, now=clock.SystemClock()).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
