"""Calls over real sockets, kept in a journal or in memory: what drivers and slots see."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.channel import messages
from kilnwork.dispatch import hub, journal, store, volatile
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids
from support import raw_calls, raw_worker


class OneSecret:
    """Every cluster and every namespace has the same token."""

    async def verify(self, namespace: str, cluster: str, credential: str) -> bool:
        return credential == "secret"

    async def verify_driver(self, namespace: str, credential: str) -> bool:
        return credential == "secret"


@asynccontextmanager
async def running(
    folder: Path, kept: store.Store, *, options: hub.Options | None = None
) -> AsyncIterator[hub.Hub]:
    dispatcher = hub.Hub(
        kept,
        clock=clocks.SystemClock(),
        verifier=OneSecret(),
        logs_dir=folder / "logs",
        entropy=ids.system_entropy(),
        options=options or hub.Options(blobs_dir=folder / "blobs"),
    )
    await dispatcher.start(folder / "run" / "channel.sock")
    try:
        yield dispatcher
    finally:
        await dispatcher.stop()


@pytest.fixture(params=["journal", "volatile"])
async def dispatcher(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[hub.Hub]:
    durable = request.param == "journal"
    kept = journal.Journal(tmp_path / "journal.db") if durable else volatile.Volatile()
    async with running(tmp_path, kept) as started:
        yield started


def socket_in(folder: Path) -> Path:
    return folder / "run" / "channel.sock"


def a_worker(folder: Path, *, slots: int = 1) -> raw_worker.RawWorker:
    return raw_worker.RawWorker(socket_in(folder), slots=slots)


def a_driver(folder: Path) -> raw_calls.RawDriver:
    return raw_calls.RawDriver(socket_in(folder))


async def test_a_call_runs_and_its_result_comes_back(dispatcher: hub.Hub, tmp_path: Path) -> None:
    async with a_worker(tmp_path) as worker, a_driver(tmp_path) as driver:
        driver.template()
        item = driver.item(b"[[1,2],{}]", name="sum")
        driver.submit(item)
        await driver.accepted(1)
        slot = await raw_calls.open_slot(worker)
        template = await slot.expect(messages.Template)
        assert template.spec == raw_calls.ADD
        run = await slot.run()
        wanted = calls.CallRun(
            attempts.AttemptRef(item.task, 1, 1), template.number, item.arguments, "sum"
        )
        assert run == wanted
        await slot.acknowledged(slot.succeed(run, b"3"))
        payload = attempts.Payload(attempts.JSON, b"3")
        success = calls.CallResult(1, api_task.State.SUCCESS, "Succeeded", "", payload)
        assert await driver.results(1) == {1: success}
        view = dispatcher.view(item.task)
        assert view is not None
        assert (view.state, view.result, view.attempt) == (api_task.State.SUCCESS, payload, 1)
        assert (view.name, view.function) == ("sum", "sums:add")
        await slot.disconnect()
