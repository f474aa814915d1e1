"""Calls over real sockets, stored in a journal or in memory, as drivers and slots see them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.channel import messages
from kilnwork.dispatch.hub import hub, links
from kilnwork.dispatch.journal import memory_store
from kilnwork.kit import ids
from support import hubs, raw_peers, raw_worker


@pytest.fixture(params=["journal", "volatile"])
async def dispatcher(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[hub.Hub]:
    kept = hubs.store(tmp_path, durable=request.param == "journal")
    options = hub.HubOptions(blobs_dir=tmp_path / "blobs")
    async with hubs.running(tmp_path, kept=kept, options=options) as started:
        yield started


def socket_in(directory: Path) -> Path:
    return directory / "run" / "channel.sock"


def a_worker(directory: Path, *, slots: int = 1) -> raw_worker.RawWorker:
    return raw_worker.RawWorker(socket_in(directory), slots=slots)


def a_driver(directory: Path) -> raw_peers.RawDriver:
    return raw_peers.RawDriver(socket_in(directory))


async def test_call_runs_and_returns_its_result(dispatcher: hub.Hub, tmp_path: Path) -> None:
    async with a_worker(tmp_path) as worker, a_driver(tmp_path) as driver:
        driver.template()
        item = driver.item(b"[[1,2],{}]", name="sum")
        driver.submit(item)
        await driver.wait_until_accepted(1)
        slot = await raw_peers.open_slot(worker)
        template = await slot.expect(messages.Template)
        assert template.spec == raw_peers.ADD
        run = await slot.run()
        wanted = calls.CallRun(
            attempts.AttemptRef(item.task, 1, 1), template.number, item.arguments, "sum"
        )
        assert run == wanted
        await slot.wait_until_acknowledged(slot.succeed(run, b"3"))
        payload = attempts.Payload(attempts.JSON, b"3")
        success = calls.CallResult(1, api_task.State.SUCCESS, "Succeeded", "", payload)
        assert await driver.results(1) == {1: success}
        view = hubs.view(dispatcher, item.task)
        assert (view.state, view.result, view.attempt) == (api_task.State.SUCCESS, payload, 1)
        assert (view.name, view.function) == ("sum", "sums:add")
        await slot.disconnect()


async def a_slot_at_work(
    directory: Path, worker: raw_worker.RawWorker, driver: raw_peers.RawDriver
) -> tuple[raw_peers.RawSlot, calls.CallRun]:
    """Return a slot that has got the driver's first call."""
    driver.template()
    driver.submit(driver.item())
    slot = await raw_peers.open_slot(worker)
    return slot, await slot.run()


async def test_burst_is_sent_ahead_and_all_results_come_back(
    dispatcher: hub.Hub, tmp_path: Path
) -> None:
    async with a_worker(tmp_path, slots=2) as worker, a_driver(tmp_path) as driver:
        slot, run = await a_slot_at_work(tmp_path, worker, driver)
        slot.succeed(run, b"1", seconds=1e-6)
        items = [driver.item(b"[[%d],{}]" % number) for number in range(2000)]
        for at in range(0, len(items), 256):
            driver.submit(*items[at : at + 256])
        other = await raw_peers.open_slot(worker)
        players = [asyncio.ensure_future(play(one)) for one in (slot, other)]
        results = await driver.results(2001)
        assert {results[item.number].payload for item in items} == {
            attempts.Payload(attempts.JSON, item.arguments.data) for item in items
        }
        for player in players:
            player.cancel()
        await asyncio.gather(*players, return_exceptions=True)
        assert slot.frames_read + other.frames_read < 400
        for one in (slot, other):
            await one.disconnect()


async def play(slot: raw_peers.RawSlot) -> None:
    """Return the arguments of every call, a frame of them at a time."""
    while True:
        runs = slot.waiting_runs or list((await slot.expect(messages.Calls)).runs)
        slot.waiting_runs = []
        slot.done(*(raw_peers.ended_well(r.ref, r.arguments.data, seconds=1e-6) for r in runs))


async def test_slot_without_its_secret_is_refused(dispatcher: hub.Hub, tmp_path: Path) -> None:
    async with a_worker(tmp_path) as worker, a_driver(tmp_path) as driver:
        driver.template()
        driver.submit(driver.item())
        asked = await worker.expect(messages.OpenSlot)
        slot = raw_peers.RawSlot(worker.socket, asked.slot)
        await slot.connect()
        refused = await slot.expect(messages.Refused)
        assert (refused.reason, refused.retry) == ("NotYet", True)
        worker.say(slot.opening)
        right, slot.secret = slot.secret, "guessed"
        refused = await refusal(slot)
        assert (refused.reason, refused.retry) == ("Credential", False)
        slot.secret = right
        await raw_peers.connect(slot)
        assert (await slot.run()).ref.attempt == 1
        await slot.disconnect()


async def refusal(slot: raw_peers.RawSlot) -> messages.Refused:
    """Return the first refusal that is not about the agent's announcement, which may be unread
    yet.
    """
    for _ in range(200):
        await slot.connect()
        refused = await slot.expect(messages.Refused)
        await slot.disconnect()
        if refused.reason != "NotYet":
            return refused
        await asyncio.sleep(0.01)
    raise AssertionError("its announcement was never read")


async def test_agent_announces_only_requested_slots(dispatcher: hub.Hub, tmp_path: Path) -> None:
    async with a_worker(tmp_path) as worker, a_driver(tmp_path) as driver:
        slot, run = await a_slot_at_work(tmp_path, worker, driver)
        stranger = raw_worker.RawWorker(socket_in(tmp_path), name="w-1")
        async with stranger:
            thief = raw_peers.RawSlot(stranger.socket, slot.slot)
            own = raw_peers.RawSlot(stranger.socket, bytes(16))
            stranger.say(thief.opening, own.opening, messages.Renew(1))
            await stranger.expect(messages.Renewed)
            for one, reason in ((thief, "Credential"), (own, "NotYet")):
                await one.connect()
                assert (await one.expect(messages.Refused)).reason == reason
                await one.disconnect()
        await slot.wait_until_acknowledged(slot.succeed(run))
        await slot.disconnect()


async def test_slot_reports_only_calls_that_it_was_given(
    dispatcher: hub.Hub, tmp_path: Path
) -> None:
    async with a_worker(tmp_path, slots=2) as worker, a_driver(tmp_path) as driver:
        slot, run = await a_slot_at_work(tmp_path, worker, driver)
        driver.submit(driver.item())
        other = await raw_peers.open_slot(worker)
        await other.run()
        await other.wait_until_acknowledged(other.succeed(run, b'"stolen"'))
        slot.succeed(run, b'"earned"')
        results = await driver.results(1)
        assert results[1].payload == attempts.Payload(attempts.JSON, b'"earned"')
        for one in (slot, other):
            await one.disconnect()


async def test_slot_reports_are_visible_in_views(dispatcher: hub.Hub, tmp_path: Path) -> None:
    async with a_worker(tmp_path) as worker, a_driver(tmp_path) as driver:
        slot, run = await a_slot_at_work(tmp_path, worker, driver)
        slot.serial += 1
        slot.say(
            messages.Started(slot.serial, run.ref, 0.0),
            messages.Log(run.ref, 0, b"hello\n"),
            messages.Log(run.ref, 0, b"hello\nworld\n"),
            messages.Progress(run.ref, 0.5, "half"),
        )
        await slot.wait_until_acknowledged(slot.serial)
        view = hubs.view(dispatcher, run.ref.task)
        assert (view.state, view.attempt) == (api_task.State.RUNNING, 1)
        assert view.progress is not None
        assert view.progress.message == "half"
        log = dispatcher.log_file(run.ref.task, run=1, attempt=1)
        assert log.read_bytes() == b"hello\nworld\n"
        slot.say(messages.Yielded(run.ref, 0, run.arguments))
        assert await driver.expect(messages.Streamed) == messages.Streamed(1, 0, run.arguments)
        await slot.wait_until_acknowledged(slot.succeed(run))
        await slot.disconnect()


async def test_reconnected_driver_finds_its_calls(dispatcher: hub.Hub, tmp_path: Path) -> None:
    async with a_worker(tmp_path) as worker, a_driver(tmp_path) as driver:
        slot, run = await a_slot_at_work(tmp_path, worker, driver)
        items = [driver.item(), driver.item()]
        driver.submit(*items)
        await driver.wait_until_accepted(3)
        await slot.wait_until_acknowledged(slot.succeed(run, b"1"))
        await driver.disconnect()
        await driver.connect()
        await driver.expect(messages.Attached)
        driver.template()
        driver.submit(*items, again=True)
        driver.say(messages.Watch((calls.Watched(10, run.ref.task),)))
        assert (await driver.results(1))[10].payload == attempts.Payload(attempts.JSON, b"1")
        await driver.wait_until_accepted(3)
        for _ in items:
            slot.succeed(await slot.run(), b"2")
        assert set(await driver.results(2)) == {2, 3}
        await slot.disconnect()


async def test_watch_gets_the_result_or_pending(dispatcher: hub.Hub, tmp_path: Path) -> None:
    async with a_worker(tmp_path) as worker, a_driver(tmp_path) as driver:
        slot, run = await a_slot_at_work(tmp_path, worker, driver)
        foreign = raw_peers.RawDriver(socket_in(tmp_path), namespace="other")
        async with a_driver(tmp_path) as second, foreign:
            watched = (calls.Watched(1, run.ref.task), calls.Watched(2, ids.new_task_id()))
            second.say(messages.Watch(watched))
            unknown = (await second.results(1))[2]
            assert (unknown.state, unknown.reason) == (api_task.State.PENDING, "")
            slot.succeed(run, b"1")
            assert (await second.results(1))[1].payload is not None
            foreign.say(messages.Watch(watched))
            hidden = await foreign.results(2)
            assert {result.state for result in hidden.values()} == {api_task.State.PENDING}
        await slot.disconnect()


async def test_key_names_one_call_for_ever(dispatcher: hub.Hub, tmp_path: Path) -> None:
    async with a_worker(tmp_path) as worker, a_driver(tmp_path) as driver:
        driver.template()
        driver.submit(driver.item(key="daily"))
        slot = await raw_peers.open_slot(worker)
        run = await slot.run()
        await slot.wait_until_acknowledged(slot.succeed(run, b"1"))
        async with a_driver(tmp_path) as second:
            second.template()
            second.submit(second.item(key="daily"), second.item(b"[[2],{}]", key="daily"))
            assert await second.expect(messages.FoundCall) == messages.FoundCall(1, run.ref.task)
            results = await second.results(2)
            assert results[1].payload == attempts.Payload(attempts.JSON, b"1")
            assert (results[2].state, results[2].reason) == (api_task.State.FAILED, "KeyTaken")
        await slot.disconnect()


async def test_killed_call_is_stopped_in_its_slot(dispatcher: hub.Hub, tmp_path: Path) -> None:
    async with a_worker(tmp_path) as worker, a_driver(tmp_path) as driver:
        slot, run = await a_slot_at_work(tmp_path, worker, driver)
        driver.say(messages.Cancel((run.ref.task,)))
        assert (await slot.expect(messages.StopCall)).ref == run.ref
        slot.say(messages.Returned((run.ref,)))
        result = (await driver.results(1))[1]
        assert (result.state, result.reason) == (api_task.State.KILLED, "Killed")
        await slot.disconnect()


async def test_slot_that_dies_loses_only_its_running_call(
    dispatcher: hub.Hub, tmp_path: Path
) -> None:
    async with a_worker(tmp_path) as worker, a_driver(tmp_path) as driver:
        slot, run = await a_slot_at_work(tmp_path, worker, driver)
        await slot.disconnect()
        worker.serial += 1
        worker.say(
            messages.SlotGone(
                worker.serial, slot.slot, run.ref, 139, asked=False, message="SIGSEGV", proof=True
            )
        )
        result = (await driver.results(1))[1]
        assert (result.state, result.reason) == (api_task.State.FAILED, "SlotDied")
        driver.submit(driver.item())
        another = await raw_peers.open_slot(worker)
        another.succeed(await another.run())
        assert (await driver.results(1))[2].state is api_task.State.SUCCESS
        await another.disconnect()


async def test_task_runs_its_child_while_it_waits(dispatcher: hub.Hub, tmp_path: Path) -> None:
    async with a_worker(tmp_path) as worker, a_driver(tmp_path) as driver:
        slot, parent = await a_slot_at_work(tmp_path, worker, driver)
        child = calls.CallItem(
            1, ids.new_task_id(), 1, parent.arguments, ordinal=1, parent=parent.ref
        )
        slot.say(
            messages.Template(1, raw_peers.ADD),
            messages.Submit((child,)),
            messages.Waiting(parent.ref, (child.task,), in_place=True),
        )
        run = await slot.run()
        assert (run.ref.task, run.in_place) == (child.task, True)
        slot.succeed(run, b"5")
        pushed = await slot.expect(messages.Results)
        assert pushed.items[0].payload == attempts.Payload(attempts.JSON, b"5")
        slot.say(messages.Resumed(parent.ref))
        slot.succeed(parent, b"6")
        assert (await driver.results(1))[1].payload == attempts.Payload(attempts.JSON, b"6")
        view = hubs.view(dispatcher, parent.ref.task)
        assert (view.children.total, view.children.succeeded) == (1, 1)
        await slot.disconnect()


async def test_large_results_are_split_into_frames(dispatcher: hub.Hub, tmp_path: Path) -> None:
    async with a_worker(tmp_path) as worker, a_driver(tmp_path) as driver:
        slot, run = await a_slot_at_work(tmp_path, worker, driver)
        slot.succeed(run, seconds=1e-6)
        for _ in range(4):
            driver.submit(*(driver.item() for _ in range(10)))
        large = b'"' + b"x" * 60_000 + b'"'
        runs = [await slot.run() for _ in range(40)]
        for at in range(0, 40, 10):
            slot.done(*(raw_peers.ended_well(one.ref, large) for one in runs[at : at + 10]))
        results = await driver.results(41)
        assert sum(len(r.payload.data) for r in results.values() if r.payload) > 40 * 60_000
        assert driver.largest_frame < 400_000
        await slot.disconnect()


async def test_driver_that_does_not_read_loses_only_its_link(
    dispatcher: hub.Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "MAX_UNREAD_BYTES", 100_000)
    async with a_worker(tmp_path) as worker, a_driver(tmp_path) as driver:
        slot, run = await a_slot_at_work(tmp_path, worker, driver)
        slot.succeed(run, seconds=1e-6)
        items = [driver.item() for _ in range(40)]
        driver.submit(*items)
        large = b'"' + b"x" * 60_000 + b'"'
        for _ in items:
            last = slot.succeed(await slot.run(), large)
        await slot.wait_until_acknowledged(last)
        await driver.closed()
        await driver.connect()
        await driver.expect(messages.Attached)
        for at, item in enumerate(items, start=100):
            driver.say(messages.Watch((calls.Watched(at, item.task),)))
            assert (await driver.results(1))[at].payload == attempts.Payload(attempts.JSON, large)
        await slot.disconnect()


async def test_full_backlog_delays_acceptance(tmp_path: Path) -> None:
    options = hub.HubOptions(max_backlog=5)
    async with (
        hubs.running(tmp_path, kept=memory_store.MemoryStore(), options=options),
        a_driver(tmp_path) as driver,
    ):
        driver.template()
        driver.submit(*(driver.item() for _ in range(4)))
        await driver.wait_until_accepted(4)
        driver.submit(*(driver.item() for _ in range(4)))
        with pytest.raises(TimeoutError):
            await driver.expect(messages.Accepted, timeout_s=0.1)
        async with a_worker(tmp_path) as worker:
            slot = await raw_peers.open_slot(worker)
            for _ in range(3):
                slot.succeed(await slot.run(), seconds=1.0)
            await driver.wait_until_accepted(8)
            await slot.disconnect()


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (messages.Template(1, api_task.TaskSpec(command=("true",))), "Invalid"),
        (
            messages.Template(1, api_task.TaskSpec(call=api_task.Call("f", code="sha256:no"))),
            "Invalid",
        ),
        (
            messages.Template(1, api_task.TaskSpec(call=api_task.Call("f"), suspend=True)),
            "Invalid",
        ),
        (
            messages.Submit(
                (
                    calls.CallItem(
                        1,
                        ids.TaskId(bytes(16)),
                        1,
                        attempts.Payload(attempts.JSON, bytes(attempts.MAX_INLINE_BYTES + 1)),
                    ),
                )
            ),
            "TooLarge",
        ),
        (messages.Resumed(attempts.AttemptRef(ids.TaskId(bytes(16)), 1, 1)), "Malformed"),
        (messages.DriverHello(1, bytes(16), "secret", "ns", 0), "Malformed"),
    ],
    ids=["command", "code", "suspend", "arguments", "slot's", "hello"],
)
async def test_illegal_message_of_a_driver_closes_its_link(
    dispatcher: hub.Hub, tmp_path: Path, said: messages.FromPeer, reason: str
) -> None:
    async with a_driver(tmp_path) as driver:
        driver.say(said)
        refused = await driver.expect(messages.Refused)
        assert (refused.reason, refused.retry) == (reason, False)
        await driver.closed()


async def test_driver_without_a_token_is_refused_for_good(
    dispatcher: hub.Hub, tmp_path: Path
) -> None:
    driver = raw_peers.RawDriver(socket_in(tmp_path), credential="guess")
    await driver.connect()
    refused = await driver.expect(messages.Refused)
    assert (refused.reason, refused.retry) == ("Credential", False)
    assert "namespace ns" in refused.message
    await driver.disconnect()


async def test_stopping_hub_notifies_all_peers(tmp_path: Path) -> None:
    async with hubs.running(tmp_path, kept=memory_store.MemoryStore()) as dispatcher:
        worker, driver = a_worker(tmp_path), a_driver(tmp_path)
        async with worker, driver:
            await dispatcher.stop(leaving="the driver is gone")
            for peer in (worker, driver):
                refused = await peer.expect(messages.Refused)
                assert (refused.reason, refused.retry) == ("Leaving", False)
                assert refused.message == "the driver is gone"
