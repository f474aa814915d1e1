"""Parts of files mapped in real slots: stopped at once, killed with all processes, paused and
late.
"""

import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kilnwork.api import attempts, filejobs
from kilnwork.channel import messages
from kilnwork.data import part_commits
from kilnwork.jobs.work import pipes
from kilnwork.kit import processes
from support import local_parts, scripted_slots, waiting, worker_process

SUCCEEDED, FAILED = attempts.Ending.SUCCEEDED, attempts.Ending.FAILED
STOPPED = attempts.Ending.STOPPED
HERE = "support.mapper_functions"
PART = "kilnwork.jobs.work.part:run"
REDUCE = "kilnwork.jobs.work.reduce:run"
MARKER = f"{pipes.MARKER}=".encode()


def world(tmp_path: Path, content: bytes, **spec: Any) -> local_parts.World:
    return local_parts.World(tmp_path / "job", content, **spec)


def call(
    hub: scripted_slots.SlotHub, slot: scripted_slots.Slot, here: local_parts.World, part: int = 1
) -> attempts.AttemptRef:
    return hub.call(slot, PART, msgspec.to_builtins(here.work(part)))


def waiting_command(sign: Path) -> dict[str, Any]:
    """Return a command that starts processes in the background and in other sessions, then waits
    for ever.
    """
    text = f"""
        trap '' TERM
        sleep 1000 &
        setsid sh -c 'sleep 1001; sleep 1001' &
        echo begun; echo reported >&2
        touch {sign}
        wait
        sleep 1002
    """
    return {"mapper": {"command": ["sh", "-c", text]}}


async def wait_for_file(path: Path) -> str:
    """Wait until this file exists; return its content."""
    await waiting.wait_until_async(path.exists, what=f"{path.name} is there")
    return path.read_text()


def commands() -> set[str]:
    """Return the marks of commands that run below this process; other tests have their own."""
    marks = set()
    for pid in processes.descendants_in({os.getpid()}, processes.read_all()):
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        marks |= {each.decode() for each in environment if each.startswith(MARKER)}
    return marks


def live_processes(marks: set[str]) -> set[int]:
    """Return the live processes that these commands have started."""
    return {pid for mark in marks for pid in processes.find_members(None, marker=mark)}


@pytest.mark.usefixtures("worker")
async def test_parts_are_mapped_and_reduced_in_a_slot(
    hub: scripted_slots.SlotHub, tmp_path: Path
) -> None:
    content = b"".join(b'{"n":%d}\n' % n for n in range(100))
    here = world(tmp_path, content, itemsPerPart=30, mapper={"function": f"{HERE}:double"})
    slot = await hub.open()
    for part in here.manifest.parts:
        ref = call(hub, slot, here, part.number)
        commit = msgspec.convert(await hub.result(slot, ref), filejobs.Commit)
        assert commit == part_commits.find(here.store, part.number, 1)
        assert (commit.attempt, commit.outcome) == (ref.attempt, filejobs.PartOutcome.SUCCEEDED)
        assert commit.worker == os.uname().nodename
        assert commit.started <= commit.finished
    work = filejobs.ReduceWork(
        store=here.store.url, job="job", run=1, parts=tuple((n, 1) for n in range(1, 5))
    )
    end = await hub.end(slot, hub.call(slot, REDUCE, msgspec.to_builtins(work)))
    assert end.payload == attempts.Payload(attempts.JSON, b'{"damaged":[]}')
    commit_of_all = part_commits.find(here.store, 0, 1)
    assert commit_of_all is not None
    expected = b"".join(b'{"n":%d}\n' % (2 * n) for n in range(100))
    assert here.content(commit_of_all.output) == expected


@pytest.mark.usefixtures("worker")
async def test_state_left_by_a_function_does_not_reach_commands(
    hub: scripted_slots.SlotHub, tmp_path: Path
) -> None:
    """The next command may belong to another job."""
    before = local_parts.World(tmp_path / "one", b"{}\n", mapper={"function": f"{HERE}:poison"})
    slot = await hub.open()
    await hub.result(slot, call(hub, slot, before))
    text = "cat >/dev/null; echo $POISON; sh -c 'kill -TERM $$; echo ignored'; echo over"
    here = world(tmp_path, b"{}\n", mapper={"command": ["sh", "-c", text]})
    commit = msgspec.convert(await hub.result(slot, call(hub, slot, here)), filejobs.Commit)
    assert here.content(commit.output) == b"\nover\n"


@pytest.mark.usefixtures("worker")
async def test_failed_part_names_its_reason(hub: scripted_slots.SlotHub, tmp_path: Path) -> None:
    here = world(tmp_path, b"{}\n", mapper={"function": f"{HERE}:away"})
    slot = await hub.open()
    end = await hub.end(slot, call(hub, slot, here))
    assert (end.ending, end.message) == (FAILED, "FailPart: the database is away")


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("batch", [None, 1])
async def test_computing_mapper_is_interrupted(
    hub: scripted_slots.SlotHub, tmp_path: Path, batch: int | None
) -> None:
    sign = tmp_path / "sign"
    mapper = {"function": f"{HERE}:signalling", "batchRecords": batch}
    here = world(tmp_path, b'{"sign":"%b","s":600}\n{}\n' % str(sign).encode(), mapper=mapper)
    slot = await hub.open()
    ref = call(hub, slot, here)
    await wait_for_file(sign)
    slot.send(messages.StopCall(ref, "Killed"))
    end = await hub.end(slot, ref)
    assert (end.ending, end.reason) == (STOPPED, "Killed")
    assert here.stored() == []
    assert await hub.result(slot, hub.call(slot, "operator:add", 1, 2)) == 3


@pytest.mark.usefixtures("worker")
async def test_mapper_that_swallows_cancelled_ends_after_its_record(
    hub: scripted_slots.SlotHub, tmp_path: Path
) -> None:
    sign = tmp_path / "sign"
    content = b'{"sign":"%b","s":600}\n' % str(sign).encode()
    here = world(tmp_path, content * 1000, mapper={"function": f"{HERE}:swallowing"})
    slot = await hub.open()
    ref = call(hub, slot, here)
    await wait_for_file(sign)
    slot.send(messages.StopCall(ref, "Killed"))
    assert (await hub.end(slot, ref)).ending is STOPPED
    assert here.stored() == []


@pytest.mark.usefixtures("worker")
async def test_command_is_killed_with_all_its_processes(
    hub: scripted_slots.SlotHub, tmp_path: Path
) -> None:
    here = world(tmp_path, b"{}\n", **waiting_command(tmp_path / "sign"))
    slot = await hub.open()
    ref = call(hub, slot, here)
    await wait_for_file(tmp_path / "sign")
    marks = commands()
    assert len(live_processes(marks)) >= 3
    slot.send(messages.StopCall(ref, "Killed"))
    assert (await hub.end(slot, ref)).ending is STOPPED
    assert live_processes(marks) == set()
    output = bytes(slot.logs[ref]).splitlines()
    assert output[0] == b"reported"
    assert set(output[1:]) <= {b"Killed"}  # printed by the shell if its child was killed first
    assert here.stored() == []
    assert await hub.result(slot, hub.call(slot, "operator:add", 1, 2)) == 3


@pytest.mark.usefixtures("worker")
async def test_command_does_not_outlive_its_slot(
    hub: scripted_slots.SlotHub, tmp_path: Path
) -> None:
    here = world(tmp_path, b"{}\n", **waiting_command(tmp_path / "sign"))
    slot = await hub.open()
    call(hub, slot, here)
    await wait_for_file(tmp_path / "sign")
    marks = commands()
    assert len(live_processes(marks)) >= 3
    hub.send(messages.KillSlot(slot.name))
    assert (await hub.gone(slot)).proof
    assert live_processes(marks) == set()


async def test_paused_slot_that_wakes_late_is_fenced(
    hub: scripted_slots.SlotHub, worker: worker_process.WorkerProcess, tmp_path: Path
) -> None:
    sign, gate = tmp_path / "sign", tmp_path / "gate"
    content = b'{"sign":"%b","gate":"%b"}\n' % (str(sign).encode(), str(gate).encode())
    here = world(tmp_path, content, mapper={"function": f"{HERE}:gated"})
    slot, other = await hub.open(), await hub.open()
    ref = call(hub, slot, here)
    paused = int(await wait_for_file(sign))
    os.kill(paused, signal.SIGSTOP)
    gate.touch()
    second = attempts.AttemptRef(ref.task, 1, 2)
    again = hub.call(other, PART, msgspec.to_builtins(here.work()), ref=second)
    winner = await hub.result(other, again)
    os.kill(paused, signal.SIGCONT)
    assert await hub.result(slot, ref) == winner
    assert winner["attempt"] == 2
    assert here.stored() == ["commits/1-1", "out/1-1-2.ndjson"]
    assert worker.alive()


@pytest.mark.usefixtures("worker")
async def test_mapper_output_is_in_the_log_of_its_task(
    hub: scripted_slots.SlotHub, tmp_path: Path
) -> None:
    here = world(tmp_path, b"1\n2\n", mapper={"function": f"{HERE}:printing"})
    slot = await hub.open()
    ref = call(hub, slot, here)
    await hub.result(slot, ref)
    assert bytes(slot.logs[ref]) == b"1\n2\n"
    assert here.content(commits_of(here).output) == b"1\n2\n"


def commits_of(here: local_parts.World) -> filejobs.Commit:
    found = part_commits.find(here.store, 1, 1)
    assert found is not None
    return found
