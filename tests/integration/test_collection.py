"""Garbage collection of blobs: what a task or template refers to stays, everything else is
removed.
"""

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.data import local_blobs
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import blob_collection, hub
from kilnwork.dispatch.journal.sqlite import journal
from kilnwork.kit import clock as clocks
from support import hubs, raw_peers, raw_worker

HOUR = 3600.0
WEEK = 7 * 24 * HOUR


@pytest.fixture
def clock() -> clocks.ManualClock:
    return clocks.ManualClock(wall=time.time())


def a_hub(directory: Path, clock: clocks.ManualClock, *, durable: bool) -> hub.Hub:
    options = hub.HubOptions(blobs_dir=directory / "blobs", lease_s=1e9)
    kept = hubs.store(directory, durable=durable)
    return hubs.make(directory, kept=kept, clock=clock, options=options)


@pytest.fixture(params=["journal", "volatile"])
async def dispatcher(
    tmp_path: Path, clock: clocks.ManualClock, request: pytest.FixtureRequest
) -> AsyncIterator[hub.Hub]:
    made = a_hub(tmp_path, clock, durable=request.param == "journal")
    await made.start(tmp_path / "run" / "channel.sock")
    yield made
    await made.stop()


class Values:
    """The blobs of the namespace, all many hours old."""

    def __init__(self, directory: Path) -> None:
        self.kept = local_blobs.Blobs(directory / "blobs" / "ns", durable=False)
        self._count = 0

    def one(self) -> bytes:
        self._count += 1
        digest, _ = self.kept.put([self._count.to_bytes(4, "big")])
        self.age()
        return digest

    def payload(self) -> attempts.Payload:
        """Return a value in a blob that refers to two more."""
        return attempts.Payload(attempts.PICKLE, b"", self.one(), 4, (self.one(), self.one()))

    def inline(self) -> attempts.Payload:
        """Return a value that is not a blob and refers to one."""
        return attempts.Payload(attempts.PICKLE, b"small", blobs=(self.one(),))

    def age(self) -> None:
        for entry in self.kept.entries():
            os.utime(self.kept.path(entry.digest), (1.0, 1.0))

    def there(self) -> set[bytes]:
        return {entry.digest for entry in self.kept.entries()}


def named(*payloads: attempts.Payload) -> set[bytes]:
    return {each for p in payloads for each in (p.digest, *p.blobs) if each is not None}


async def collect(dispatcher: hub.Hub, clock: clocks.ManualClock, values: Values) -> set[bytes]:
    """Run a collection; return the remaining blobs."""
    clock.advance(blob_collection.MIN_STEADY_S)
    await dispatcher.forget_old()
    return values.there()


def durable(dispatcher: hub.Hub) -> bool:
    return isinstance(dispatcher._core.store, journal.Journal)


def succeeded(run: calls.CallRun, result: attempts.Payload) -> calls.CallEnd:
    return msgspec.structs.replace(raw_peers.ended_well(run.ref), payload=result)


async def test_blobs_of_tasks_and_templates_are_kept(
    dispatcher: hub.Hub, tmp_path: Path, clock: clocks.ManualClock
) -> None:
    values, socket = Values(tmp_path), tmp_path / "run" / "channel.sock"
    code, environment, _ = values.one(), values.one(), values.one()
    call = api_task.Call(
        function="m:f", code=local_blobs.text(code), environment=local_blobs.text(environment)
    )
    running, queued, small = values.payload(), values.payload(), values.inline()
    async with (
        raw_worker.RawWorker(socket, slots=1) as worker,
        raw_peers.RawDriver(socket) as driver,
    ):
        driver.template(1, api_task.TaskSpec(call=call))
        driver.submit(*(driver.item(arguments=each) for each in (running, queued, small)))
        await driver.wait_until_accepted(3)
        slot = await raw_peers.open_slot(worker)
        run = await slot.run()
        kept = named(running, queued, small) | {code, environment}
        assert await collect(dispatcher, clock, values) == kept
        result = values.payload()
        await slot.wait_until_acknowledged(slot.done(succeeded(run, result)))
        await driver.results(1)
        if not durable(dispatcher):  # the memory store keeps no arguments of finished calls
            kept -= named(running)
        assert await collect(dispatcher, clock, values) == kept | named(result)
        await slot.disconnect()


async def test_blobs_of_forgotten_tasks_are_removed_after_restart(
    tmp_path: Path, clock: clocks.ManualClock
) -> None:
    values, socket = Values(tmp_path), tmp_path / "run" / "channel.sock"
    first, second, result = values.payload(), values.payload(), values.payload()
    made = a_hub(tmp_path, clock, durable=True)
    await made.start(socket)
    async with (
        raw_worker.RawWorker(socket, slots=1) as worker,
        raw_peers.RawDriver(socket) as driver,
    ):
        driver.template()
        driver.submit(driver.item(arguments=first), driver.item(arguments=second))
        await driver.wait_until_accepted(2)
        slot = await raw_peers.open_slot(worker)
        await slot.wait_until_acknowledged(slot.done(succeeded(await slot.run(), result)))
        await slot.disconnect()
    await made.stop()
    again = a_hub(tmp_path, clock, durable=True)
    await again.start(socket)
    assert await collect(again, clock, values) == named(first, second, result)
    clock.advance(WEEK)
    assert await collect(again, clock, values) == named(second)
    await again.stop()


async def test_prune_removes_blobs_of_forgotten_tasks_only(
    tmp_path: Path, clock: clocks.ManualClock
) -> None:
    values, socket = Values(tmp_path), tmp_path / "run" / "channel.sock"
    over, shared, waiting = values.payload(), values.one(), values.payload()
    made = a_hub(tmp_path, clock, durable=True)
    await made.start(socket)
    async with (
        raw_worker.RawWorker(socket, slots=1) as worker,
        raw_peers.RawDriver(socket) as driver,
    ):
        driver.template()
        over = msgspec.structs.replace(over, blobs=(*over.blobs, shared))
        waiting = msgspec.structs.replace(waiting, blobs=(*waiting.blobs, shared))
        driver.submit(driver.item(arguments=over), driver.item(arguments=waiting))
        await driver.wait_until_accepted(2)
        slot = await raw_peers.open_slot(worker)
        run = await slot.run()
        fresh, _ = values.kept.put([b"a result"])
        result = attempts.Payload(attempts.PICKLE, b"", fresh, 8)
        await slot.wait_until_acknowledged(slot.done(succeeded(run, result)))
        await slot.disconnect()
    clock.advance(blob_collection.MIN_STEADY_S)
    pruned = await made.prune(model.Pruning(older_s=60))
    assert (pruned.tasks, pruned.later_bytes) == (1, 8)
    assert values.there() == named(waiting) | {fresh}
    clock.advance(blob_collection.RELEASED_KEEP_S)
    pruned = await made.prune(model.Pruning(older_s=60))
    assert (pruned.tasks, pruned.later_bytes) == (0, 0)
    assert values.there() == named(waiting)
    await made.stop()


async def test_namespaces_are_directories(
    dispatcher: hub.Hub, tmp_path: Path, clock: clocks.ManualClock
) -> None:
    other = local_blobs.Blobs(tmp_path / "blobs" / "other", durable=False)
    digest, _ = other.put([b"unused"])
    os.utime(other.path(digest), (1.0, 1.0))
    assert await collect(dispatcher, clock, Values(tmp_path)) == set()
    assert list(other.entries()) == []
