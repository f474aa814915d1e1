"""A scripted dispatcher for workers: real frames on a real Unix socket.

For tests of the worker that control what a dispatcher sends and when. It keeps everything it has
read; it does not place, retry or store anything.
"""

import asyncio
import socket
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kilnwork.api import attempts, task
from kilnwork.channel import frames, messages
from kilnwork.kit import ids
from support import waiting

M = TypeVar("M")

KEEP, STOP, UNKNOWN = messages.Verdict.KEEP, messages.Verdict.STOP, messages.Verdict.UNKNOWN


class ScriptedHub:
    """Dispatcher that by default welcomes, renews, acknowledges and keeps logs; each can be
    switched off.
    """

    def __init__(self, path: Path, *, lease_s: float = 10.0, renew_s: float = 3.0) -> None:
        self.path = path
        self.lease_s = lease_s
        self.renew_s = renew_s
        self.epoch = 1
        self.acknowledges = True
        self.keeps_logs = True
        self.renews = True
        self.after_welcome: tuple[messages.ToWorker, ...] = ()
        self.greeting: messages.Refused | None = None
        self.decide: Callable[[attempts.AttemptRef], messages.Verdict] = lambda _: KEEP
        self.respond: Callable[[messages.Spawn | messages.GetTask], messages.Response | None] = (
            lambda _: None
        )
        self.seen: list[messages.FromWorker] = []
        self.logs: defaultdict[attempts.AttemptRef, bytearray] = defaultdict(bytearray)
        self.log_bytes = 0
        self.log_limit: int | None = None
        self._links = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, str(self.path))

    async def stop(self) -> None:
        """Stop listening and drop all links, as a crash would."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.path.unlink(missing_ok=True)
        self.drop()
        await waiting.wait_until_async(lambda: self._links == 0, what="all links are closed")

    def drop(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def shut(self) -> None:
        """Stop reading and writing on all links; data sent before can still be read by the peer."""
        for writer in self._writers:
            writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    def send(self, message: messages.ToWorker) -> None:
        for writer in self._writers:
            writer.write(frames.encode(message))

    def send_raw(self, data: bytes) -> None:
        """Send bytes that need not be frames."""
        for writer in self._writers:
            writer.write(data)

    def run(self, *command: str, name: str = "task-0", **more: object) -> attempts.AttemptRef:
        """Send a Run of a new task; return its ref. `more`: `inputs`, `ref`, or fields of the
        spec.
        """
        ref = more.pop("ref", None) or attempts.AttemptRef(ids.new_task_id(), 1, 1)
        inputs = more.pop("inputs", None)
        assert isinstance(ref, attempts.AttemptRef)
        assert inputs is None or isinstance(inputs, bytes)
        spec = task.TaskSpec(command=command, **more)  # type: ignore[arg-type]
        self.send(messages.Run(ref, "default", name, spec, inputs))
        return ref

    def all_of(self, kind: type[M]) -> list[M]:
        """Return all messages of one kind that were read so far, in order."""
        return [message for message in self.seen if isinstance(message, kind)]

    async def first(
        self, kind: type[M], ref: attempts.AttemptRef | None = None, *, timeout_s: float = 30.0
    ) -> M:
        """Return the first message of a kind, of one attempt if given."""

        def look() -> list[M]:
            found = self.all_of(kind)
            return [m for m in found if ref is None or getattr(m, "ref", None) == ref]

        what = f"a {kind.__name__} of {ref}"
        return (await waiting.wait_until_async(look, what=what, timeout_s=timeout_s))[0]

    async def outcome(
        self, ref: attempts.AttemptRef, *, timeout_s: float = 30.0
    ) -> attempts.Outcome:
        return (await self.first(messages.Finished, ref, timeout_s=timeout_s)).outcome

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self._links += 1
        cutter = frames.Cutter()
        try:
            while data := await reader.read(1 << 16):
                for body in cutter.feed(data):
                    self._received(frames.decode_from_worker(body), writer)
        except ConnectionError:
            pass
        finally:
            self._writers.discard(writer)
            self._links -= 1
            writer.close()

    def _received(self, message: messages.FromWorker, writer: asyncio.StreamWriter) -> None:
        if isinstance(message, messages.Log):
            self._log(message)
        else:
            self.seen.append(message)
        reply = self._reply(message)
        if reply is not None:
            more = self.after_welcome if isinstance(reply, messages.Welcome) else ()
            writer.write(b"".join(map(frames.encode, (reply, *more))))

    def _reply(self, message: messages.FromWorker) -> messages.ToWorker | None:
        match message:
            case messages.Hello():
                return self.greeting or self._welcome(message)
            case messages.Renew() if self.renews:
                return messages.Renewed(message.number)
            case messages.Started() | messages.Finished() | messages.SlotGone() if (
                self.acknowledges
            ):
                return messages.Acknowledged(message.serial)
            case messages.Log() if self.keeps_logs:
                return messages.LogKept(message.ref, message.offset + len(message.data))
            case messages.Spawn() | messages.GetTask():
                return self.respond(message)
        return None

    def _welcome(self, hello: messages.Hello) -> messages.Welcome:
        decisions = tuple(
            messages.Decision(r.ref, self.decide(r.ref), len(self.logs[r.ref]))
            for r in hello.running
        )
        return messages.Welcome(self.epoch, self.lease_s, self.renew_s, decisions)

    def _log(self, message: messages.Log) -> None:
        self.log_bytes = max(self.log_bytes, message.offset + len(message.data))
        if self.log_limit is not None and message.offset >= self.log_limit:
            return
        kept = self.logs[message.ref]
        assert message.offset <= len(kept), "output is missing"
        kept[message.offset :] = message.data
