"""Calls after a restart of the dispatcher: it restores them from its journal."""

from pathlib import Path

from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.channel import messages
from kilnwork.dispatch.hub import hub
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids
from support import hubs, raw_peers, raw_worker

ONE = attempts.Payload(attempts.JSON, b"1")


class Peers:
    """A worker, its one slot and a driver, which outlive dispatchers."""

    def __init__(self, directory: Path) -> None:
        socket = directory / "run" / "channel.sock"
        self.worker = raw_worker.RawWorker(socket, slots=1)
        self.driver = raw_peers.RawDriver(socket)
        self.slot = raw_peers.RawSlot(socket, b"")

    async def meet(self) -> None:
        await self.worker.connect()
        await self.worker.expect(messages.Welcome)
        await self.driver.connect()
        await self.driver.expect(messages.Attached)
        self.driver.template()

    async def open(self) -> None:
        self.slot = await raw_peers.open_slot(self.worker)

    async def leave(self) -> None:
        for peer in (self.slot, self.driver, self.worker):
            await peer.disconnect()


async def test_running_calls_go_on_and_waiting_calls_run_after_restart(tmp_path: Path) -> None:
    peers = Peers(tmp_path)
    driver = peers.driver
    async with hubs.running(tmp_path):
        await peers.meet()
        first, second = driver.item(), driver.item(b"[[2],{}]", name="second")
        driver.submit(first, second)
        await driver.wait_until_accepted(2)
        await peers.open()
        run = await peers.slot.run()
        await peers.leave()
    async with hubs.running(tmp_path) as again:
        view = hubs.view(again, second.task)
        assert (view.state, view.name, view.function) == ("Pending", "second", "sums:add")
        peers.worker.processes = (peers.slot.opening,)
        peers.slot.running = [run.ref]
        await peers.meet()
        driver.submit(first, second, again=True)
        await raw_peers.connect(peers.slot)
        peers.slot.succeed(run, b"1")
        assert (await driver.results(1))[1].payload == ONE
        later = await peers.slot.run()
        assert later.ref == attempts.AttemptRef(second.task, 1, 1)
        assert (later.name, later.arguments) == ("second", second.arguments)
        peers.slot.succeed(later, b"1")
        assert (await driver.results(1))[2].payload == ONE
        await peers.leave()


async def test_results_that_other_calls_need_are_found_after_restart(tmp_path: Path) -> None:
    peers = Peers(tmp_path)
    driver = peers.driver
    async with hubs.running(tmp_path):
        await peers.meet()
        over, going = driver.item(), driver.item()
        waiting = driver.item(needs=(over.task, going.task))
        driver.submit(over, going, waiting)
        await peers.open()
        await peers.slot.wait_until_acknowledged(
            peers.slot.succeed(await peers.slot.run(), b"1", seconds=1)
        )
        run = await peers.slot.run()
        assert run.ref.task == going.task
        peers.slot.running = [run.ref]
        await peers.leave()
    async with hubs.running(tmp_path) as again:
        view = hubs.view(again, waiting.task)
        assert (view.state, view.reason) == ("Pending", "WaitingForInput")
        peers.worker.processes = (peers.slot.opening,)
        await peers.meet()
        await raw_peers.connect(peers.slot)
        peers.slot.succeed(run, b"1")
        run = await peers.slot.run()
        value = (api_task.State.SUCCESS, "Succeeded", "", ONE)
        assert run.ref.task == waiting.task
        assert set(run.values) == {calls.Value(i.task, *value) for i in (over, going)}
        await peers.leave()


async def test_delegating_call_takes_the_outcome_after_restart(tmp_path: Path) -> None:
    peers = Peers(tmp_path)
    driver = peers.driver
    async with hubs.running(tmp_path):
        await peers.meet()
        item = driver.item()
        driver.submit(item)
        await peers.open()
        run = await peers.slot.run()
        child = calls.CallItem(1, ids.new_task_id(), 1, ONE, ordinal=1, parent=run.ref)
        end = calls.CallEnd(
            run.ref, attempts.Ending.SUCCEEDED, "Succeeded", "", None, 1.0, 0.1,
            delegate=child.task,
        )  # fmt: skip
        peers.slot.say(messages.Template(1, raw_peers.ADD), messages.Submit((child,)))
        await peers.slot.wait_until_acknowledged(peers.slot.done(end))
        run = await peers.slot.run()
        assert run.ref.task == child.task
        peers.slot.running = [run.ref]
        await peers.leave()
    async with hubs.running(tmp_path) as again:
        view = hubs.view(again, item.task)
        assert (view.state, view.reason) == ("Running", "Delegated")
        peers.worker.processes = (peers.slot.opening,)
        await peers.meet()
        driver.say(messages.Watch((calls.Watched(9, item.task),)))
        await raw_peers.connect(peers.slot)
        peers.slot.succeed(run, b"1")
        assert (await driver.results(1))[9].payload == ONE
        await peers.leave()


async def test_key_is_remembered_after_restart(tmp_path: Path) -> None:
    peers = Peers(tmp_path)
    driver = peers.driver
    async with hubs.running(tmp_path):
        await peers.meet()
        pending, done = driver.item(key="pending"), driver.item(key="done")
        driver.submit(done)
        await peers.open()
        await peers.slot.wait_until_acknowledged(peers.slot.succeed(await peers.slot.run(), b"1"))
        driver.submit(pending)
        await driver.wait_until_accepted(pending.number)
        await peers.leave()
    async with hubs.running(tmp_path):
        await driver.connect()
        await driver.expect(messages.Attached)
        driver.template()
        driver.submit(driver.item(key="pending"), driver.item(key="done"))
        found = {(await driver.expect(messages.FoundCall)).task for _ in range(2)}
        assert found == {pending.task, done.task}
        assert (await driver.results(1))[4].payload == ONE
        await driver.disconnect()


async def test_worker_that_is_not_back_yet_keeps_its_calls(tmp_path: Path) -> None:
    """Until its lease expires the worker may come back with its calls, so it does not count as
    idle.
    """
    peers = Peers(tmp_path)
    async with hubs.running(tmp_path) as dispatcher:
        await peers.meet()
        peers.driver.submit(peers.driver.item())
        await peers.driver.wait_until_accepted(1)
        await peers.open()
        run = await peers.slot.run()
        assert _holding(dispatcher) == [1]
        await peers.leave()
    async with hubs.running(tmp_path) as again:
        assert _holding(again) == [1]
        peers.worker.processes = (peers.slot.opening,)
        peers.slot.running = [run.ref]
        await peers.meet()
        assert _holding(again) == [1]
        await raw_peers.connect(peers.slot)
        assert _holding(again) == [1]
        await peers.slot.wait_until_acknowledged(peers.slot.succeed(run, b"1"))
        assert _holding(again) == [0]
        await peers.leave()


async def test_slot_has_a_lease_from_the_latest_return_of_its_worker(tmp_path: Path) -> None:
    peers = Peers(tmp_path)
    async with hubs.running(tmp_path):
        await peers.meet()
        peers.driver.submit(peers.driver.item())
        await peers.driver.wait_until_accepted(1)
        await peers.open()
        run = await peers.slot.run()
        await peers.leave()
    clock = clocks.ManualClock()
    async with hubs.running(tmp_path, clock=clock) as again:
        peers.worker.processes = (peers.slot.opening,)
        peers.slot.running = [run.ref]
        await peers.meet()
        _pass_seconds(clock, again, 9)
        await peers.worker.disconnect()
        await peers.worker.connect()
        await peers.worker.expect(messages.Welcome)
        _pass_seconds(clock, again, 2)
        await raw_peers.connect(peers.slot)
        await peers.slot.wait_until_acknowledged(peers.slot.succeed(run, b"1"))
        view = hubs.view(again, run.ref.task)
        assert (view.state, view.attempt, view.losses) == ("Success", 1, 0)
        await peers.leave()


def _pass_seconds(clock: clocks.ManualClock, dispatcher: hub.Hub, seconds: int) -> None:
    for _ in range(seconds):
        clock.advance(1.0)
        dispatcher.tick()


def _holding(dispatcher: hub.Hub) -> list[int]:
    view = dispatcher.cluster("ns", "default")
    return [] if view is None else [worker.holding for worker in view.workers]
