"""Output of calls in real slots: it is attributed to its call, arrives in time, and is complete."""

import os
import threading
import time
from pathlib import Path

import pytest

from kilnwork.channel import messages
from support import scripted_slots, waiting, worker_process

F = "support.slot_functions"


async def test_each_call_has_its_own_output_before_its_end(
    hub: scripted_slots.SlotHub, worker: worker_process.WorkerProcess
) -> None:
    slot = await hub.open()
    ways = ["print", "partial", "error", "write", "process"] * 20
    runs = [hub.run_of(slot, f"{F}:say", f"{n} {way}", way) for n, way in enumerate(ways)]
    silent = [hub.run_of(slot, f"{F}:add", 1) for _ in runs]
    both = [run for pair in zip(runs, silent, strict=True) for run in pair]
    slot.send(messages.Calls(tuple(both)))
    await hub.end(slot, both[-1].ref)
    for n, (run, way) in enumerate(zip(runs, ways, strict=True)):
        end = b"" if way == "partial" else b"\n"
        assert bytes(slot.logs[run.ref]) == f"{n} {way}".encode() + end
        assert slot.order.index(("log", run.ref)) < slot.order.index(("end", run.ref))
    assert not {run.ref for run in silent} & set(slot.logs)
    assert worker.out.read_text().splitlines() == [f"{n} {way}" for n, way in enumerate(ways)]


@pytest.mark.usefixtures("worker")
async def test_output_arrives_while_a_call_runs(hub: scripted_slots.SlotHub) -> None:
    slot = await hub.open()
    ref = hub.call(slot, f"{F}:say_and_sleep", "working", 30)
    await waiting.wait_until_async(lambda: slot.logs[ref] == b"working\n", what="it is there")
    assert ref not in slot.ends
    slot.send(messages.StopCall(ref, "Killed"))
    await hub.end(slot, ref)


async def test_much_output_arrives_whole_and_takes_no_memory(
    hub: scripted_slots.SlotHub, worker: worker_process.WorkerProcess
) -> None:
    slot = await hub.open()
    size = 10_000_000
    ref = hub.call(slot, f"{F}:say_much", size)
    await hub.end(slot, ref, timeout_s=30)
    assert len(slot.logs[ref]) == size
    assert worker.out.stat().st_size == size
    pid = (await hub.result(slot, hub.call(slot, f"{F}:who")))["pid"]
    peak = next(
        int(line.split()[1])
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmHWM:")
    )
    assert peak < 60_000


async def test_slow_reader_of_the_worker_does_not_slow_a_printing_call(
    hub: scripted_slots.SlotHub, tmp_path: Path
) -> None:
    """As on a busy node; here a MiB a second."""
    reading, writing = os.pipe()
    worker = worker_process.WorkerProcess(
        tmp_path, channel=hub.path, KILN_PYTHONPATH=str(Path(__file__).parent.parent)
    )
    worker.start(output=writing)
    os.close(writing)
    read = bytearray()

    def follow() -> None:
        while data := os.read(reading, 1 << 15):
            read.extend(data)
            time.sleep(1 / 32)

    follower = threading.Thread(target=follow)
    follower.start()
    hub.allows_gaps = True
    try:
        await hub.first(messages.Hello)
        slot = await hub.open()
        ref = hub.call(slot, f"{F}:print_blocks", 300)
        took = (await hub.end(slot, ref, timeout_s=60)).seconds
        assert slot.logs[ref].endswith(b"the last line\n")
        await waiting.wait_until_async(lambda: read.endswith(b"the last line\n"), what="it is read")
    finally:
        worker.destroy()
        follower.join()
        os.close(reading)
    assert took < 4, "300 MiB; 20 s if each piece waited for the reader"
    assert b" bytes of output dropped here]\n" in read
    assert len(read) < 8 << 20


async def test_last_output_of_a_slot_comes_before_its_end(
    hub: scripted_slots.SlotHub, worker: worker_process.WorkerProcess
) -> None:
    slot = await hub.open()
    ref = hub.call(slot, f"{F}:say_and_die", "one", 0.2, "two")
    await hub.gone(slot)
    assert bytes(hub.logs[ref]) == b"one\ntwo\n"
    assert worker.out.read_text() == "one\ntwo\n"


@pytest.mark.parametrize("configuration", ["", "%(name)s %(message)s"])
async def test_log_records_of_a_task_are_its_output(
    hub: scripted_slots.SlotHub, worker: worker_process.WorkerProcess, configuration: str
) -> None:
    slot = await hub.open()
    ref = hub.call(slot, f"{F}:log_something", configuration)
    assert await hub.result(slot, ref) is None
    lines = bytes(slot.logs[ref]).decode().splitlines()
    assert [line.rpartition(" ")[2] for line in lines] == ["careful", "information"]
    assert "careful" not in worker.log.read_text()


@pytest.mark.usefixtures("worker")
async def test_native_code_that_keeps_the_interpreter_lock_can_print_any_amount(
    hub: scripted_slots.SlotHub,
) -> None:
    slot = await hub.open()
    size = 2 << 20
    ref = hub.call(slot, f"{F}:print_natively", size)
    assert await hub.result(slot, ref) == size
    assert bytes(slot.logs[ref]) == b"x" * size + b"done\n"


async def test_worker_goes_on_when_its_output_is_no_longer_read(
    hub: scripted_slots.SlotHub, tmp_path: Path
) -> None:
    reading, writing = os.pipe()
    worker = worker_process.WorkerProcess(
        tmp_path, channel=hub.path, KILN_PYTHONPATH=str(Path(__file__).parent.parent)
    )
    worker.start(output=writing)
    os.close(writing)
    os.close(reading)
    try:
        await hub.first(messages.Hello)
        slot = await hub.open()
        for _ in range(2):
            ref = hub.call(slot, f"{F}:say", "hello")
            assert await hub.result(slot, ref) is None
            assert bytes(slot.logs[ref]) == b"hello\n"
    finally:
        worker.destroy()
