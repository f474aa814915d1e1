"""A worker of frames alone: says exactly what a test tells it to, over a real socket."""

import asyncio
import contextlib
from pathlib import Path
from typing import Self, TypeVar

from kilnwork.api import attempts
from kilnwork.channel import frames, messages
from kilnwork.kit import ids

M = TypeVar("M", bound=messages.ToWorker)


class RawWorker:
    """One process life of a worker (a session); `connect` again is a reconnect."""

    def __init__(self, socket: Path, *, name: str = "w-0", slots: int = 2) -> None:
        self.socket = socket
        self.name = name
        self.pod_uid = f"uid-{name}"
        self.slots = slots
        self.session = ids.new_session()
        self.credential = "secret"
        self.cluster = "default"
        self.running: list[attempts.AttemptRef] = []
        self.processes: tuple[messages.SlotOpening, ...] = ()
        self.serial = 0
        self.epoch = 0
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._cutter = frames.Cutter()
        self._inbox: list[messages.ToWorker] = []

    async def __aenter__(self) -> Self:
        await self.connect()
        await self.expect(messages.Welcome)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect()

    async def connect(self) -> None:
        """Open a connection and say Hello."""
        await self.dial()
        self.say(
            messages.Hello(
                messages.VERSION, "worker", self.session, self.credential, "ns", self.cluster,
                self.name, self.pod_uid, "node-1", self.slots, self.epoch,
                tuple(messages.Running(ref) for ref in self.running), self.processes,
            )
        )  # fmt: skip

    async def dial(self) -> None:
        """Open a connection and say nothing."""
        self._cutter = frames.Cutter()
        self._inbox.clear()
        self._reader, self._writer = await asyncio.open_unix_connection(str(self.socket))

    async def disconnect(self) -> None:
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()
            self._writer = None

    def say(self, *sent: messages.FromWorker) -> None:
        self.send(b"".join(frames.encode(message) for message in sent))

    def send(self, data: bytes) -> None:
        assert self._writer is not None
        self._writer.write(data)

    def started(self, ref: attempts.AttemptRef, *, at: float = 0.0) -> None:
        self.serial += 1
        self.say(messages.Started(self.serial, ref, at))

    def finished(self, ref: attempts.AttemptRef, outcome: attempts.Outcome) -> int:
        """Report that an attempt is over; the serial of the report."""
        self.serial += 1
        self.say(messages.Finished(self.serial, ref, outcome))
        return self.serial

    def succeed(self, ref: attempts.AttemptRef, data: bytes = b"null") -> int:
        """Report that an attempt ran well."""
        self.started(ref)
        payload = attempts.Payload("application/json", data)
        done = attempts.Outcome(attempts.Ending.SUCCEEDED, "Succeeded", exit_code=0, result=payload)
        return self.finished(ref, done)

    async def expect(self, kind: type[M], *, timeout_s: float = 30.0) -> M:
        """The next message of that kind; others before it stay for later."""
        async with asyncio.timeout(timeout_s):
            while True:
                for message in self._inbox:
                    if isinstance(message, kind):
                        self._inbox.remove(message)
                        return message
                await self._read()

    async def acknowledged(self, serial: int) -> None:
        """Wait until that report is acknowledged."""
        while (await self.expect(messages.Acknowledged)).serial < serial:
            continue

    async def closed(self, *, timeout_s: float = 30.0) -> None:
        """Wait until the dispatcher has closed the connection."""
        async with asyncio.timeout(timeout_s):
            try:
                while True:
                    await self._read()
            except (EOFError, ConnectionError):
                return

    async def _read(self) -> None:
        assert self._reader is not None
        data = await self._reader.read(1 << 16)
        if not data:
            raise EOFError("the dispatcher closed the link")
        self._inbox += [frames.decode_to_worker(body) for body in self._cutter.feed(data)]
