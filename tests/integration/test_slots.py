"""Real slots of a real worker against a scripted dispatcher: calls, their ends, and who may see."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kilnwork.api import attempts
from kilnwork.channel import messages
from support import scripted_slots, short, worker_process

SUCCEEDED, FAILED = attempts.Ending.SUCCEEDED, attempts.Ending.FAILED
LOST, STOPPED = attempts.Ending.LOST, attempts.Ending.STOPPED


@pytest.fixture
async def hub() -> AsyncIterator[scripted_slots.SlotHub]:
    folder = short.folder()
    found = scripted_slots.SlotHub(folder / "channel.sock")
    await found.start()
    yield found
    await found.stop()
    folder.rmdir()


@pytest.fixture
async def worker(
    hub: scripted_slots.SlotHub, tmp_path: Path
) -> AsyncIterator[worker_process.WorkerProcess]:
    process = worker_process.WorkerProcess(
        tmp_path, channel=hub.path, KILN_PYTHONPATH=str(Path(__file__).parent.parent)
    )
    process.start()
    try:
        await hub.first(messages.Hello)
        yield process
    finally:
        process.destroy()


@pytest.mark.usefixtures("worker")
async def test_a_call_runs_and_returns(hub: scripted_slots.SlotHub) -> None:
    slot = await hub.open()
    ref = hub.call(slot, "operator:add", 2, 3)
    assert await hub.result(slot, ref) == 5
