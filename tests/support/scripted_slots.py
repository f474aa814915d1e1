"""A scripted dispatcher for agents *and* slots: real frames on a real Unix socket.

For tests of slots that control what a dispatcher sends and when: `ScriptedHub` plays the agent's
peer, and this module the slots'. A slot gets only what a test sends, except that its reports are
acknowledged.
"""

import asyncio
import contextlib
import functools
import hashlib
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kilnwork.api import attempts, calls, task
from kilnwork.channel import frames, messages
from kilnwork.kit import ids
from kilnwork.sdk import futures, serialization
from support import scripted_hub, short_paths, waiting, worker_process

M = TypeVar("M")
T = TypeVar("T")


class Slot:
    """One slot: its link, if it has one, and all its messages."""

    def __init__(
        self, name: bytes, logs: defaultdict[attempts.AttemptRef, bytearray] | None = None
    ) -> None:
        self.name = name
        self.hellos: list[messages.SlotHello] = []
        self.seen: list[Any] = []
        self.logs = defaultdict(bytearray) if logs is None else logs
        self.order: list[tuple[str, Any]] = []
        self.ends: dict[attempts.AttemptRef, calls.CallEnd] = {}
        self.writer: asyncio.StreamWriter | None = None
        self.templates: dict[str, int] = {}
        self.unknown: tuple[attempts.AttemptRef, ...] = ()
        self.watched: dict[ids.TaskId, int] = {}
        self._news = asyncio.Event()

    def send(self, *sent: frames.Sent) -> None:
        assert self.writer is not None, "the slot has no link"
        self.writer.write(b"".join(map(frames.encode, sent)))

    def drop(self) -> None:
        if self.writer is not None:
            self.writer.transport.abort()
            self.writer = None

    def notify(self) -> None:
        """Wake the waiters: the slot has sent a message."""
        self._news.set()

    async def until(self, look: Callable[[], T], *, what: str, timeout_s: float = 30.0) -> T:
        """Return the first truthy result of `look`, which is called after each message of the
        slot.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while not (response := look()):
                    self._news.clear()
                    await self._news.wait()
                return response
        except TimeoutError:
            raise AssertionError(f"{what}: not within {timeout_s} s; {self.seen[-3:]}") from None

    def all_of(self, kind: type[M]) -> list[M]:
        return [message for message in self.seen if isinstance(message, kind)]


class SlotHub(scripted_hub.ScriptedHub):
    """Scripted hub with slots."""

    def __init__(self, path: Path, **options: float) -> None:
        super().__init__(path, **options)
        self.slots: dict[bytes, Slot] = {}
        self.blobs = path.parent / "blobs"
        self.refuse_slots: messages.Refused | None = None
        self.acknowledges_slots = True
        self.allows_gaps = False
        """Output may be missing, and is zeros then."""

    async def open(self) -> Slot:
        """Request a slot and wait until it has joined."""
        slot = self.ask()
        await waiting.wait_until_async(lambda: slot.hellos, what="the slot joins")
        return slot

    def ask(self) -> Slot:
        """Request a slot, which may never open."""
        slot = Slot(os.urandom(16), self.logs)
        self.slots[slot.name] = slot
        self.send(messages.OpenSlot(slot.name))
        return slot

    async def gone(self, slot: Slot, *, timeout_s: float = 30.0) -> messages.SlotGone:
        found = await waiting.wait_until_async(
            lambda: [m for m in self.all_of(messages.SlotGone) if m.slot == slot.name],
            what="the agent reports its end",
            timeout_s=timeout_s,
        )
        assert len(found) == 1
        return found[0]

    def call(self, slot: Slot, function: str, *args: Any, **more: Any) -> attempts.AttemptRef:
        """Send a call of the function of that name; return its ref. `more`: as for `run_of`."""
        run = self.run_of(slot, function, *args, **more)
        slot.send(messages.Calls((run,)))
        return run.ref

    def run_of(self, slot: Slot, function: str, *args: Any, **more: Any) -> calls.CallRun:
        """Return a call for the slot, and send its template if the slot does not have it.

        `more`: `kwargs`, fields of the run (`ref`, `in_place`, `name`, `values`) or of the
        `task.Call`.
        """
        ref = more.pop("ref", None) or attempts.AttemptRef(ids.new_task_id(), 1, 1)
        fields = {k: more.pop(k) for k in ("in_place", "name", "values") if k in more}
        payload, _ = serialization.pack_arguments(args, more.pop("kwargs", {}), None)  # type: ignore[arg-type]
        spec = task.TaskSpec(call=task.Call(function=function, **more))
        known = repr(spec)
        if known not in slot.templates:
            slot.templates[known] = len(slot.templates) + 1
            slot.send(messages.Template(slot.templates[known], spec))
        fields = {"name": "", **fields}
        return calls.CallRun(ref, slot.templates[known], payload, **fields)

    def arguments_with_futures(self, *tasks: ids.TaskId) -> attempts.Payload:
        """Return positional arguments that are the results of these tasks."""
        args = tuple(_Taken(each) for each in tasks)
        return serialization.pack_arguments(args, {}, None)[0]  # type: ignore[arg-type]

    async def end(
        self, slot: Slot, ref: attempts.AttemptRef, *, timeout_s: float = 30.0
    ) -> calls.CallEnd:
        await slot.until(lambda: ref in slot.ends, what=f"the end of {ref}", timeout_s=timeout_s)
        return slot.ends[ref]

    async def wait_for_messages(
        self, slot: Slot, kind: type[M], *, timeout_s: float = 30.0
    ) -> list[M]:
        look = functools.partial(slot.all_of, kind)
        return await slot.until(look, what=f"a {kind.__name__}", timeout_s=timeout_s)

    async def result(self, slot: Slot, ref: attempts.AttemptRef) -> Any:
        end = await self.end(slot, ref)
        assert end.ending is attempts.Ending.SUCCEEDED, end
        assert end.payload is not None
        return serialization.unpack_value(end.payload, None)  # type: ignore[arg-type]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cutter = frames.Cutter()
        bodies: list[bytes] = []
        try:
            while not bodies:
                data = await reader.read(1 << 16)
                if not data:
                    writer.close()
                    return
                bodies = cutter.feed(data)
        except ConnectionError:
            return
        hello = frames.decode_hello(bodies[0])
        if isinstance(hello, messages.SlotHello):
            await self._serve_slot(hello, bodies[1:], cutter, reader, writer)
        else:
            await self._serve_worker(bodies, cutter, reader, writer)

    async def _serve_worker(
        self,
        bodies: list[bytes],
        cutter: frames.Cutter,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._writers.add(writer)
        self._links += 1
        try:
            while True:
                for body in bodies:
                    self._received(frames.decode_from_worker(body), writer)
                data = await reader.read(1 << 16)
                if not data:
                    break
                bodies = cutter.feed(data)
        except ConnectionError:
            pass
        finally:
            self._writers.discard(writer)
            self._links -= 1
            writer.close()

    async def _serve_slot(
        self,
        hello: messages.SlotHello,
        bodies: list[bytes],
        cutter: frames.Cutter,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        slot = self.slots[hello.slot]
        if self.refuse_slots is not None:
            writer.write(frames.encode(self.refuse_slots))
            writer.close()
            return
        digest = next(o.digest for o in self.all_of(messages.SlotOpening) if o.slot == hello.slot)
        assert hashlib.sha256(hello.credential.encode()).digest() == digest
        slot.writer = writer
        writer.write(
            frames.encode(
                messages.Attached(
                    self.epoch, slot.unknown, str(self.blobs / "default"), "default", "counter"
                )
            )
        )
        slot.templates.clear()
        slot.hellos.append(hello)
        self._links += 1
        try:
            while True:
                for body in bodies:
                    self._slot_says(slot, frames.decode_from_slot(body))
                slot.notify()
                data = await reader.read(1 << 18)
                if not data:
                    break
                bodies = cutter.feed(data)
        except ConnectionError:
            pass
        finally:
            self._links -= 1
            if slot.writer is writer:
                slot.writer = None
            writer.close()

    def _slot_says(self, slot: Slot, message: Any) -> None:
        if isinstance(message, messages.Log):
            kept = slot.logs[message.ref]
            if self.allows_gaps:
                kept.extend(bytes(max(0, message.offset - len(kept))))
            assert message.offset <= len(kept), "output is missing"
            kept[message.offset :] = message.data
            slot.order.append(("log", message.ref))
            return
        slot.seen.append(message)
        if isinstance(message, messages.Watch):
            slot.watched.update((item.task, item.number) for item in message.items)
        if isinstance(message, messages.CallsEnded):
            for end in message.ends:
                slot.ends[end.ref] = end
                slot.order.append(("end", end.ref))
        if isinstance(message, messages.CallsEnded | messages.Started) and self.acknowledges_slots:
            slot.send(messages.Acknowledged(message.serial))


class _Taken:
    """The form of a pickled future."""

    def __init__(self, task_id: ids.TaskId) -> None:
        self._task = task_id

    def __reduce__(self) -> tuple[Any, ...]:
        return futures.rebuild, (self._task, None)


def payload(value: Any) -> attempts.Payload:
    return attempts.Payload(attempts.JSON, msgspec.json.encode(value))


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[SlotHub]:
    """Yield a listening hub; stop it afterwards."""
    directory = short_paths.directory()
    hub = SlotHub(directory / "channel.sock")
    await hub.start()
    try:
        yield hub
    finally:
        await hub.stop()
        directory.rmdir()


@contextlib.asynccontextmanager
async def working(hub: SlotHub, directory: Path) -> AsyncIterator[worker_process.WorkerProcess]:
    """Run a worker of the hub, whose slots can import `support`."""
    tests = str(Path(__file__).parent.parent)
    worker = worker_process.WorkerProcess(directory, channel=hub.path, KILN_PYTHONPATH=tests)
    worker.start()
    try:
        await hub.first(messages.Hello)
        yield worker
    finally:
        worker.destroy()
