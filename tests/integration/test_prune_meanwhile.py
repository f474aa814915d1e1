"""Tasks submitted during a prune: what they need is kept, or they fail at once."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.channel import messages
from kilnwork.dispatch import errors, model
from kilnwork.dispatch.hub import hub, retention
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids
from support import hubs, raw_peers, raw_worker

ALL = model.Pruning(older_s=0, keyed=True)
OLD = 12


class World:
    """A live hub with a driver, a slot, and old finished calls."""

    def __init__(
        self, dispatcher: hub.Hub, driver: raw_peers.RawDriver, slot: raw_peers.RawSlot
    ) -> None:
        self.hub = dispatcher
        self.driver = driver
        self.slot = slot
        self.old: list[ids.TaskId] = []

    async def fill(self) -> None:
        """Run the calls that a prune will remove."""
        items = [self.driver.item() for _ in range(OLD)]
        self.old = [item.task for item in items]
        self.driver.submit(*items)
        for item in items:
            self.slot.succeed(await self.slot.run(), b"%d" % item.number)
        await self.driver.results(OLD)

    async def parent(self) -> calls.CallRun:
        """Start a call that keeps running."""
        self.driver.submit(self.driver.item())
        run = await self.slot.run()
        self.slot.say(messages.Template(1, raw_peers.ADD))
        return run

    async def begin_prune(self) -> asyncio.Task[model.Pruned]:
        """Start a prune; return when the first old task is removed and the others are not yet."""
        pruning = asyncio.create_task(self.hub.prune(ALL))
        while self.hub.view(self.old[0]) is not None:
            await asyncio.sleep(0)
        assert self.hub.view(self.old[-1]) is not None
        return pruning

    def missing(self, needers: list[calls.CallItem]) -> list[ids.TaskId]:
        """Return the tasks that unfinished ones need and the journal no longer has."""
        views = {item.task: self.hub.view(item.task) for item in needers}
        return [
            need
            for item in needers
            if (view := views[item.task]) is not None and not api_task.State(view.state).final
            for need in item.needs
            if self.hub.view(need) is None
        ]


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(retention, "BATCH", 1)
    clock = clocks.ManualClock()
    socket = tmp_path / "run" / "channel.sock"
    async with (
        hubs.running(tmp_path, clock=clock, options=hub.HubOptions(lease_s=1e9)) as dispatcher,
        raw_worker.RawWorker(socket, slots=1) as worker,
        raw_peers.RawDriver(socket) as driver,
    ):
        driver.template()
        warm = driver.item()
        driver.submit(warm)
        slot = await raw_peers.open_slot(worker)
        slot.succeed(await slot.run())
        await driver.results(1)
        made = World(dispatcher, driver, slot)
        await made.fill()
        clock.advance(3600)
        yield made
        await slot.disconnect()


async def test_child_of_a_running_parent_keeps_its_old_input(
    world: World,
) -> None:
    run = await world.parent()
    pruning = await world.begin_prune()
    child = calls.CallItem(
        number=1,
        task=ids.new_task_id(),
        template=1,
        arguments=attempts.Payload(attempts.JSON, b"[[1],{}]"),
        parent=run.ref,
        ordinal=1,
        needs=(world.old[-1],),
    )
    world.slot.say(messages.Submit((child,), False))
    assert (await world.slot.expect(messages.Accepted)).number == 1
    await pruning
    assert world.hub.view(world.old[-1]) is not None
    assert [task for task in world.old if world.hub.view(task) is not None] == [world.old[-1]]


async def test_calls_submitted_during_a_prune_keep_their_inputs(world: World) -> None:
    await world.parent()  # has the only slot, so submitted calls wait
    pruning = await world.begin_prune()
    needers = []
    while not pruning.done():
        for task in world.old[::2]:
            item = world.driver.item(needs=(task,))
            needers.append(item)
            world.driver.submit(item)
        await world.driver.wait_until_accepted(needers[-1].number)
        assert world.missing(needers) == []
    await pruning
    assert world.missing(needers) == []
    failed = [item for item in needers if world.hub.view(item.needs[0]) is None]
    assert 0 < len(failed) < len(needers)
    for item in failed:
        assert hubs.view(world.hub, item.task).reason == "InputFailed"


async def test_task_that_runs_again_is_not_pruned(world: World) -> None:
    pruning = await world.begin_prune()
    again = world.old[-1]
    await world.hub.retry(again, force=True)
    await pruning
    assert hubs.view(world.hub, again).run == 2
    assert [task for task in world.old if world.hub.view(task) is not None] == [again]


async def test_task_being_deleted_does_not_run_again(world: World) -> None:
    task = world.old[3]
    forgetting = asyncio.create_task(world.hub.forget(task))
    await asyncio.sleep(0)
    with pytest.raises(errors.RunRefused, match="is being forgotten: submit it again instead"):
        await world.hub.retry(task, force=True)
    await forgetting
    assert world.hub.view(task) is None
