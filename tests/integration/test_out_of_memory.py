"""Tasks that use more memory than their worker may: they end with a reason, their neighbours go
on.
"""

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import kilnwork as kiln
from kilnwork.api import attempts
from kilnwork.channel import messages
from kilnwork.kit import ids
from support import scripted_slots, waiting, worker_process

F = "support.slot_functions"
MIB = 1 << 20
EAT = f"held = b'x' * ({700 * MIB}); import time; time.sleep(30)"


@pytest.fixture
def group() -> Iterator[Path]:
    """Create a cgroup (version 1) limited to 400 MiB, if the machine allows it."""
    made = Path("/sys/fs/cgroup/memory") / f"kiln-test-{ids.new_uid()}"
    try:
        made.mkdir()
        (made / "memory.limit_in_bytes").write_text(str(400 * MIB))
    except OSError as error:
        pytest.skip(f"no memory cgroup of version 1 can be made here: {error}")
    yield made
    waiting.wait_until(lambda: not (made / "cgroup.procs").read_text(), what="all have left")
    made.rmdir()


@pytest.fixture
async def limited(
    hub: scripted_slots.SlotHub, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[worker_process.WorkerProcess]:
    """Run a worker with a limit: "stated" by its Pod, "watched" in a cgroup, or enforced only by
    the "kernel".
    """
    how = request.param
    made = worker_process.WorkerProcess(
        tmp_path, channel=hub.path, KILN_PYTHONPATH=str(Path(__file__).parents[1])
    )
    directory = None
    if how == "stated":
        made.environment["KILN_MEMORY_LIMIT"] = str(400 * MIB)
    else:
        directory = request.getfixturevalue("group")
    if how == "kernel":
        made.environment["KILN_MEMORY_SHARE"] = "0"
    made.start(inside=directory)
    try:
        await hub.first(messages.Hello)
        yield made
    finally:
        made.destroy()


every_way = pytest.mark.parametrize("limited", ["stated", "watched", "kernel"], indirect=True)


@every_way
async def test_oversized_call_is_ended_and_its_neighbour_goes_on(
    hub: scripted_slots.SlotHub, limited: worker_process.WorkerProcess, tmp_path: Path
) -> None:
    slots = [await hub.open(), await hub.open()]
    neighbour = hub.call(slots[0], f"{F}:hold", str(tmp_path / "gate"), str(tmp_path / "sign"))
    await waiting.wait_until_async((tmp_path / "sign").exists, what="the neighbour runs")
    ref = hub.call(slots[1], f"{F}:eat", 700)
    gone = await hub.gone(slots[1])
    assert (gone.running, gone.reason, gone.code, gone.proof) == (ref, "OutOfMemory", 137, True)
    assert "400 MiB" in gone.message
    (tmp_path / "gate").touch()
    try:
        await hub.end(slots[0], neighbour)
    except AssertionError as error:
        reported = f"{hub.all_of(messages.SlotGone)}\n{limited.described()}"
        raise AssertionError(f"{error}\n{reported}") from error
    assert not [m for m in hub.all_of(messages.SlotGone) if m.slot == slots[0].name]


@every_way
@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize("before", [(), ("/bin/sh", "-c", '"$@"; exit $?', "sh")])
async def test_oversized_command_fails(
    hub: scripted_slots.SlotHub, before: tuple[str, ...]
) -> None:
    ref = hub.run(*before, sys.executable, "-c", EAT)
    outcome = (await hub.first(messages.Finished, ref)).outcome
    assert (outcome.ending, outcome.reason) == (attempts.Ending.FAILED, "OutOfMemory")
    assert "400 MiB" in outcome.message
    assert outcome.exit_code == 137
    assert outcome.proof


@kiln.task
def eat(mib: int) -> int:
    return len(bytearray(b"x" * (mib << 20)))


@kiln.task
def parent(mib: int) -> int:
    return eat.submit(mib).result()


def test_out_of_memory_is_a_failure_of_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not retried four times, as a loss is; nor does a call that waits in the same process
    fail.
    """
    monkeypatch.setenv("KILN_MEMORY_LIMIT", str(400 * MIB))
    with kiln.start(slots=1):
        with pytest.raises(kiln.TaskFailed, match="400 MiB"):
            eat.submit(600).result(60)
        with pytest.raises(kiln.TaskFailed, match="400 MiB"):
            parent.submit(600).result(60)
        assert parent.submit(1).result(60) == 1 << 20
