"""Floors for `tasks.py`: the fastest possible task system of the same shape on this machine.

A driver, a dispatcher on uvloop whose writer thread commits in groups, two slots with links of
their own; 256 calls to a message; three durable rows a task (submitted, reserved, ended), and no
message sent on before it is on disk. No retries, leases, priorities, fairness, errors or waiting:
their cost is the difference. As a program it is one of its own processes.
"""

import argparse
import asyncio
import collections
import os
import pickle
import queue
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import msgspec

pack = msgspec.msgpack.Encoder().encode
unpack = msgspec.msgpack.Decoder().decode

CREDIT = 64
"""Tasks that a slot may hold: the next ones are there when it has finished one."""
TO_A_MESSAGE = 256

TABLES = (
    "CREATE TABLE task (id INTEGER PRIMARY KEY, function TEXT, arguments BLOB, state INT,"
    " attempt INT, result BLOB)"
)
STATEMENTS = (
    "INSERT INTO task (id, function, arguments, state, attempt) VALUES (?, ?, ?, 0, 0)",
    "UPDATE task SET state = 1, attempt = ? WHERE id = ?",
    "UPDATE task SET state = 2, result = ? WHERE id = ? AND attempt = ?",
)


def framed(message: object) -> bytes:
    """Return one message in wire format: u32 length, msgpack."""
    body = pack(message)
    return len(body).to_bytes(4, "big") + body


class Unframed:
    """Splits received bytes into whole messages."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Any]:
        """Return every message that is complete now."""
        data = self._rest + data if self._rest else data
        view, at, end, messages = memoryview(data), 0, len(data), []
        while end - at >= 4:
            stop = at + 4 + int.from_bytes(view[at : at + 4], "big")
            if stop > end:
                break
            messages.append(unpack(view[at + 4 : stop]))
            at = stop
        self._rest = data[at:]
        return messages


class Peer(asyncio.Protocol):
    """A link on the dispatcher's side."""

    def __init__(self, dispatcher: "Dispatcher") -> None:
        self._dispatcher = dispatcher
        self._unframed = Unframed()
        self.free = 0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for kind, items in self._unframed.feed(data):
            getattr(self._dispatcher, kind)(self, items)
        self._dispatcher.go_on()


class Dispatcher:
    """Tasks in memory; one batch of rows at a time is written to disk."""

    def __init__(self, loop: asyncio.AbstractEventLoop, database: Any, delay_s: float) -> None:
        self._loop, self._database, self._delay_s = loop, database, delay_s
        self._tasks: dict[int, tuple[Peer, int, str, bytes]] = {}
        self._ready: collections.deque[int] = collections.deque()
        self._slots: list[Peer] = []
        self._last = 0
        self._rows: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
        self._outbox: dict[tuple[Peer, str], list[Any]] = {}
        self._busy = False
        self._batches: queue.SimpleQueue[Any] = queue.SimpleQueue()
        if database is not None:
            threading.Thread(target=self._write, daemon=True).start()

    def slot(self, peer: Peer, _: object) -> None:
        """Add a slot."""
        peer.free = CREDIT
        self._slots.append(peer)

    def submit(self, peer: Peer, calls: list[Any]) -> None:
        """Add new tasks; each is accepted by number."""
        accepted = self._outbox.setdefault((peer, "accepted"), [])
        for number, function, arguments in calls:
            accepted.append((number, self._add(peer, number, function, arguments)))

    def ended(self, peer: Peer, ends: list[Any]) -> None:
        """Finish tasks, each perhaps replaced by its successor."""
        for task, attempt, result, follower in ends:
            owner, number, *_ = self._tasks.pop(task)
            peer.free += 1
            self._rows[2].append((result, task, attempt))
            if follower is None:
                self._outbox.setdefault((owner, "results"), []).append((number, result))
            else:
                self._add(owner, number, *follower)

    def _add(self, owner: Peer, number: int, function: str, arguments: bytes) -> int:
        task = self._last = self._last + 1
        self._tasks[task] = (owner, number, function, arguments)
        self._ready.append(task)
        self._rows[0].append((task, function, arguments))
        return task

    def _reserve(self) -> None:
        while self._ready:
            slot = max(self._slots, key=lambda slot: slot.free, default=None)
            if slot is None or not slot.free:
                return
            slot.free -= 1
            task = self._ready.popleft()
            _, _, function, arguments = self._tasks[task]
            self._rows[1].append((1, task))
            self._outbox.setdefault((slot, "run"), []).append((task, 1, function, arguments))

    def go_on(self) -> None:
        """Reserve tasks for slots, and write the batch unless another is being written."""
        if self._busy:
            return
        self._reserve()
        if not any(self._rows):
            return
        rows, reported = self._rows, self._outbox
        self._rows, self._outbox = ([], [], []), {}
        if self._database is None:
            self._deliver(reported)
        else:
            self._busy = True
            self._batches.put((rows, reported))

    def _deliver(self, outgoing: dict[tuple[Peer, str], list[Any]]) -> None:
        for (peer, kind), items in outgoing.items():
            peer.transport.write(framed((kind, items)))

    def _written(self, outgoing: dict[tuple[Peer, str], list[Any]]) -> None:
        self._busy = False
        self._deliver(outgoing)
        self.go_on()

    def _write(self) -> None:
        cursor = self._database.cursor()
        while True:
            batch, reported = self._batches.get()
            cursor.execute("BEGIN IMMEDIATE")
            for statement, rows in zip(STATEMENTS, batch, strict=True):
                if rows:
                    cursor.executemany(statement, rows)
            if self._delay_s:
                time.sleep(self._delay_s)
            cursor.execute("COMMIT")
            self._loop.call_soon_threadsafe(self._written, reported)


def dispatcher(directory: Path, *, durable: bool, delay_s: float) -> None:
    """Run the dispatcher's process."""
    import uvloop  # noqa: PLC0415 - only this process pays for it

    database = None
    if durable:
        import apsw  # noqa: PLC0415 - only a durable one pays for it

        database = apsw.Connection(str(directory / "floor.db"))
        for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", TABLES):
            database.execute(statement)

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        hub = Dispatcher(loop, database, delay_s)
        await loop.create_unix_server(lambda: Peer(hub), str(directory / "link"))
        await asyncio.Event().wait()

    uvloop.run(serve())


class Link:
    """A blocking end of a link."""

    def __init__(self, directory: Path) -> None:
        self._socket, self._unframed = socket.socket(socket.AF_UNIX), Unframed()
        end = time.monotonic() + 10
        while self._socket.connect_ex(str(directory / "link")):
            if time.monotonic() > end:
                raise TimeoutError("the floor's dispatcher did not start")
            time.sleep(0.001)

    def send(self, kind: str, items: list[Any]) -> None:
        """Send one message."""
        self._socket.sendall(framed((kind, items)))

    def receive(self) -> list[Any]:
        """Read once or more; return every completed message, none at the end of the link."""
        try:
            data = self._socket.recv(1 << 18)
        except ConnectionResetError:
            return []
        return self._unframed.feed(data) if data else []


def echo(value: int) -> tuple[int, None]:
    """Return the argument as result, without a successor."""
    return value, None


def hop(left: int) -> tuple[int, tuple[str, bytes] | None]:
    """Submit the next task of a chain as the end of this one."""
    return 0, ("hop", pickle.dumps((left - 1,), 5)) if left else None


FUNCTIONS: dict[str, Callable[[int], tuple[int, Any]]] = {"echo": echo, "hop": hop}


def slot(directory: Path) -> None:
    """Run a slot's process: execute tasks in order until the link ends."""
    link = Link(directory)
    link.send("slot", [])
    while messages := link.receive():
        for _, calls in messages:
            ends = []
            for task, attempt, function, arguments in calls:
                result, follower = FUNCTIONS[function](*pickle.loads(arguments))
                ends.append((task, attempt, pickle.dumps(result, 5), follower))
            link.send("ended", ends)


class Floor:
    """A dispatcher, two slots and this process as their driver."""

    def __init__(self, directory: Path | None, *, durable: bool, delay_s: float = 0.0) -> None:
        """Use `directory`, which should be on the disk to be measured, for the floor's own
        directory.
        """
        self._directory = tempfile.TemporaryDirectory(prefix="kiln-floor.", dir=directory)
        argv = [sys.executable, __file__, self._directory.name, "--delay", str(delay_s)]
        roles = [["dispatcher", *(["--durable"] if durable else [])], ["slot"], ["slot"]]
        self.processes = [subprocess.Popen([*argv, "--role", *role]) for role in roles]
        self._link = Link(Path(self._directory.name))
        self.burst(TO_A_MESSAGE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        self._directory.cleanup()

    def burst(self, count: int) -> float:
        """Return the seconds for `count` calls with different arguments, from first submit to last
        result.
        """
        start = time.perf_counter()
        for first in range(0, count, TO_A_MESSAGE):
            numbers = range(first, min(count, first + TO_A_MESSAGE))
            calls = [(n, "echo", pickle.dumps((n,), 5)) for n in numbers]
            self._link.send("submit", calls)
        self._collect(count)
        return time.perf_counter() - start

    def hops(self, count: int) -> float:
        """Return the seconds for a chain: each call ends by submitting the next."""
        start = time.perf_counter()
        self._link.send("submit", [(0, "hop", pickle.dumps((count,), 5))])
        self._collect(1)
        return time.perf_counter() - start

    def _collect(self, count: int) -> None:
        while count:
            for kind, items in self._link.receive():
                if kind == "results":
                    for number, result in items:
                        if pickle.loads(result) != number:
                            raise AssertionError(f"call {number} gave {result!r}")
                    count -= len(items)


def first() -> None:
    """Run a whole start: processes, link, first result; measured in a fresh interpreter."""
    with Floor(None, durable=False):
        print("first", flush=True)
        sys.stdin.read()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, nargs="?", default=None)
    parser.add_argument("--role", choices=("dispatcher", "slot", "first"), required=True)
    parser.add_argument("--durable", action="store_true")
    parser.add_argument("--delay", type=float, default=0.0)
    options = parser.parse_args()
    if options.role == "first":
        first()
    elif options.role == "slot":
        slot(options.directory)
    else:
        dispatcher(options.directory, durable=options.durable, delay_s=options.delay)


if __name__ == "__main__":
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    main()
