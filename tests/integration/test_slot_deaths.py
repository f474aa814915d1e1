"""Ends of slots without leftovers: crashes, kills, daemons, agents, zygotes."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from kilnwork.api import attempts
from kilnwork.channel import messages
from kilnwork.kit import processes
from kilnwork.worker import slot_process as slot_process
from support import scripted_slots, waiting, worker_process

SUCCEEDED, FAILED = attempts.Ending.SUCCEEDED, attempts.Ending.FAILED
LOST, STOPPED = attempts.Ending.LOST, attempts.Ending.STOPPED
F = "support.slot_functions"
C = "support.slot_coroutines"


def slots_of(worker: worker_process.WorkerProcess) -> set[int]:
    return {p for p in worker.alive() if worker_process.comm(p) == slot_process.NAME}


async def wait_for_file(path: Path) -> str:
    """Wait until a function has made this file; return its content."""
    await waiting.wait_until_async(path.exists, what=f"{path.name} is there")
    return path.read_text()


async def all_gone(pids: set[int]) -> None:
    """Return whether none of these processes runs."""
    identities = [processes.identify(pid) for pid in pids]
    await waiting.wait_until_async(
        lambda: not any(found is not None and found.alive() for found in identities),
        what=f"{pids} are gone",
    )


# of its own accord


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    ("way", "code", "message"),
    [
        ("exit", 3, "the slot's process exited with code 3"),
        ("segfault", 139, "the slot's process was ended by signal 11 (SIGSEGV)"),
        ("kill", 137, "the slot's process was ended by signal 9 (SIGKILL)"),
    ],
)
async def test_only_the_running_call_of_a_dead_slot_is_blamed(
    hub: scripted_slots.SlotHub, way: str, code: int, message: str
) -> None:
    slot = await hub.open()
    runs = [
        hub.run_of(slot, f"{F}:add", 1),
        hub.run_of(slot, f"{F}:die_by", way),
        hub.run_of(slot, f"{F}:add", 2),
    ]
    slot.send(messages.Calls(tuple(runs)))
    gone = await hub.gone(slot)
    assert gone.running == runs[1].ref
    assert (gone.code, gone.asked, gone.proof) == (code, False, True)
    assert gone.message == message
    assert hub.logs[gone.running] == b"last words\n"
    assert runs[2].ref not in slot.ends


@pytest.mark.usefixtures("worker")
async def test_call_that_closes_all_descriptors_ends_its_slot(
    hub: scripted_slots.SlotHub,
) -> None:
    slot = await hub.open()
    ref = hub.call(slot, f"{F}:misbehave", "closerange")
    gone = await hub.gone(slot)
    assert (gone.running, gone.proof) == (ref, True)


async def test_slot_without_a_dispatcher_exits(
    hub: scripted_slots.SlotHub, worker: worker_process.WorkerProcess
) -> None:
    slot = await hub.open()
    hub.refuse_slots = messages.Refused("Unknown", "no such slot", retry=False)
    slot.drop()
    gone = await hub.gone(slot)
    assert (gone.running, gone.code, gone.proof) == (None, 0, True)
    assert slots_of(worker) == set()


# slots that are killed


async def test_idle_slot_is_killed_with_proof(
    hub: scripted_slots.SlotHub, worker: worker_process.WorkerProcess
) -> None:
    slot = await hub.open()
    assert len(slots_of(worker)) == 1
    hub.send(messages.KillSlot(slot.name))
    gone = await hub.gone(slot)
    assert (gone.running, gone.code, gone.asked, gone.proof) == (None, 137, True, True)
    assert slots_of(worker) == set()
    assert gone.serial >= 1


@pytest.mark.usefixtures("worker")
async def test_unknown_slot_is_gone_with_proof(hub: scripted_slots.SlotHub) -> None:
    slot = scripted_slots.Slot(os.urandom(16))
    hub.send(messages.KillSlot(slot.name))
    gone = await hub.gone(slot)
    assert (gone.running, gone.code, gone.asked, gone.proof) == (None, None, True, True)


async def test_call_that_ignores_every_signal_is_killed(
    hub: scripted_slots.SlotHub, worker: worker_process.WorkerProcess, tmp_path: Path
) -> None:
    slot = await hub.open()
    ref = hub.call(slot, f"{F}:deaf", 600, str(tmp_path / "sign"))
    await wait_for_file(tmp_path / "sign")
    slot.send(messages.StopCall(ref, "Killed"))
    hub.send(messages.KillSlot(slot.name))
    gone = await hub.gone(slot)
    assert (gone.running, gone.asked, gone.proof) == (ref, True, True)
    assert slots_of(worker) == set()


@pytest.mark.parametrize("function", ["leave_daemon", "fork_daemon"])
@pytest.mark.parametrize("end", ["killed", "crashes"])
async def test_daemon_does_not_outlive_its_slot(
    hub: scripted_slots.SlotHub,
    worker: worker_process.WorkerProcess,
    tmp_path: Path,
    *,
    function: str,
    end: str,
) -> None:
    slot, other = await hub.open(), await hub.open()
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    await hub.result(slot, hub.call(slot, f"{F}:{function}", str(mine)))
    await hub.result(other, hub.call(other, f"{F}:{function}", str(theirs)))
    daemon, spared = int(await wait_for_file(mine)), int(await wait_for_file(theirs))
    if end == "killed":
        hub.send(messages.KillSlot(slot.name))
    else:
        hub.call(slot, f"{F}:die_by", "exit")
    assert (await hub.gone(slot)).proof
    assert processes.identify(daemon) is None
    assert processes.identify(spared) is not None
    assert len(slots_of(worker) - {daemon, spared}) == 1
    hub.send(messages.KillSlot(other.name))
    assert (await hub.gone(other)).proof
    assert processes.identify(spared) is None


async def test_commands_and_slots_end_independently(
    hub: scripted_slots.SlotHub, worker: worker_process.WorkerProcess, tmp_path: Path
) -> None:
    slot = await hub.open()
    await hub.result(slot, hub.call(slot, f"{F}:leave_daemon", str(tmp_path / "mine")))
    daemon = int(await wait_for_file(tmp_path / "mine"))
    first, second = hub.run("sleep", "600"), hub.run("true")
    assert (await hub.outcome(second)).proof
    assert processes.identify(daemon) is not None
    hub.send(messages.KillSlot(slot.name))
    assert (await hub.gone(slot)).proof
    assert processes.identify(daemon) is None
    assert len(worker.alive()) == 2
    hub.send(messages.Stop(first, 0.0, "Killed"))
    assert (await hub.outcome(first)).proof
    assert worker.alive() == {worker.pid}


# slots that are asked to stop their running call


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("function", [f"{F}:sleep", f"{F}:spin", f"{C}:sleep_later"])
async def test_cancelled_is_raised_in_the_running_call(
    hub: scripted_slots.SlotHub, tmp_path: Path, function: str
) -> None:
    slot = await hub.open()
    runs = [hub.run_of(slot, function, 30, str(tmp_path / "sign")), hub.run_of(slot, f"{F}:add", 1)]
    slot.send(messages.Calls(tuple(runs)))
    await wait_for_file(tmp_path / "sign")
    slot.send(messages.StopCall(runs[0].ref, "TimedOut"))
    end = await hub.end(slot, runs[0].ref)
    assert (end.ending, end.reason, end.payload) == (STOPPED, "TimedOut", None)
    assert await hub.result(slot, runs[1].ref) == 2


@pytest.mark.usefixtures("worker")
async def test_function_can_see_that_it_is_cancelled(
    hub: scripted_slots.SlotHub, tmp_path: Path
) -> None:
    slot = await hub.open()
    ref = hub.call(slot, f"{F}:cancelled_how", 30, str(tmp_path / "sign"))
    await wait_for_file(tmp_path / "sign")
    slot.send(messages.StopCall(ref, "Killed"))
    assert (await hub.end(slot, ref)).ending is STOPPED
    assert slot.logs[ref] == b"Cancelled Killed True\n"


@pytest.mark.usefixtures("worker")
async def test_function_that_catches_cancelled_and_returns_has_stopped(
    hub: scripted_slots.SlotHub, tmp_path: Path
) -> None:
    slot = await hub.open()
    ref = hub.call(slot, f"{F}:swallow", 30, str(tmp_path / "sign"))
    await wait_for_file(tmp_path / "sign")
    slot.send(messages.StopCall(ref, "Killed"))
    end = await hub.end(slot, ref)
    assert (end.ending, end.reason) == (STOPPED, "Killed")
    assert await hub.result(slot, hub.call(slot, f"{F}:add", 1)) == 2


@pytest.mark.usefixtures("worker")
async def test_unstarted_call_is_returned_when_stopped(
    hub: scripted_slots.SlotHub, tmp_path: Path
) -> None:
    slot = await hub.open()
    first = hub.call(slot, f"{F}:hold", str(tmp_path / "gate"), str(tmp_path / "sign"))
    second = hub.call(slot, f"{F}:add", 1)
    await wait_for_file(tmp_path / "sign")
    slot.send(messages.StopCall(second, "Killed"))
    assert [r.refs for r in await hub.wait_for_messages(slot, messages.Returned)] == [(second,)]
    (tmp_path / "gate").touch()
    assert (await hub.end(slot, first)).ending is SUCCEEDED
    slot.send(messages.StopCall(first, "Killed"))  # too late: nothing happens
    assert await hub.result(slot, hub.call(slot, f"{F}:add", 1)) == 2


async def test_interrupted_call_with_a_leftover_process_ends_its_slot(
    hub: scripted_slots.SlotHub, worker: worker_process.WorkerProcess, tmp_path: Path
) -> None:
    slot = await hub.open()
    before = hub.call(slot, f"{F}:add", 1)
    ref = hub.call(slot, f"{F}:leave_daemon", str(tmp_path / "daemon"), "", 30)
    daemon = int(await wait_for_file(tmp_path / "daemon"))
    slot.send(messages.StopCall(ref, "Killed"))
    gone = await hub.gone(slot)
    assert (gone.running, gone.proof) == (ref, True)
    assert processes.identify(daemon) is None
    assert set(slot.ends) == {before}
    assert slots_of(worker) == set()


# others die


async def test_slots_die_with_their_zygote_and_are_replaced(
    hub: scripted_slots.SlotHub, worker: worker_process.WorkerProcess, tmp_path: Path
) -> None:
    slots = [await hub.open(), await hub.open()]
    await hub.result(slots[1], hub.call(slots[1], f"{F}:leave_daemon", str(tmp_path / "mine")))
    daemon = int(await wait_for_file(tmp_path / "mine"))
    ref = hub.call(slots[0], f"{F}:sleep", 600, str(tmp_path / "sign"))
    await wait_for_file(tmp_path / "sign")
    command = hub.run("sleep", "600")
    await hub.first(messages.Started, command)
    (zygote,) = worker.zygotes()
    os.kill(zygote, signal.SIGKILL)
    gone = [await hub.gone(slot) for slot in slots]
    assert [g.running for g in gone] == [ref, None]
    assert all((g.code, g.asked, g.proof) == (137, False, True) for g in gone)
    assert processes.identify(daemon) is None
    assert len(worker.alive()) == 2
    after = await hub.open()
    assert await hub.result(after, hub.call(after, f"{F}:add", 1)) == 2
    (second,) = worker.zygotes()
    assert second != zygote
    assert (await hub.result(after, hub.call(after, f"{F}:who")))["cwd"] == str(tmp_path)


async def test_no_process_outlives_a_killed_agent(
    hub: scripted_slots.SlotHub, worker: worker_process.WorkerProcess, tmp_path: Path
) -> None:
    slot = await hub.open()
    await hub.result(slot, hub.call(slot, f"{F}:fork_daemon", str(tmp_path / "mine")))
    daemon = int(await wait_for_file(tmp_path / "mine"))
    hub.call(slot, f"{F}:sleep", 600, str(tmp_path / "sign"))
    await wait_for_file(tmp_path / "sign")
    below = processes.descendants(worker.pid) | {daemon}
    worker.signal(signal.SIGKILL)
    await all_gone(below)


async def test_slots_are_killed_before_the_lease_ends(
    hub: scripted_slots.SlotHub, worker: worker_process.WorkerProcess, tmp_path: Path
) -> None:
    hub.lease_s, hub.renew_s = 3.0, 0.3
    hub.drop()
    await waiting.wait_until_async(lambda: len(hub.all_of(messages.Renew)) > 1, what="it renews")
    slot = await hub.open()
    ref = hub.call(slot, f"{F}:sleep", 600, str(tmp_path / "sign"))
    await wait_for_file(tmp_path / "sign")
    hub.renews = False
    gone = await hub.gone(slot)
    assert gone.reason == "WorkerLost"
    assert (gone.running, gone.code, gone.asked, gone.proof) == (ref, 137, False, True)
    assert slots_of(worker) == set()


async def test_sigterm_ends_slots_and_reports_them(
    hub: scripted_slots.SlotHub, worker: worker_process.WorkerProcess, tmp_path: Path
) -> None:
    slot = await hub.open()
    ref = hub.call(slot, f"{F}:sleep", 600, str(tmp_path / "sign"))
    await wait_for_file(tmp_path / "sign")
    assert await asyncio.to_thread(worker.stop) == 0
    gone = await hub.gone(slot)
    assert gone.reason == "WorkerStopping"
    assert (gone.running, gone.code, gone.asked, gone.proof) == (ref, 137, False, True)
    assert worker.alive() == set()


async def test_all_processes_end_with_the_owner(
    hub: scripted_slots.SlotHub, tmp_path: Path
) -> None:
    reading, writing = os.pipe()
    worker = worker_process.WorkerProcess(
        tmp_path,
        channel=hub.path,
        KILN_PYTHONPATH=str(Path(__file__).parent.parent),
        KILN_OWNER_FD=str(reading),
    )
    worker.start(keep=(reading,))
    os.close(reading)
    try:
        await hub.first(messages.Hello)
        slot = await hub.open()
        found = await hub.result(slot, hub.call(slot, f"{F}:who"))
        assert "KILN_OWNER_FD" not in found["environ"]
        deaf = hub.call(slot, f"{F}:deaf", 600, str(tmp_path / "sign"))
        stubborn = hub.run("sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done")
        await wait_for_file(tmp_path / "sign")
        await waiting.wait_until_async(lambda: hub.logs[stubborn] == b"up\n", what="it runs")
        assert deaf not in slot.ends
        os.close(writing)
        assert worker.process is not None
        assert await asyncio.to_thread(worker.process.wait, 3) == 0
        assert worker.alive() == set()
    finally:
        worker.destroy()


async def test_worker_ends_with_a_dispatcher_that_leaves_for_good(
    hub: scripted_slots.SlotHub, worker: worker_process.WorkerProcess
) -> None:
    await hub.open()
    hub.greeting = messages.Refused("Leaving", "the driver is gone", retry=False)
    hub.drop()
    assert worker.process is not None
    assert await asyncio.to_thread(worker.process.wait, 5) == 0
    assert worker.alive() == set()


@pytest.mark.usefixtures("worker")
async def test_reconnecting_worker_announces_its_slots(hub: scripted_slots.SlotHub) -> None:
    first, second = await hub.open(), await hub.open()
    openings = hub.all_of(messages.SlotOpening)
    hub.send(messages.KillSlot(first.name))
    await hub.gone(first)
    hub.seen.clear()
    hub.drop()
    hello = await hub.first(messages.Hello)
    assert hello.processes == tuple(o for o in openings if o.slot == second.name)


@pytest.mark.usefixtures("worker")
async def test_unacknowledged_reports_are_sent_again(hub: scripted_slots.SlotHub) -> None:
    slot = await hub.open()
    hub.acknowledges = False
    hub.send(messages.KillSlot(slot.name))
    gone = await hub.gone(slot)
    hub.seen.clear()
    hub.drop()
    assert await hub.gone(slot) == gone
