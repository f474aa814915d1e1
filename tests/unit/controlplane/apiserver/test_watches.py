"""Watches without a network: what each client receives, and when a stream ends."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kilnwork.api import api_resources, selectors
from kilnwork.controlplane.apiserver import lists, watch_stream, watches
from kilnwork.kit import asgi
from support import served_kinds, store_world

CM = api_resources.CONFIG_MAPS
EVERYTHING = lists.ObjectSelection("default", selectors.EVERYTHING, selectors.EVERY_FIELD)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[store_world.World]:
    async with store_world.open_world(tmp_path) as found:
        yield found


@pytest.fixture
async def hub(world: store_world.World) -> AsyncIterator[watches.WatchHub]:
    found = watches.WatchHub(world.store, clock=world.clock)
    found.start()
    yield found
    await found.stop()


def watch_request(**more: Any) -> watch_stream.WatchRequest:
    settings: dict[str, Any] = {
        "served": served_kinds.kind_of(CM),
        "chosen": EVERYTHING,
        "start": None,
        "timeout_s": 3600.0,
        "bookmarks": False,
        "initial_events": False,
    }
    return watch_stream.WatchRequest(**(settings | more))


async def received_events(watch: watch_stream.WatchStream) -> list[tuple[str, str]]:
    lines = await watch.take(1.0)
    decoded = [msgspec.json.decode(line) for line in (lines or b"").splitlines()]
    return [(d["type"], d["object"]["metadata"].get("name", "")) for d in decoded]


class Client:
    """The ASGI side of a watch."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self._left = asyncio.Event()

    def disconnect(self) -> None:
        self._left.set()

    @property
    def request(self) -> asgi.Request:
        return asgi.Request({"method": "GET", "path": "/"}, self.receive)

    async def receive(self) -> dict[str, Any]:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)


async def test_encoded_line_is_shared_by_all_watches(
    world: store_world.World, hub: watches.WatchHub
) -> None:
    start = world.store.sequence
    one, two = hub.open(watch_request(start=start)), hub.open(watch_request(start=start))
    await world.create(CM, "a")
    first, second = await one.take(1.0), await two.take(1.0)
    assert first is not None
    assert first == second
    assert len(hub) == 2


async def test_other_namespaces_are_not_sent(
    world: store_world.World, hub: watches.WatchHub
) -> None:
    watch = hub.open(watch_request(start=world.store.sequence))
    await world.create(CM, "elsewhere", namespace="kube-system")
    await world.create(CM, "here")
    assert await received_events(watch) == [("ADDED", "here")]


async def test_watch_of_disconnected_client_is_removed(
    world: store_world.World, hub: watches.WatchHub
) -> None:
    client = Client()
    watch = hub.open(watch_request(start=world.store.sequence))
    running = asyncio.ensure_future(hub.run(watch, client.request, asgi.Response(client.send)))
    await asyncio.sleep(0)
    client.disconnect()
    async with asyncio.timeout(30):
        await running
    assert len(hub) == 0


async def test_stopping_ends_streams_cleanly(
    world: store_world.World, hub: watches.WatchHub
) -> None:
    client = Client()
    watch = hub.open(watch_request(start=world.store.sequence))
    running = asyncio.ensure_future(hub.run(watch, client.request, asgi.Response(client.send)))
    await asyncio.sleep(0)
    await hub.stop()
    async with asyncio.timeout(30):
        await running
    assert client.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_slow_client_is_disconnected_once(
    world: store_world.World,
    hub: watches.WatchHub,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(watch_stream, "MAX_QUEUED_BYTES", 1000)
    watch = hub.open(watch_request(start=world.store.sequence))
    for i in range(9):
        await world.create(CM, f"c{i}", data={"x": "y" * 300})
    assert await watch.take(1.0) is None
    assert caplog.messages == ["watch ended, its client is too slow"]


async def test_initial_lines_may_exceed_the_queue_limit(
    world: store_world.World, hub: watches.WatchHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_stream, "MAX_QUEUED_BYTES", 1000)
    for i in range(5):
        await world.create(CM, f"c{i}", data={"x": "y" * 300})
    watch = hub.open(watch_request())
    assert len(await received_events(watch)) == 6


async def test_timeout_returns_empty_bytes(hub: watches.WatchHub, world: store_world.World) -> None:
    watch = hub.open(watch_request(start=world.store.sequence))
    assert await watch.take(0.001) == b""


async def test_initial_lines_come_in_chunks_and_complete(
    world: store_world.World, hub: watches.WatchHub
) -> None:
    for i in range(30):
        await world.create(CM, f"c{i}", data={"x": "y" * 10_000})
    watch = hub.open(watch_request(bookmarks=True, initial_events=True, timeout_s=0.0))
    await world.delete(CM, "c7")
    client = Client()
    await hub.run(watch, client.request, asgi.Response(client.send))
    pieces = [message["body"] for message in client.sent]
    largest = max(len(piece) for piece in pieces)
    assert largest < watch_stream.PIECE_BYTES + 11_000
    items = [msgspec.json.decode(line) for line in b"".join(pieces).splitlines()]
    named = [(item["type"], item["object"]["metadata"].get("name")) for item in items]
    first = [("ADDED", stored.key.name) for stored in world.store.select(CM.qualified, "default")]
    first.append(("ADDED", "c7"))
    assert sorted(named[:31]) == sorted(first)
    assert named[31] == ("BOOKMARK", None)
    end = int(items[31]["object"]["metadata"]["resourceVersion"])
    assert end == world.store.sequence - 1
    assert named[32:] in ([], [("DELETED", "c7")])


async def test_first_table_sent_has_the_columns(
    world: store_world.World, hub: watches.WatchHub
) -> None:
    numbers = iter(range(100))
    watch = hub.open(watch_request(form=lambda _: str(next(numbers)).encode()))
    await world.create(CM, "a")
    lines = (await watch.take(1.0) or b"").splitlines()
    assert [msgspec.json.decode(line)["object"] for line in lines] == list(range(len(lines)))


async def test_abandoned_stream_holds_no_lines(
    world: store_world.World, hub: watches.WatchHub
) -> None:
    watch = hub.open(watch_request())
    watch.abandon()
    await world.create(CM, "a")
    assert await watch.take(1.0) is None
