"""Drivers and slots of frames alone: they say exactly what a test tells them, over a real socket.

The worker that goes with them is `raw_worker.RawWorker`, which opens the slots it is asked for.
"""

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Self, TypeVar

from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.channel import frames, messages
from kilnwork.kit import ids
from support import raw_worker

T = TypeVar("T", bound=messages.ToDriver | messages.ToSlot)
M = TypeVar("M")

ADD = api_task.TaskSpec(call=api_task.Call(function="sums:add"))


class _Raw(Generic[T]):
    """One end of a link; `inbox` holds what was read and not expected yet."""

    def __init__(self, socket: Path, decode: Callable[[bytes], T]) -> None:
        self.socket = socket
        self.inbox: list[T] = []
        self.frames_read = 0
        self.largest_frame = 0
        self._decode = decode
        self._cutter = frames.Cutter()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    def hello(self) -> messages.DriverHello | messages.SlotHello:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self.connect()
        await self.expect(messages.Attached)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect()

    async def connect(self) -> None:
        """Open a connection and say hello."""
        await self.disconnect()
        self._cutter = frames.Cutter()
        self.inbox.clear()
        self._reader, self._writer = await asyncio.open_unix_connection(str(self.socket))
        self.say(self.hello())

    async def disconnect(self) -> None:
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()
            self._writer = None

    def say(self, *sent: frames.Sent) -> None:
        self.send(b"".join(map(frames.encode, sent)))

    def send(self, data: bytes) -> None:
        assert self._writer is not None
        self._writer.write(data)

    async def expect(self, kind: type[M], *, timeout_s: float = 30.0) -> M:
        """The next message of that kind; others before it stay for later."""
        async with asyncio.timeout(timeout_s):
            while True:
                for at, message in enumerate(self.inbox):
                    if isinstance(message, kind):
                        del self.inbox[at]
                        return message
                await self.read()

    async def closed(self, *, timeout_s: float = 30.0) -> None:
        """Wait until the dispatcher has closed the connection."""
        async with asyncio.timeout(timeout_s):
            try:
                while True:
                    await self.read()
            except (EOFError, ConnectionError):
                return

    async def read(self) -> None:
        """Read what comes next into the inbox."""
        assert self._reader is not None
        data = await self._reader.read(1 << 18)
        if not data:
            raise EOFError("the dispatcher closed the link")
        bodies = self._cutter.feed(data)
        self.frames_read += len(bodies)
        self.largest_frame = max(self.largest_frame, *map(len, bodies), 0)
        self.inbox += map(self._decode, bodies)


class RawDriver(_Raw[messages.ToDriver]):
    """One session of a driver; `connect` again is a reconnect."""

    def __init__(self, socket: Path, *, namespace: str = "ns", credential: str = "secret") -> None:
        super().__init__(socket, frames.decode_to_driver)
        self.namespace = namespace
        self.credential = credential
        self.session = os.urandom(16)
        self.epoch = 0
        self.number = 0

    def hello(self) -> messages.DriverHello:
        return messages.DriverHello(
            messages.VERSION, self.session, self.credential, self.namespace, self.epoch
        )

    def template(self, number: int = 1, spec: api_task.TaskSpec = ADD) -> None:
        self.say(messages.Template(number, spec))

    def item(self, data: bytes = b"[[1],{}]", **facts: object) -> calls.CallItem:
        """The next call, of template 1 unless told otherwise."""
        self.number += 1
        given = {"template": 1, "arguments": attempts.Payload(attempts.JSON, data), **facts}
        return calls.CallItem(number=self.number, task=ids.new_task_id(), **given)  # type: ignore[arg-type]

    def submit(self, *items: calls.CallItem, again: bool = False) -> None:
        self.say(messages.Submit(items, again))

    async def results(self, count: int, *, timeout_s: float = 30.0) -> dict[int, calls.CallResult]:
        found: dict[int, calls.CallResult] = {}
        while len(found) < count:
            message = await self.expect(messages.Results, timeout_s=timeout_s)
            found |= {result.number: result for result in message.items}
        return found

    async def accepted(self, number: int) -> None:
        """Wait until all calls up to that number are accepted."""
        while (await self.expect(messages.Accepted)).number < number:
            continue


class RawSlot(_Raw[messages.ToSlot]):
    """One slot process; `connect` again is a reconnect."""

    def __init__(self, socket: Path, slot: bytes) -> None:
        super().__init__(socket, frames.decode_to_slot)
        self.slot = slot
        self.secret = os.urandom(32).hex()
        self.running: list[attempts.AttemptRef] = []
        self.epoch = 0
        self.serial = 0
        self.waiting_runs: list[calls.CallRun] = []

    @property
    def opening(self) -> messages.SlotOpening:
        return messages.SlotOpening(self.slot, hashlib.sha256(self.secret.encode()).digest())

    def hello(self) -> messages.SlotHello:
        return messages.SlotHello(
            messages.VERSION, self.slot, self.secret, self.epoch, tuple(self.running)
        )

    async def run(self, *, timeout_s: float = 30.0) -> calls.CallRun:
        while not self.waiting_runs:
            self.waiting_runs += (await self.expect(messages.Calls, timeout_s=timeout_s)).runs
        return self.waiting_runs.pop(0)

    def done(self, *ends: calls.CallEnd) -> int:
        """Report ends; the serial of the report."""
        self.serial += 1
        self.say(messages.Done(self.serial, ends))
        return self.serial

    def succeed(self, run: calls.CallRun, data: bytes = b"null", *, seconds: float = 0.001) -> int:
        """Report that a call ended well."""
        return self.done(ended_well(run.ref, data, seconds=seconds))

    async def acknowledged(self, serial: int) -> None:
        """Wait until that report is acknowledged."""
        while (await self.expect(messages.Acknowledged)).serial < serial:
            continue


def ended_well(
    ref: attempts.AttemptRef, data: bytes = b"null", *, seconds: float = 0.001
) -> calls.CallEnd:
    """How a call ends well."""
    payload = attempts.Payload(attempts.JSON, data)
    return calls.CallEnd(
        ref, attempts.Ending.SUCCEEDED, "Succeeded", "", payload, 1_700_000_000.0, seconds
    )


async def open_slot(worker: raw_worker.RawWorker) -> RawSlot:
    """Do as the next OpenSlot says: announce a slot and connect it."""
    asked = await worker.expect(messages.OpenSlot)
    slot = RawSlot(worker.socket, asked.slot)
    worker.say(slot.opening)
    await connect(slot)
    return slot


async def connect(slot: RawSlot) -> None:
    """Connect; again while the announcement was not read yet."""
    for _ in range(200):
        await slot.connect()
        while not slot.inbox:
            await slot.read()
        answer = slot.inbox.pop(0)
        if isinstance(answer, messages.Attached):
            return
        assert isinstance(answer, messages.Refused)
        assert answer.retry, answer
        await asyncio.sleep(0.01)
    raise AssertionError("the slot was not let in")
