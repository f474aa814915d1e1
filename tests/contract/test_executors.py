"""What every executor keeps to: each attempt starts once, ends as it ended, and leaves nothing.

One suite for all, with the real driver, hub and journal; `support.executor_contract` says what is
under test, and where a test does not apply. Asserted is the world: programs write down that they
were started.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.executors import port
from support import (
    executor_world,
    waiting,
)

AGAIN_AT_ONCE = '[ "$KILN_ATTEMPT" != 1 ] || sleep 300'
NO_DELAY = api_task.Retry(max_losses=3, delay_seconds=0.05, jitter=0)


async def only(world: executor_world.World) -> str:
    """Wait for an object; its name, since it is the only one."""

    async def look() -> list[str]:
        return await world.subject.objects()

    [name] = await waiting.wait_until_async(look, what="an object exists")
    return str(name)


@pytest.mark.parametrize(("then", "state"), [("exit 0", "Success"), ("exit 3", "Failed")])
async def test_it_runs_once_and_its_end_is_the_tasks(
    world: executor_world.World, then: str, state: str
) -> None:
    reason = world.subject.failed if state == "Failed" else "Succeeded"
    task = await world.submit(then)
    view = await world.wait_for_state(task, state, reason)
    assert (view.attempt, view.failures, view.losses) == (1, int(state == "Failed"), 0)
    assert view.stopped is True
    assert world.starts(task) == [1]
    await world.wait_until_clean()


async def test_where_it_ran_is_known_afterwards(world: executor_world.World) -> None:
    task = await world.submit("sleep 0.5")
    running = await world.wait_for_state(task, "Running", "Started")
    await world.wait_for_state(task, "Success")
    await world.restart()
    assert world.view(task).node == running.node
    assert bool(running.node) is world.subject.knows_programs


async def test_creating_twice_starts_it_once(world: executor_world.World) -> None:
    task = await world.submit("sleep 300")
    await world.wait_for_state(task, "Running")
    await world.wait_until_started(task)
    attempt, executor = world.attempt(task), world.life.executor
    assert executor is not None
    before = await world.subject.objects()
    seen = await asyncio.gather(*(executor.ensure(attempt) for _ in range(3)))
    assert {one.phase for one in seen} == {port.Phase.RUNNING}
    assert await world.subject.objects() == before
    assert world.starts(task) == [1]


async def test_a_failure_is_tried_again_under_another_name(world: executor_world.World) -> None:
    task = await world.submit(
        '[ "$KILN_ATTEMPT" = 2 ]', retry=api_task.Retry(max_attempts=2, delay_seconds=0.05)
    )
    view = await world.wait_for_state(task, "Success")
    assert (view.attempt, view.failures) == (2, 1)
    assert world.starts(task) == [1, 2]
    await world.wait_until_clean()


async def test_created_but_not_recorded_is_adopted(world: executor_world.World) -> None:
    await world.end()
    await world.start(cut_at=100)
    gate = world.directory / "gate"
    task = await world.submit(f"until [ -e {gate} ]; do sleep 0.02; done")
    await world.wait_until_started(task)
    await world.end()  # whatever it has recorded by now; the steps below go through all of it
    gate.touch()
    await world.start()
    view = await world.wait_for_state(task, "Success", "Succeeded")
    assert (view.attempt, view.losses) == (1, 0)
    assert world.starts(task) == [1]
    await world.wait_until_clean()


async def test_what_ends_while_no_manager_is_there_counts(world: executor_world.World) -> None:
    gate = world.directory / "gate"
    task = await world.submit(f"until [ -e {gate} ]; do sleep 0.02; done; exit 4")
    await world.wait_for_state(task, "Running")
    await world.end()
    gate.touch()
    await asyncio.sleep(0.3)
    await world.start()
    view = await world.wait_for_state(task, "Failed", world.subject.failed)
    code = 4 if world.subject.knows_programs else None
    assert (view.attempt, view.exit_code, view.losses) == (1, code, 0)
    assert world.starts(task) == [1]
    await world.wait_until_clean()


async def test_killed_before_it_was_created_it_never_starts(world: executor_world.World) -> None:
    await world.subject.absent(now=True)
    task = await world.submit()
    state, reason, _ = world.subject.waits
    await world.wait_for_state(task, state, reason)
    await world.kill(task)
    await world.wait_until_stopping(task)
    await world.subject.absent(now=False)
    view = await world.wait_for_state(task, "Killed")
    assert view.stopped is True
    assert world.starts(task) == []
    await world.wait_until_clean()


async def test_killed_while_it_runs_it_is_proved_to_be_gone(world: executor_world.World) -> None:
    task = await world.submit("sleep 300")
    await world.wait_until_started(task)
    await world.kill(task)
    view = await world.wait_for_state(task, "Killed", "Killed")
    assert view.stopped is True
    assert world.starts(task) == [1]
    await world.wait_until_clean()


async def test_an_end_before_the_deletion_counts_over_the_kill(
    world: executor_world.World,
) -> None:
    """The manager is away while it ends, and is told to kill it before it sees that."""
    gate = world.directory / "gate"
    task = await world.submit(f"until [ -e {gate} ]; do sleep 0.02; done")
    await world.wait_for_state(task, "Running")
    await world.subject.absent(now=True)
    gate.touch()
    await world.wait_until_ended(task)
    await world.kill(task)
    await world.wait_for_state(task, "Killing")
    await asyncio.sleep(0.5)
    await world.subject.absent(now=False)
    view = await world.wait_for_state(task, "Success", "Succeeded")
    assert view.attempt == 1
    await world.wait_until_clean()


async def test_an_end_after_the_deletion_does_not_count(world: executor_world.World) -> None:
    task = await world.submit("trap 'exit 0' TERM; while :; do sleep 0.05; done")
    await world.wait_until_started(task)
    await world.kill(task)
    view = await world.wait_for_state(task, "Killed", "Killed")
    assert view.stopped is True
    await world.wait_until_clean()


async def test_who_ignores_the_kill_runs_no_more_when_it_is_killed(
    world: executor_world.World,
) -> None:
    timeouts = api_task.Timeouts(kill_grace_seconds=1)
    pid = world.directory / "pid"
    task = await world.submit(
        f"trap '' TERM; sh -c 'echo $PPID' > {pid}; while :; do sleep 0.1; done", timeouts=timeouts
    )
    await waiting.wait_until_async(lambda: pid.exists() and pid.read_text(), what="it runs")
    await world.kill(task)
    view = await world.wait_for_state(task, "Killed", "Killed")
    assert not Path("/proc", pid.read_text().strip()).exists()
    assert view.stopped is True
    await world.wait_until_clean()


async def test_what_runs_too_long_is_ended_and_has_failed(world: executor_world.World) -> None:
    timeouts = api_task.Timeouts(running_seconds=0.5, kill_grace_seconds=1)
    task = await world.submit("sleep 300", timeouts=timeouts)
    view = await world.wait_for_state(task, "Failed", "TimedOut")
    assert (view.attempt, view.failures, view.stopped) == (1, 1, True)
    await world.wait_until_clean()


async def test_a_new_run_has_objects_of_its_own(world: executor_world.World) -> None:
    task = await world.submit('[ "$KILN_RUN" = 2 ]')
    await world.wait_for_state(task, "Failed", world.subject.failed)
    await world.hub.retry(task)
    view = await world.wait_for_state(task, "Success")
    assert (view.run, view.attempt) == (2, 1)
    lines = world.starts_file.read_text().split()
    assert [line.split("/")[1:] for line in lines] == [["1", "1"], ["2", "1"]]
    await world.wait_until_clean()


def second(world: executor_world.World, view: model.TaskView) -> int:
    """Number of the second attempt that started: a worker that is going loses some unstarted."""
    return view.attempt if world.subject.place() else 2


@pytest.mark.parametrize("how", ["held", "by force"])
async def test_deleted_by_a_stranger_it_is_lost_and_tried_again(
    world: executor_world.World, how: str
) -> None:
    task = await world.submit(AGAIN_AT_ONCE, retry=NO_DELAY)
    await world.wait_until_started(task)
    await world.wait_for_state(task, "Running")
    first = await only(world)
    await world.subject.remove(first, by_force=how == "by force")
    view = await world.wait_for_state(task, "Success")
    assert (view.losses, view.failures) == (1, 0)
    assert world.starts(task) == [1, second(world, view)]
    await world.wait_until_clean()


async def test_deleted_again_and_again_it_is_lost_too_often(world: executor_world.World) -> None:
    retry = api_task.Retry(max_losses=1, delay_seconds=0.05)
    task = await world.submit("sleep 300", retry=retry)
    for count in (1, 2):
        await world.wait_for_starts(task, count)
        await world.wait_for_state(task, "Running")
        for name in await world.subject.objects():
            await world.subject.remove(name, by_force=not world.subject.graceful_counts)
    view = await world.wait_for_state(task, "Failed", "LostTooOften")
    assert (world.starts(task), view.losses) == ([1, second(world, view)], 2)
    await world.wait_until_clean()


async def test_deleted_while_no_manager_is_there_it_is_lost(world: executor_world.World) -> None:
    task = await world.submit(AGAIN_AT_ONCE, retry=NO_DELAY)
    await world.wait_for_state(task, "Running")
    await world.end()
    await world.subject.remove(await only(world), by_force=True)
    await world.start()
    view = await world.wait_for_state(task, "Success")
    assert view.losses == 1
    assert world.starts(task) == [1, second(world, view)]
    await world.wait_until_clean()


async def test_a_strangers_object_of_its_name_fails_it_and_stays(
    world: executor_world.World,
) -> None:
    await world.subject.absent(now=True)
    task = await world.submit(retry=api_task.Retry(max_attempts=5, delay_seconds=0.05))
    await world.wait_for_state(task, "Staging", "ExecutorUnavailable")
    name = await world.subject.occupy(world.attempt(task))
    await world.subject.absent(now=False)
    view = await world.wait_for_state(task, "Failed", "NameTaken")
    assert view.attempt == 1
    assert world.starts(task) == []
    await world.wait_until_clean(but=[name])
    assert await world.subject.is_unchanged(name)


async def test_a_kill_leaves_a_strangers_object_alone(world: executor_world.World) -> None:
    await world.subject.absent(now=True)
    task = await world.submit()
    await world.wait_for_state(task, "Staging", "ExecutorUnavailable")
    name = await world.subject.occupy(world.attempt(task))
    await world.kill(task)
    await world.subject.absent(now=False)
    await world.wait_for_state(task, "Killed")
    assert await world.subject.objects() == [name]
    assert await world.subject.is_unchanged(name)


async def test_without_its_api_it_waits_and_says_so_then_runs(world: executor_world.World) -> None:
    await world.subject.absent(now=True)
    task = await world.submit()
    state, reason, says = world.subject.waits
    view = await world.wait_for_state(task, state, reason)
    assert says in view.message
    assert world.starts(task) == []
    await world.subject.absent(now=False)
    view = await world.wait_for_state(task, "Success")
    assert (view.attempt, view.losses) == (1, 0)
    assert world.starts(task) == [1]


async def test_what_its_api_does_not_tell_is_neither_lost_nor_over(
    world: executor_world.World,
) -> None:
    task = await world.submit("sleep 300")
    await world.wait_for_state(task, "Running")
    await world.end()
    await world.subject.absent(now=True)
    await world.start()
    await world.wait_for_state(task, *world.subject.unheard)
    await world.kill(task)
    await world.wait_until_stopping(task)
    await world.subject.absent(now=False)
    view = await world.wait_for_state(task, "Killed", "Killed")
    assert (view.attempt, view.losses, view.stopped) == (1, 0, True)
    assert world.starts(task) == [1]
    await world.wait_until_clean()


async def test_a_manager_without_the_executor_keeps_its_tasks_waiting(
    world: executor_world.World,
) -> None:
    await world.end()
    await world.start_without_executors()
    try:
        task = await world.submit()
        state, reason, says = world.subject.without
        view = await world.wait_for_state(task, state, reason)
        assert says in view.message
    finally:
        await world.end_hub()
    assert world.starts(task) == []
    await world.start()
    await world.wait_for_state(task, "Success")


UNTIL_GATE = "until [ -e {gate} ]; do sleep 0.02; done; "
STORIES = {
    "success": (UNTIL_GATE + "exit 0", "Success", [1]),
    "failure": (UNTIL_GATE + '[ "$KILN_ATTEMPT" = 2 ]', "Success", [1, 2]),
    "kill": ("sleep 300", "Killed", [1]),
}


@pytest.mark.parametrize("story", STORIES)
async def test_cut_off_at_any_step_each_attempt_starts_once(
    world: executor_world.World, story: str
) -> None:
    then, state, starts = STORIES[story]
    seen: set[str] = set()
    await world.end()
    for step in range(1, 100):
        await world.start(cut_at=step)
        retry = api_task.Retry(max_attempts=2, delay_seconds=0.01)
        gate = world.directory / f"gate-{step}"
        task = await world.submit(then.format(gate=gate), retry=retry)
        cut = await cut_or_over(world, task, kill=story == "kill", gate=gate)
        seen.update(world.steps.names)
        await world.end()
        gate.touch()
        await world.start()
        if story == "kill":
            await world.kill(task)
        view = await world.wait_for_state(task, state)
        expected = [] if story == "kill" and not world.starts(task) else starts
        assert world.starts(task) == expected, world.steps.names
        assert view.losses == 0
        assert view.stopped is True
        await world.wait_until_clean()
        await world.end()
        if not cut:
            break
    await world.start()
    subject = world.subject
    passed = {"finished", subject.creates, subject.releases}
    passed |= {subject.deletes} if story == "kill" else {"started"}
    passed.discard("")
    assert seen >= {f"{when} {step}" for step in passed for when in ("before", "after")}, seen


async def cut_or_over(world: executor_world.World, task: Any, *, kill: bool, gate: Path) -> bool:
    """Wait until the life is cut off, or all is done; True in the first case. Programs wait for
    the gate, so that their start is seen before their end, however late that is."""
    killed = False

    async def look() -> bool:
        nonlocal killed
        if world.steps.cut.is_set():
            return True
        if kill and not killed and world.starts(task):
            killed = True
            await world.kill(task)
        if "after started" in world.steps.names:
            gate.touch()
        if not world.view(task).state.final or await world.subject.objects():
            return False
        release, passed = world.subject.releases or "finished", world.steps.names
        return passed.count(f"before {release}") == passed.count(f"after {release}")

    await waiting.wait_until_async(look, what="the life is cut off, or nothing is left to do")
    return world.steps.cut.is_set()
