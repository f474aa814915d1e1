"""Bookmarks never pass a change that was not sent: resuming watches see every change once."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kilnwork.api import api_resources, meta, selectors
from kilnwork.controlplane import store_types as stored
from kilnwork.controlplane.apiserver import lists, watch_stream, watches, write_types
from kilnwork.kit import asgi, clock
from support import served_kinds, store_world

CM = api_resources.CONFIG_MAPS
WRITERS = 3
WRITES = 60
WATCHES = 6
Seen = list[tuple[str, str, str]]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[store_world.World]:
    async with store_world.open_world(tmp_path) as found:
        yield found


@pytest.fixture
async def hub(world: store_world.World) -> AsyncIterator[watches.WatchHub]:
    found = watches.WatchHub(world.store, clock=clock.SystemClock())
    found.start()
    yield found
    await found.stop()


def watch_request(start: int, timeout_s: float, *, labels: str = "") -> watch_stream.WatchRequest:
    chosen = lists.ObjectSelection("default", selectors.parse_labels(labels), selectors.EVERY_FIELD)
    return watch_stream.WatchRequest(
        served=served_kinds.kind_of(CM),
        chosen=chosen,
        start=start,
        timeout_s=timeout_s,
        bookmarks=True,
        initial_events=False,
    )


def summarize(action: str, obj: meta.JsonObject) -> tuple[str, str, str]:
    return action, obj["metadata"]["name"], obj["metadata"]["resourceVersion"]


async def wait_forever() -> dict[str, Any]:
    await asyncio.Event().wait()
    return {}


class Follower:
    """A client that opens one short watch after another, each where the last one ended."""

    def __init__(
        self, hub: watches.WatchHub, start: int, seed: int, *, labels: str = "", slow: bool = False
    ) -> None:
        self.seen: Seen = []
        self.version = start
        self._hub = hub
        self._random = random.Random(seed)
        self._labels = labels
        self._slow = slow

    async def run(self, done: asyncio.Event, last: int) -> None:
        while not done.is_set() or self.version < last:
            request = asgi.Request({"method": "GET", "path": "/"}, wait_forever)
            asked = watch_request(self.version, self._random.uniform(0, 0.01), labels=self._labels)
            await self._hub.run(self._hub.open(asked), request, asgi.Response(self._send))
            await asyncio.sleep(0)

    async def _send(self, message: Any) -> None:
        if self._slow:
            await asyncio.sleep(self._random.uniform(0, 0.005))
        for line in message["body"].splitlines():
            item = msgspec.json.decode(line)
            if item["type"] != "BOOKMARK":
                self.seen.append(summarize(item["type"], item["object"]))
            version = int(item["object"]["metadata"]["resourceVersion"])
            assert version >= self.version
            self.version = version


async def write(world: store_world.World, name: str, seed: int) -> None:
    """Create, change and delete one object again and again, with pauses of random length."""
    chance = random.Random(seed)
    place = write_types.target_of(CM, "default", name)
    there = False
    for number in range(WRITES):
        labels = {"x": chance.choice("ab"), "n": str(number)}
        if not there:
            await world.create(CM, name, metadata={"labels": labels})
            there = True
        elif chance.random() < 0.2:
            await world.delete(CM, name)
            there = False
        else:
            body = {"metadata": {"name": name, "labels": labels}}
            await world.writer.replace(place, body, write_types.WriteContext())
        if chance.random() < 0.5:
            await asyncio.sleep(chance.uniform(0, 0.005))
        elif chance.random() < 0.1:
            time.sleep(chance.uniform(0, 0.01))  # the loop is busy


@pytest.mark.parametrize("seed", range(3))
async def test_watches_that_resume_from_bookmarks_see_every_change_once(
    world: store_world.World, hub: watches.WatchHub, seed: int
) -> None:
    start = world.store.sequence
    kinds: list[dict[str, Any]] = [{}, {"labels": "x=a"}, {"slow": True}]
    followers = [
        Follower(hub, start, seed * 100 + i, **kinds[i % len(kinds)]) for i in range(WATCHES)
    ]
    done = asyncio.Event()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        writers = [group.create_task(write(world, f"c{i}", seed * 100 + i)) for i in range(WRITERS)]
        following = [group.create_task(f.run(done, start)) for f in followers]
        await asyncio.gather(*writers)
        for follower in followers:
            # Until then each goes on: bookmarks bring also those past the end that see only some.
            while follower.version < world.store.sequence:
                await asyncio.sleep(0.001)
        done.set()
        await asyncio.gather(*following)
    for follower, kind in zip(followers, kinds * WATCHES, strict=False):
        assert follower.seen == await expected_changes(
            world, start, hub, labels=kind.get("labels", "")
        )


async def expected_changes(
    world: store_world.World, start: int, hub: watches.WatchHub, *, labels: str
) -> Seen:
    """What one watch from `start` is sent."""
    watch = hub.open(watch_request(start, 1.0, labels=labels))
    watch.end()
    items = []
    while (lines := await watch.take(1.0)) is not None:
        items += [msgspec.json.decode(line) for line in lines.splitlines()]
    hub.close(watch)
    return [summarize(item["type"], item["object"]) for item in items]


def make_change(world: store_world.World, name: str) -> watch_stream.SharedChange:
    """A change that the store has not made."""
    key = write_types.target_of(CM, "default", name).key
    raw = b'{"metadata":{"name":"' + name.encode() + b'"}}'
    change = stored.StoreChange(world.store.sequence + 1, stored.Action.ADDED, key, raw, None)
    return watch_stream.SharedChange(change)


async def test_line_queued_at_the_timeout_is_taken(
    world: store_world.World, hub: watches.WatchHub
) -> None:
    watch = hub.open(watch_request(world.store.sequence, 60.0))
    taking = asyncio.create_task(watch.take(0.01))
    await asyncio.sleep(0)
    change = make_change(world, "a")
    asyncio.get_running_loop().call_later(0.011, watch.offer, change)
    time.sleep(0.03)  # both are due in the same turn of the loop
    found = await taking
    assert found == change.line("ADDED", change.change.raw)


async def test_undecodable_change_ends_only_its_watch(
    world: store_world.World, hub: watches.WatchHub
) -> None:
    def raise_value_error(_: bytes) -> bytes:
        raise ValueError("cannot be shown")

    start = world.store.sequence
    bad = hub.open(msgspec.structs.replace(watch_request(start, 60.0), form=raise_value_error))
    good = hub.open(watch_request(start, 60.0))
    await world.create(CM, "a")
    await world.create(CM, "b")
    lines = [msgspec.json.decode(line) for line in (await bad.take(1.0) or b"").splitlines()]
    assert [(line["type"], line["object"]["code"]) for line in lines] == [("ERROR", 500)]
    assert await bad.take(1.0) is None
    assert (await good.take(1.0) or b"").count(b"\n") == 2
