"""Executors written by users: results, failures, kills, losses, over real links."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from kilnwork.executors import external
from support import external_executors, short_paths


@pytest.fixture
async def world() -> AsyncIterator[external_executors.World]:
    async with external_executors.running(
        short_paths.directory(), lease_s=2.0, renew_s=0.3
    ) as made:
        yield made


async def echo(task: external.ClaimedTask) -> Any:
    return {"payload": task.payload, "attempt": task.attempt, "inputs": task.inputs}


async def test_task_waits_for_an_executor_of_its_namespace(
    world: external_executors.World,
) -> None:
    task = await world.submit({"who": "${task.name}", "n": [1]})
    view = await world.wait_for_state(task, "Pending", "ExecutorUnavailable")
    assert view.message == "no program claims tasks of executor mine in namespace default"
    await world.executor(echo, namespace="other")
    await world.executor(echo, name="another")
    await asyncio.sleep(0.1)
    await world.wait_for_state(task, "Pending", "ExecutorUnavailable")
    await world.executor(echo)
    view = await world.wait_for_state(task, "Success")
    assert view.result is not None
    assert msgspec.json.decode(view.result.data) == {
        "payload": {"who": view.name, "n": [1]},
        "attempt": 1,
        "inputs": {},
    }


async def test_result_is_stored_by_size_and_type(world: external_executors.World) -> None:
    results: dict[str, Any] = {"none": None, "large": "x" * 100_000, "bytes": b"\x00\xff"}

    async def give(task: external.ClaimedTask) -> Any:
        return results[task.payload]

    await world.executor(give)
    none = await world.wait_for_state(await world.submit("none"), "Success")
    large = await world.wait_for_state(await world.submit("large"), "Success")
    raw = await world.wait_for_state(await world.submit("bytes", outputType="bytes"), "Success")
    assert none.result is None
    assert large.result is not None
    assert large.result.size == 100_002
    assert large.result.digest
    assert raw.result is not None
    assert raw.result.data == b"\x00\xff"
    wrong = await world.wait_for_state(await world.submit("large", outputType="bytes"), "Failed")
    assert wrong.reason == "InvalidResult"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"a": [1, "x", float("nan")]}, "result.a[2] is nan, which JSON does not have"),
        ([1.5, float("-inf")], "result[1] is -inf, which JSON does not have"),
        ([{"a": {1}}], "result[0].a is a set, which has no order; give a list"),
        ("\ud800", "surrogates not allowed"),
    ],
)
async def test_value_that_is_not_json_fails_the_task(
    world: external_executors.World, value: Any, said: str
) -> None:
    async def give(task: external.ClaimedTask) -> Any:
        return value

    await world.executor(give)
    view = await world.wait_for_state(await world.submit(), "Failed", "InvalidResult")
    assert said in view.message


async def test_messages_have_no_control_characters(world: external_executors.World) -> None:
    async def fail(task: external.ClaimedTask) -> Any:
        task.progress(0.5, "\ud800")
        raise ValueError("a\x00 \x1b[31mred\r\n\ttwo \x9b")

    await world.executor(fail)
    view = await world.wait_for_state(await world.submit(), "Failed", "Raised")
    assert view.message == "ValueError: a\\x00 \\x1b[31mred\\r\n\ttwo \\x9b"


async def test_failures_are_retried_as_the_spec_states(world: external_executors.World) -> None:
    async def fail(task: external.ClaimedTask) -> Any:
        if task.payload == "for good":
            raise external.Failed("no such picture", reason="NoPicture", retry=False)
        if task.attempt == 1:
            raise ValueError("try again")
        return task.attempt

    await world.executor(fail)
    retry = {"maxAttempts": 2, "delaySeconds": 0}
    view = await world.wait_for_state(await world.submit("for good", retry=retry), "Failed")
    assert (view.reason, view.message, view.attempt) == ("NoPicture", "no such picture", 1)
    view = await world.wait_for_state(await world.submit("once", retry=retry), "Success")
    assert view.attempt == 2
    view = await world.wait_for_state(await world.submit("once"), "Failed", "Raised")
    assert view.message == "ValueError: try again"


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "error",
    [
        Unspeakable(),
        SystemExit(3),
        asyncio.CancelledError("not killed"),
        ValueError("half a pair: \ud800"),
        external.Failed("\ud800"),
    ],
)
async def test_exception_ends_only_its_attempt(
    world: external_executors.World, error: BaseException
) -> None:
    async def fail(task: external.ClaimedTask) -> Any:
        if task.payload == "bad":
            raise error
        return 1

    await world.executor(fail)
    view = await world.wait_for_state(await world.submit("bad"), "Failed")
    assert view.attempt == 1
    assert view.message
    assert (await world.wait_for_state(await world.submit("good"), "Success")).attempt == 1


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("two words\n", r"reason is 'two words\\n'; it must be one word in CamelCase"),
        ("X" * 64, "of at most 63 letters and digits"),
        (None, "reason is None; it must be"),
        ("Killed", "reason is Killed, which says: It was killed on request.* Choose another word"),
    ],
)
def test_reason_is_taken_from_the_program(reason: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        external.Failed("no", reason=reason)


async def test_function_that_cancels_itself_has_failed(world: external_executors.World) -> None:
    async def cancel(task: external.ClaimedTask) -> Any:
        if task.payload == "bad":
            this = asyncio.current_task()
            assert this is not None
            this.cancel()
            await asyncio.sleep(60)
        return 1

    await world.executor(cancel)
    view = await world.wait_for_state(await world.submit("bad"), "Failed", "Raised")
    assert "cancelled, and not because the task was killed" in view.message
    await world.wait_for_state(await world.submit("good"), "Success")


async def test_killed_task_is_cancelled_and_is_killed_when_it_ends(
    world: external_executors.World,
) -> None:
    cancelled, released = asyncio.Event(), asyncio.Event()

    async def hold(task: external.ClaimedTask) -> Any:
        task.progress(0.5, "half")
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
            await released.wait()

    await world.executor(hold)
    task = await world.submit()
    await world.wait_for_state(task, "Running")
    await world.hub.kill(task, reason="Killed")
    await cancelled.wait()
    await world.wait_for_state(task, "Killing")
    released.set()
    view = await world.wait_for_state(task, "Killed", "Killed")
    assert view.stopped is True


async def test_without_an_acknowledgement_the_kill_is_unconfirmed(
    world: external_executors.World,
) -> None:
    released = asyncio.Event()

    async def ignore(task: external.ClaimedTask) -> Any:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        return "too late"

    await world.executor(ignore)
    task = await world.submit(timeouts={"killGraceSeconds": 0.1})
    await world.wait_for_state(task, "Running")
    await world.hub.kill(task, reason="Killed")
    view = await world.wait_for_state(task, "Killed", "Unconfirmed")
    assert view.stopped is False
    released.set()
    await asyncio.wait_for(_confirmed(world, task), 30)


async def test_task_behind_a_busy_executor_names_the_executor(
    world: external_executors.World,
) -> None:
    async def hold(task: external.ClaimedTask) -> Any:
        await asyncio.Event().wait()

    await world.executor(hold, slots=1)
    await world.wait_for_state(await world.submit(), "Running")
    view = await world.wait_for_state(await world.submit(), "Pending", "NoFreeSlot")
    assert view.message.startswith("executor mine runs 1 attempts")


async def _confirmed(world: external_executors.World, task: Any) -> None:
    while not (view := await world.wait_for_state(task, "Killed")).stopped:
        await asyncio.sleep(0.01)
    assert view.result is None


async def test_task_of_a_lost_executor_runs_elsewhere(world: external_executors.World) -> None:
    async def hold(task: external.ClaimedTask) -> Any:
        await asyncio.Event().wait()

    first = await world.executor(hold)
    task = await world.submit("again")
    await world.wait_for_state(task, "Running")
    await world.die(first)
    await world.executor(echo)
    view = await world.wait_for_state(task, "Success")
    assert (view.attempt, view.losses) == (2, 1)
