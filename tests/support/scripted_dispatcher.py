"""A scripted dispatcher for blocking links: real frames on a real Unix socket, served by threads.

For tests of drivers and sessions that control what a dispatcher sends and when. By default it
accepts calls and responds to each with its own arguments; it keeps everything it has read.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from kilnwork.api import attempts, calls, task
from kilnwork.channel import frames, messages
from kilnwork.kit import ids
from support import waiting

M = TypeVar("M")


def succeeded(item: calls.CallItem) -> calls.CallResult:
    return calls.CallResult(item.number, task.State.SUCCESS, "", "", item.arguments)


class ScriptedDispatcher:
    """Dispatcher that attaches every peer; its other default behaviour can be switched off."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "d.sock"
        self.blobs = directory / "blobs"
        self.epoch = 1
        self.refusal: messages.Refused | None = None
        self.accepts = True
        self.respond: Callable[[calls.CallItem], calls.CallResult | None] = succeeded
        self.watch: Callable[[calls.Watched], calls.CallResult | None] = lambda _: None
        self.greetings = 0
        self.reads = threading.Event()
        self.reads.set()
        self.seen: list[messages.FromPeer] = []
        self._lock = threading.Lock()
        self._links: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None

    def start(self) -> None:
        self.path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(16)
        self._run(self._listen, self._listener)

    def stop(self) -> None:
        """Stop listening and drop all links, as a crash would."""
        self.path.unlink(missing_ok=True)
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
        self.reads.set()
        self.drop()
        for thread in self._threads:
            thread.join(timeout=30)
        self._threads.clear()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def connect(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        try:
            made.connect(str(self.path))
        except OSError:
            made.close()
            raise
        return made

    def drop(self) -> None:
        with self._lock:
            links, self._links = self._links, []
        for link in links:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)

    def send(self, *sent: messages.ToDriver | messages.ToSlot) -> None:
        self.send_raw(b"".join(map(frames.encode, sent)))

    def send_raw(self, data: bytes) -> None:
        """Send bytes that need not be frames to every open link."""
        with self._lock:
            for link in self._links:
                # The thread that reads a link may not have seen yet that it has ended.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    link.sendall(data)

    def results(self, *items: calls.CallResult) -> None:
        self.send(messages.Results(items))

    def all_of(self, kind: type[M]) -> list[M]:
        """Return all messages of one kind that were read so far, in order."""
        return [message for message in list(self.seen) if isinstance(message, kind)]

    def items(self, *, again: bool | None = None) -> list[calls.CallItem]:
        """Return all submitted calls; with `again` only the repeated ones (True) or the new ones
        (False).
        """
        submits = self.all_of(messages.Submit)
        return [
            item for each in submits if again is None or each.again is again for item in each.items
        ]

    def wait_items(self, count: int) -> list[calls.CallItem]:
        """Return all calls, once there are so many."""
        waiting.wait_until(lambda: len(self.items()) >= count, what=f"{count} calls", every_s=0.002)
        return self.items()

    def wait_for(self, kind: type[M], count: int = 1) -> M:
        """Return the `count`-th message of a kind."""
        look = lambda: self.all_of(kind)[count - 1 :]  # noqa: E731
        return waiting.wait_until(look, what=f"{count} {kind.__name__}", every_s=0.002)[0]

    def _run(self, call: Callable[[socket.socket], None], link: socket.socket) -> None:
        thread = threading.Thread(target=call, args=(link,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _listen(self, listener: socket.socket) -> None:
        while True:
            try:
                link, _ = listener.accept()
            except OSError:
                return
            self._run(self._serve, link)

    def _serve(self, link: socket.socket) -> None:
        greeted = False
        try:
            for body in self._bodies(link):
                if greeted:
                    self._received(frames.decode_from_slot(body), link)
                else:
                    self._greet(link, frames.decode_hello(body))
                    greeted = True
        except OSError:
            pass
        finally:
            with self._lock:
                if link in self._links:
                    self._links.remove(link)
            link.close()

    def _bodies(self, link: socket.socket) -> Iterator[bytes]:
        cutter = frames.Cutter()
        while self.reads.wait() and (data := link.recv(1 << 16)):
            yield from cutter.feed(data)

    def _greet(self, link: socket.socket, hello: messages.AnyHello) -> None:
        self.seen.append(hello)
        namespace = hello.namespace if isinstance(hello, messages.DriverHello) else "default"
        attached = messages.Attached(self.epoch, (), str(self.blobs), namespace, "default")
        greeting = self.refusal or attached
        with self._lock:
            self.greetings += 1
            self._links.append(link)
            link.sendall(frames.encode(greeting))

    def _received(self, message: messages.FromPeer, link: socket.socket) -> None:
        self.seen.append(message)
        responses: list[calls.CallResult | None] = []
        if isinstance(message, messages.Submit):
            responses = [self.respond(item) for item in message.items]
        elif isinstance(message, messages.Watch):
            responses = [self.watch(item) for item in message.items]
        output: list[messages.ToDriver] = []
        if found := tuple(each for each in responses if each is not None):
            output.append(messages.Results(found))
        if self.accepts and isinstance(message, messages.Submit):
            output.append(messages.Accepted(message.items[-1].number))
        with self._lock:
            for each in output:
                link.sendall(frames.encode(each))


def json(text: str) -> attempts.Payload:
    return attempts.Payload(attempts.JSON, text.encode())


def new_id() -> ids.TaskId:
    """Return the id of a task that another driver has submitted."""
    return ids.new_task_id()
