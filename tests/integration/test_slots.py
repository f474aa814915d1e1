"""Real slots of a real worker against a scripted dispatcher: calls, their ends, and isolation."""

import time
from pathlib import Path

import msgspec
import pytest

from kilnwork.api import attempts, calls
from kilnwork.channel import messages
from kilnwork.kit import ids
from kilnwork.worker import settings, slot_session, usage
from support import scripted_slots, waiting, worker_process

SUCCEEDED, FAILED = attempts.Ending.SUCCEEDED, attempts.Ending.FAILED
F = "support.slot_functions"
C = "support.slot_coroutines"


@pytest.mark.usefixtures("worker")
async def test_call_runs_and_returns(hub: scripted_slots.SlotHub) -> None:
    slot = await hub.open()
    ref = hub.call(slot, "operator:add", 2, 3)
    assert await hub.result(slot, ref) == 5


@pytest.mark.usefixtures("worker")
async def test_many_calls_run_in_order_and_end_in_few_reports(hub: scripted_slots.SlotHub) -> None:
    slot = await hub.open()
    runs = [hub.run_of(slot, f"{F}:add", n) for n in range(500)]
    slot.send(messages.Calls(tuple(runs)))
    await hub.end(slot, runs[-1].ref)
    assert [ref for kind, ref in slot.order if kind == "end"] == [run.ref for run in runs]
    assert [await hub.result(slot, run.ref) for run in runs] == list(range(1, 501))
    reports = slot.all_of(messages.CallsEnded)
    ends = [slot.ends[run.ref] for run in runs]
    took_s = ends[-1].started + ends[-1].seconds - ends[0].started
    assert len(reports) < 100 + took_s / slot_session.FLUSH_S  # on a slow machine, one each 2 ms
    assert [done.serial for done in reports] == list(range(1, len(reports) + 1))
    assert len(slot.all_of(messages.Started)) <= took_s // slot_session.STARTED_S


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        ("fail", ("no",), "ValueError: no"),
        ("exit_by", ("sys.exit",), "SystemExit: 3"),
        ("exit_by", ("interrupt",), "KeyboardInterrupt"),
        ("exit_by", ("memory",), "MemoryError"),
        ("exit_by", ("recursion",), "RecursionError: maximum recursion depth exceeded"),
        ("exit_by", ("stop",), "StopIteration"),
        ("add", (), "TypeError: add() missing 1 required positional argument: 'a'"),
    ],
)
async def test_exception_of_a_function_is_its_failure(
    hub: scripted_slots.SlotHub, function: str, arguments: tuple[object, ...], message: str
) -> None:
    slot = await hub.open()
    end = await hub.end(slot, hub.call(slot, f"{F}:{function}", *arguments))
    assert (end.ending, end.reason) == (FAILED, "Raised")
    assert end.message.startswith(message)
    assert end.payload is not None
    assert end.payload.media_type == attempts.ERROR
    assert await hub.result(slot, hub.call(slot, f"{F}:add", 1)) == 2


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    ("function", "reason", "message"),
    [
        ("no_such_module:f", "FunctionNotFound", "No module named 'no_such_module'"),
        (f"{F}:no_such", "FunctionNotFound", "has no attribute 'no_such'"),
        (f"{F}:unpicklable", "ResultNotPickled", "cannot pickle '_thread.lock' object"),
    ],
)
async def test_error_names_why_a_call_cannot_run_or_return(
    hub: scripted_slots.SlotHub, function: str, reason: str, message: str
) -> None:
    slot = await hub.open()
    end = await hub.end(slot, hub.call(slot, function))
    assert (end.ending, end.reason) == (FAILED, reason)
    assert message in end.message


@pytest.mark.usefixtures("worker")
async def test_unreadable_arguments_are_an_error(hub: scripted_slots.SlotHub) -> None:
    slot = await hub.open()
    run = hub.run_of(slot, f"{F}:add", 1)
    bad = attempts.Payload(attempts.PICKLE, b"\x80\x05cno_such_module\nf\n.")
    slot.send(messages.Calls((calls.CallRun(run.ref, run.template, bad, ""),)))
    end = await hub.end(slot, run.ref)
    assert (end.ending, end.reason) == (FAILED, "ArgumentsNotLoaded")
    assert end.message == "ModuleNotFoundError: No module named 'no_such_module'"


@pytest.mark.usefixtures("worker")
async def test_async_functions_run_to_their_end(hub: scripted_slots.SlotHub) -> None:
    slot = await hub.open()
    assert await hub.result(slot, hub.call(slot, f"{C}:add_later", 2, 3)) == 5


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("function", [f"{F}:count_to", f"{C}:count_to_later"])
async def test_generators_stream_and_end_with_all_values(
    hub: scripted_slots.SlotHub, function: str
) -> None:
    slot = await hub.open()
    ref = hub.call(slot, function, 3, stream=True)
    end = await hub.end(slot, ref)
    yielded = slot.all_of(messages.Yielded)
    assert [(y.ref, y.index, y.payload.data) for y in yielded] == [
        (ref, 0, b"0"),
        (ref, 1, b"1"),
        (ref, 2, b"2"),
    ]
    assert end.payload is not None
    assert end.payload.media_type == attempts.STREAM
    whole = msgspec.msgpack.decode(end.payload.data, type=list[attempts.Payload])
    assert [payload.data for payload in whole] == [b"0", b"1", b"2"]


@pytest.mark.usefixtures("worker")
async def test_generator_that_fails_has_yielded_before(hub: scripted_slots.SlotHub) -> None:
    slot = await hub.open()
    ref = hub.call(slot, f"{F}:fail_after", 2, stream=True)
    assert (await hub.end(slot, ref)).message == "ValueError: no more"
    assert len(slot.all_of(messages.Yielded)) == 2


@pytest.mark.usefixtures("worker")
async def test_several_returns_are_counted(hub: scripted_slots.SlotHub) -> None:
    slot = await hub.open()
    assert len(await hub.result(slot, hub.call(slot, f"{F}:pair", 2, returns=2))) == 2
    end = await hub.end(slot, hub.call(slot, f"{F}:pair", 3, returns=2))
    assert end.message.endswith("returned a tuple of 3: return a tuple of 2")
    end = await hub.end(slot, hub.call(slot, f"{F}:add", 3, returns=2))
    assert end.message.endswith("returned int: return a tuple of 2")


@pytest.mark.usefixtures("worker")
async def test_returned_future_delegates(hub: scripted_slots.SlotHub) -> None:
    slot = await hub.open()
    child = ids.new_task_id()
    end = await hub.end(slot, hub.call(slot, f"{F}:delegate", ids.task_text(child)))
    assert (end.ending, end.payload, end.delegate) == (SUCCEEDED, None, child)


async def test_slot_process_is_isolated(
    hub: scripted_slots.SlotHub, worker: worker_process.WorkerProcess, tmp_path: Path
) -> None:
    slot = await hub.open()
    ref = hub.call(slot, f"{F}:who", name="me")
    found = await hub.result(slot, ref)
    assert (found["id"], found["attempt"], found["name"]) == (ids.task_text(ref.task), 1, "me")
    assert found["pid"] == found["sid"]
    assert found["cwd"] == str(tmp_path)
    assert not settings.OWN_VARIABLES & set(found["environ"])
    assert not {"asyncio", "aiohttp", "apsw", "cryptography", "uvloop"} & set(found["modules"])
    assert found["path"][-1] == str(Path(__file__).parent.parent)
    secret = slot.hellos[0].credential
    for pid in (found["pid"], *worker.zygotes(), worker.pid):
        for file in ("cmdline", "environ"):
            assert secret.encode() not in Path(f"/proc/{pid}/{file}").read_bytes()
    assert worker.environment["KILN_TOKEN_FILE"] not in found["environ"].values()
    progress = slot.all_of(messages.Progress)
    assert [(p.ref, p.fraction, p.message) for p in progress] == [(ref, 0.5, "half way")]


@pytest.mark.usefixtures("worker")
async def test_unstarted_calls_are_returned_newest_first(
    hub: scripted_slots.SlotHub, tmp_path: Path
) -> None:
    slot, gate = await hub.open(), tmp_path / "gate"
    first = hub.run_of(slot, f"{F}:hold", str(gate))
    runs = [first, *(hub.run_of(slot, f"{F}:add", n) for n in "abc")]
    slot.send(messages.Calls(tuple(runs)))
    await hub.wait_for_messages(slot, messages.Started)
    slot.send(messages.TakeBack(2), messages.TakeBack(2), messages.TakeBack(2))
    await waiting.wait_until_async(
        lambda: len(slot.all_of(messages.Returned)) == 3, what="each gets a response"
    )
    refs = [run.ref for run in runs]
    returned = [each.refs for each in slot.all_of(messages.Returned)]
    assert returned == [(refs[3], refs[2]), (refs[1],), ()]
    gate.touch()
    assert (await hub.end(slot, refs[0])).ending is SUCCEEDED
    assert set(slot.ends) == {refs[0]}


@pytest.mark.usefixtures("worker")
async def test_long_call_is_reported_as_started(
    hub: scripted_slots.SlotHub, tmp_path: Path
) -> None:
    slot, gate = await hub.open(), tmp_path / "gate"
    before = time.monotonic()
    ref = hub.call(slot, f"{F}:hold", str(gate))
    started = (await hub.wait_for_messages(slot, messages.Started))[0]
    assert started.ref == ref
    assert time.time() - started.at >= slot_session.STARTED_S
    assert ref not in slot.ends
    gate.touch()
    end = await hub.end(slot, ref)
    assert end.started == started.at
    assert 0 < end.seconds <= time.monotonic() - before
    assert len(slot.all_of(messages.Started)) == 1
    assert slot.all_of(messages.CallsEnded)[0].serial == started.serial + 1


@pytest.mark.usefixtures("worker")
async def test_ends_before_a_long_call_are_reported_meanwhile(hub: scripted_slots.SlotHub) -> None:
    slot = await hub.open()
    runs = [hub.run_of(slot, f"{F}:add", 1), hub.run_of(slot, f"{F}:spin", 1.0)]
    slot.send(messages.Calls(tuple(runs)))
    await hub.end(slot, runs[0].ref)
    assert runs[1].ref not in slot.ends
    await hub.wait_for_messages(
        slot, messages.Started
    )  # one that had not begun would be given back
    slot.send(messages.StopCall(runs[1].ref, "Killed"))
    await hub.end(slot, runs[1].ref)


# what a call leaves behind in its process


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    "way",
    ["close", "close python", "replace", "redirect", "thread", "chdir", "recursion", "signals"],
)
async def test_process_state_changed_by_a_call_is_reset_for_the_next(
    hub: scripted_slots.SlotHub, way: str, tmp_path: Path
) -> None:
    slot = await hub.open()
    assert (await hub.end(slot, hub.call(slot, f"{F}:misbehave", way))).ending is SUCCEEDED
    for how in ("print", "write", "process"):
        ref = hub.call(slot, f"{F}:say", "here", how)
        assert (await hub.end(slot, ref)).ending is SUCCEEDED
        assert slot.logs[ref] == b"here\n"
    assert (await hub.result(slot, hub.call(slot, f"{F}:who")))["cwd"] == str(tmp_path)
    assert await hub.result(slot, hub.call(slot, "subprocess:call", ["false"])) == 1


@pytest.mark.usefixtures("worker")
async def test_function_that_returns_in_a_fork_returns_once(
    hub: scripted_slots.SlotHub,
) -> None:
    slot = await hub.open()
    assert await hub.result(slot, hub.call(slot, f"{F}:fork_and_return")) > 0
    assert await hub.result(slot, hub.call(slot, f"{F}:add", 1)) == 2
    assert len(slot.hellos) == 1


@pytest.mark.usefixtures("worker")
async def test_slots_share_what_most_of_them_need(hub: scripted_slots.SlotHub) -> None:
    slot = await hub.open()
    found = await hub.result(slot, hub.call(slot, f"{F}:who"))
    assert "cloudpickle" in found["modules"]


@pytest.mark.usefixtures("worker")
async def test_slot_keeps_the_templates_of_calls_that_wait_in_it(
    hub: scripted_slots.SlotHub, tmp_path: Path
) -> None:
    slot = await hub.open()
    gate, sign = tmp_path / "gate", tmp_path / "sign"
    held = hub.call(slot, f"{F}:hold", str(gate), str(sign))
    await waiting.wait_until_async(sign.exists, what="the first runs")
    waits = hub.call(slot, f"{F}:add", 1)
    slot.send(messages.Forget(tuple(range(100))))
    gate.touch()
    await hub.end(slot, held)
    assert await hub.result(slot, waits) == 2
    slot.send(messages.Forget(tuple(range(100))))
    end = await hub.end(slot, hub.call(slot, f"{F}:add", 1))
    assert "a call came before its template" in end.message


@pytest.mark.usefixtures("worker")
async def test_usage_is_measured_per_call(hub: scripted_slots.SlotHub) -> None:
    slot = await hub.open()
    used = []
    for function, mebibytes, seconds in (
        ("use", 0, 0.05), ("use", 300, 0.1), ("use", 0, 0.05), ("use_in_a_child", 200, 0.2),
    ):  # fmt: skip
        end = await hub.end(slot, hub.call(slot, f"{F}:{function}", mebibytes, seconds))
        assert end.ending is SUCCEEDED
        assert end.usage is not None
        used.append(end.usage)
    before, large, after, child = used
    peaks = [used.peak_bytes or 0 for used in (before, large, after, child)]
    assert 300 << 20 < peaks[1] < (300 << 20) + 2 * peaks[0]
    assert 0 < peaks[2] < peaks[0] + (100 << 20)
    assert peaks[3] > 200 << 20
    assert 0.05 <= before.cpu_s < 1
    assert 0.05 <= after.cpu_s < 1
    assert child.cpu_s >= 0.2


@pytest.mark.usefixtures("worker")
async def test_short_calls_are_not_measured(hub: scripted_slots.SlotHub) -> None:
    slot = await hub.open()
    await hub.end(slot, hub.call(slot, f"{F}:add", 1))
    ends = [await hub.end(slot, hub.call(slot, f"{F}:add", 1)) for _ in range(20)]
    # On a busy machine another process may run in the middle of one, which is long then.
    assert [end.usage is None for end in ends] == [end.seconds < usage.SHORT_S for end in ends]
    assert any(end.usage is None for end in ends)
    unknown = await hub.end(slot, hub.call(slot, f"{F}:nothing_of_that_name"))
    failed = await hub.end(slot, hub.call(slot, f"{F}:use", 0, "not a number"))
    assert unknown.usage is failed.usage is None
