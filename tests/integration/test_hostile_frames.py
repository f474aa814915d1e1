"""Malicious drivers and slots: they can harm only their own link."""

import asyncio
import random
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.channel import errors, frames, messages
from kilnwork.dispatch.hub import hub
from kilnwork.dispatch.journal import memory_store, port
from kilnwork.dispatch.journal.sqlite import journal
from kilnwork.kit import ids
from support import hubs, raw_peers, raw_worker

EXAMPLES = 30
"""Streams that are tried on one dispatcher; each opens its own link."""


class OneSecret:
    """Every cluster and every namespace has the same token."""

    async def verify(self, namespace: str, cluster: str, credential: str) -> bool:
        return credential == "secret"

    async def verify_driver(self, namespace: str, credential: str) -> bool:
        return credential == "secret"


class Home:
    """A dispatcher, a worker that opens requested slots, and a driver whose calls must run."""

    def __init__(self, directory: Path, kept: port.Store) -> None:
        self.failures: list[BaseException] = []
        self.socket = directory / "run" / "channel.sock"
        options = hub.HubOptions(on_failure=self.failures.append)
        self.hub = hubs.make(directory, kept=kept, options=options)
        self.worker = raw_worker.RawWorker(self.socket, slots=3)
        self.driver = raw_peers.RawDriver(self.socket)
        self.tasks: list[ids.TaskId] = []
        self.refs: list[attempts.AttemptRef] = []

    async def begin(self) -> None:
        """Start, and create some tasks whose ids a hostile peer may know."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, facts: self.failures.append(_error(facts)))
        await self.hub.start(self.socket)
        await self.worker.connect()
        await self.worker.expect(messages.Welcome)
        await self.driver.connect()
        await self.driver.expect(messages.Attached)
        self.driver.template()
        self.driver.submit(*(self.driver.item() for _ in range(3)))
        self.hostile = await raw_peers.open_slot(self.worker)
        self.honest = await raw_peers.open_slot(self.worker)
        idle = await raw_peers.open_slot(self.worker)
        self.refs = [(await slot.run()).ref for slot in (self.hostile, self.honest, idle)]
        self.tasks = [ref.task for ref in self.refs]
        idle.succeed(calls.CallRun(self.refs[2], 1, raw_calls_payload(), ""))
        await self.driver.results(1)
        self.idle = idle

    async def end(self) -> None:
        for peer in (self.idle, self.honest, self.hostile, self.driver, self.worker):
            await peer.disconnect()
        await self.hub.stop()

    async def end_slot(self, slot: raw_peers.RawSlot) -> None:
        """End a slot's process; its calls concern only its own cluster."""
        await slot.disconnect()
        self.worker.serial += 1
        self.worker.say(
            messages.SlotGone(
                self.worker.serial, slot.slot, None, 0, asked=False, message="", proof=True
            ),
            messages.Renew(1),
        )
        await self.worker.expect(messages.Renewed)

    async def still_works(self) -> None:
        """Check that a call of an honest driver runs in an honest slot and returns its result."""
        if self.failures:
            raise self.failures[0]
        item = self.driver.item()
        self.driver.submit(item)
        while (run := await self.idle.run()).ref.task != item.task:
            self.idle.succeed(run)
        self.idle.succeed(run, b"1")
        while item.number not in await self.driver.results(1):
            continue


def _error(facts: dict[str, Any]) -> BaseException:
    """Exceptions that reached the dispatcher's loop unhandled."""
    return facts.get("exception") or RuntimeError(facts["message"])


def raw_calls_payload() -> attempts.Payload:
    return attempts.Payload(attempts.JSON, b"[[],{}]")


@asynccontextmanager
async def a_home(directory: Path, kept: port.Store) -> AsyncIterator[Home]:
    home = Home(directory, kept)
    await home.begin()
    try:
        yield home
    finally:
        await home.end()


class Liar:
    """Generates messages that its kind of peer may send, about anything."""

    def __init__(self, home: Home, seed: int) -> None:
        self.random = random.Random(seed)
        self.tasks = [*home.tasks, ids.TaskId(self.random.randbytes(16))]
        self.refs = [*home.refs, self.ref()]

    def ref(self) -> attempts.AttemptRef:
        pick = self.random
        return attempts.AttemptRef(
            pick.choice(self.tasks), pick.choice([0, 1, 2, 9]), pick.choice([0, 1, 2])
        )

    def payload(self) -> attempts.Payload:
        pick = self.random
        return pick.choice(
            [
                attempts.Payload(attempts.JSON, pick.randbytes(pick.choice([0, 3, 70_000]))),
                attempts.Payload(attempts.PICKLE, b"", pick.randbytes(32), 2**40),
                attempts.Payload("", b"{}", None, 0, (bytes(32), bytes(32))),
            ]
        )

    def some(self, kind: Any) -> tuple[Any, ...]:
        return tuple(kind() for _ in range(self.random.choice([0, 1, 1, 3])))

    def task(self) -> ids.TaskId:
        return self.random.choice(self.tasks)

    def number(self) -> int:
        return self.random.choice([0, 1, 2, 3, 2**31, 2**53])

    def item(self) -> calls.CallItem:
        pick = self.random
        task = self.task() if pick.choice([True, False]) else ids.TaskId(pick.randbytes(16))
        self.tasks.append(task)
        return calls.CallItem(
            self.number(),
            task,
            pick.choice([1, 1, 1, 7]),
            self.payload(),
            self.some(self.task),
            pick.choice([None, "", "name"]),
            pick.choice([None, None, "key", ""]),
            pick.choice([0, 1, 5]),
            pick.choice([None, *self.refs]),
        )

    def end(self) -> calls.CallEnd:
        pick = self.random
        return calls.CallEnd(
            pick.choice(self.refs),
            pick.choice(list(attempts.Ending)),
            pick.choice(["Succeeded", "", "WorkerLost", "Delegated"]),
            pick.choice(["", "x" * 10_000]),
            pick.choice([None, self.payload()]),
            pick.choice([0.0, 1e12]),
            pick.choice([0.0, 1e12]),
            pick.choice([True, False]),
            pick.choice([None, None, self.task()]),
        )

    def watched(self) -> calls.Watched:
        return calls.Watched(self.number(), self.task())

    def template(self) -> messages.Template:
        call = api_task.Call(function=self.random.choice(["f", "g"]), accept_failures=True)
        retry = api_task.Retry(max_attempts=self.random.choice([1, 1000]), delay_seconds=0)
        return messages.Template(self.number(), api_task.TaskSpec(call=call, retry=retry))

    def of_submitter(self) -> messages.FromDriver:
        pick = self.random
        makers: list[Callable[[], messages.FromDriver]] = [
            lambda: messages.Submit(self.some(self.item), pick.choice([True, False])),
            lambda: messages.Submit(self.some(self.item), pick.choice([True, False])),
            lambda: messages.Watch(self.some(self.watched)),
            lambda: messages.Cancel(self.some(self.task), pick.choice([True, False])),
            self.template,
        ]
        return pick.choice(makers)()

    def of_slot(self) -> messages.FromSlot:
        pick = self.random
        ref = pick.choice(self.refs)
        makers: list[Callable[[], Any]] = [
            lambda: messages.Started(self.number(), ref, pick.choice([0.0, 1e12])),
            lambda: messages.CallsEnded(self.number(), self.some(self.end)),
            lambda: messages.CallsEnded(self.number(), self.some(self.end)),
            lambda: messages.Returned(self.some(self.ref)),
            lambda: messages.Waiting(ref, self.some(self.task), pick.choice([True, False])),
            lambda: messages.Waiting(ref, self.some(self.task), pick.choice([True, False])),
            lambda: messages.Resumed(ref),
            lambda: messages.Yielded(ref, self.number(), self.payload()),
            lambda: messages.Log(ref, self.number(), pick.randbytes(20)),
            lambda: messages.Progress(ref, None, "x" * 10_000),
            self.of_submitter,
        ]
        made: messages.FromSlot = pick.choice(makers)()
        return made

    def damaged(self, stream: list[bytes]) -> bytes:
        """Return the frames in another order, repeated, truncated, or followed by garbage."""
        pick = self.random
        kind = pick.choice(["whole", "shuffled", "twice", "cut", "flipped", "rubbish", "giant"])
        if kind == "shuffled":
            pick.shuffle(stream)
        if kind == "twice":
            stream = [frame for frame in stream for _ in range(2)]
        data = b"".join(stream)
        if kind == "cut":
            return data[: pick.randrange(len(data) + 1)]
        if kind == "flipped" and data:
            at = pick.randrange(len(data))
            return data[:at] + pick.randbytes(1) + data[at + 1 :]
        if kind == "rubbish":
            return data + pick.randbytes(100)
        if kind == "giant":
            return data + struct.pack(">I", messages.MAX_FRAME_BYTES + 1)
        return data


def encoded(made: list[Any]) -> list[bytes]:
    return [frame for message in made for frame in _frame(message)]


def _frame(message: Any) -> list[bytes]:
    try:
        return [frames.encode(message)]
    except errors.FrameTooLarge:
        return []


async def settle(peer: Any) -> None:
    """Read until the dispatcher has closed the link, or has nothing more to send."""
    try:
        async with asyncio.timeout(0.01):
            while True:
                await peer.read()
    except (TimeoutError, EOFError, ConnectionError, errors.MalformedFrame):
        return


@pytest.fixture(params=["journal", "volatile"])
def kept(tmp_path: Path, request: pytest.FixtureRequest) -> port.Store:
    if request.param == "journal":
        return journal.Journal(tmp_path / "journal.db")
    return memory_store.MemoryStore()


@given(seed=st.integers(0, 2**32))
@settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_lying_driver_harms_only_itself(seed: int, tmp_path_factory: Any, kept: Any) -> None:
    asyncio.run(lie_as_drivers(tmp_path_factory.mktemp("home"), seed, durable=_durable(kept)))


@given(seed=st.integers(0, 2**32))
@settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_lying_slot_harms_only_itself(seed: int, tmp_path_factory: Any, kept: Any) -> None:
    asyncio.run(lie_as_slot(tmp_path_factory.mktemp("home"), seed, durable=_durable(kept)))


def _durable(kept: port.Store) -> bool:
    return isinstance(kept, journal.Journal)


def _store(directory: Path, *, durable: bool) -> port.Store:
    return journal.Journal(directory / "journal.db") if durable else memory_store.MemoryStore()


async def lie_as_drivers(directory: Path, seed: int, *, durable: bool) -> None:
    async with a_home(directory, _store(directory, durable=durable)) as home:
        for number in range(EXAMPLES):
            liar = Liar(home, seed + number)
            async with raw_peers.RawDriver(home.socket) as driver:
                driver.template()
                messages_sent = [liar.of_submitter() for _ in range(liar.random.randrange(12))]
                driver.send(liar.damaged(encoded(messages_sent)))
                await settle(driver)
        await home.end_slot(home.hostile)  # it does not respond to a request to stop
        await home.end_slot(home.honest)
        await home.still_works()


async def lie_as_slot(directory: Path, seed: int, *, durable: bool) -> None:
    async with a_home(directory, _store(directory, durable=durable)) as home:
        slot = home.hostile
        for number in range(EXAMPLES):
            liar = Liar(home, seed + number)
            slot.running = list(liar.some(liar.ref))
            await raw_peers.connect(slot)
            slot.say(messages.Template(1, raw_peers.ADD))
            messages_sent = [liar.of_slot() for _ in range(liar.random.randrange(12))]
            slot.send(liar.damaged(encoded(messages_sent)))
            await settle(slot)
        await home.end_slot(slot)
        await home.still_works()


@given(data=st.binary(max_size=300))
@settings(max_examples=30, deadline=None)
def test_random_bytes_after_a_hello_harm_no_other_peer(data: bytes, tmp_path_factory: Any) -> None:
    async def send() -> None:
        directory = tmp_path_factory.mktemp("home")
        dispatcher = Home(directory, memory_store.MemoryStore())
        await dispatcher.hub.start(dispatcher.socket)
        async with raw_peers.RawDriver(dispatcher.socket) as driver:
            driver.send(data)
            await settle(driver)
        async with raw_peers.RawDriver(dispatcher.socket):
            assert not dispatcher.failures
        await dispatcher.hub.stop()

    asyncio.run(send())


async def test_malformed_field_is_named(tmp_path: Path) -> None:
    home = Home(tmp_path, memory_store.MemoryStore())
    await home.hub.start(home.socket)
    async with raw_peers.RawDriver(home.socket) as driver:
        body = msgspec.msgpack.encode(["submit", [[1, b"short", 1, ["application/json", b""]]]])
        driver.send(struct.pack(">I", len(body)) + body)
        refused = await driver.expect(messages.Refused)
        assert "length >= 16" in refused.message
    await home.hub.stop()
