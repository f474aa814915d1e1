"""The contract of every executor: each attempt starts once, reports its outcome, and leaves
nothing.

One suite for all executors, with the real driver, hub and journal; `support.executor_contract`
lists the subjects, and the tests that do not apply to one. The tests assert the state of the world:
programs write down that they were started.
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

FIRST_ATTEMPT_SLEEPS = '[ "$KILN_ATTEMPT" != 1 ] || sleep 300'
NO_DELAY = api_task.Retry(max_losses=3, delay_seconds=0.05, jitter=0)


async def wait_for_only_object(world: executor_world.World) -> str:
    """Wait until one object exists, and return its name."""

    async def look() -> list[str]:
        return await world.subject.objects()

    [name] = await waiting.wait_until_async(look, what="an object exists")
    return str(name)


@pytest.mark.parametrize(("then", "state"), [("exit 0", "Success"), ("exit 3", "Failed")])
async def test_task_runs_once_and_takes_the_outcome_of_its_program(
    world: executor_world.World, then: str, state: str
) -> None:
    reason = world.subject.failed if state == "Failed" else "Succeeded"
    task = await world.submit(then)
    view = await world.wait_for_state(task, state, reason)
    assert (view.attempt, view.failures, view.losses) == (1, int(state == "Failed"), 0)
    assert view.stopped is True
    assert world.starts(task) == [1]
    await world.wait_until_clean()


async def test_node_of_a_finished_task_is_known_after_a_restart(
    world: executor_world.World,
) -> None:
    task = await world.submit("sleep 0.5")
    running = await world.wait_for_state(task, "Running", "Started")
    await world.wait_for_state(task, "Success")
    await world.restart()
    assert world.view(task).node == running.node
    assert bool(running.node) is world.subject.knows_programs


async def test_repeated_ensure_starts_the_attempt_once(world: executor_world.World) -> None:
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


async def test_failed_attempt_is_retried_as_a_new_object(world: executor_world.World) -> None:
    task = await world.submit(
        '[ "$KILN_ATTEMPT" = 2 ]', retry=api_task.Retry(max_attempts=2, delay_seconds=0.05)
    )
    view = await world.wait_for_state(task, "Success")
    assert (view.attempt, view.failures) == (2, 1)
    assert world.starts(task) == [1, 2]
    await world.wait_until_clean()


async def test_object_created_before_a_crash_is_adopted(world: executor_world.World) -> None:
    await world.end()
    await world.start(cut_at=100)
    gate = world.directory / "gate"
    task = await world.submit(f"until [ -e {gate} ]; do sleep 0.02; done")
    await world.wait_until_started(task)
    await world.end()  # at any point: test_manager_cut_off_at_any_step… tries each
    gate.touch()
    await world.start()
    view = await world.wait_for_state(task, "Success", "Succeeded")
    assert (view.attempt, view.losses) == (1, 0)
    assert world.starts(task) == [1]
    await world.wait_until_clean()


async def test_outcome_reached_while_the_manager_is_down_counts(
    world: executor_world.World,
) -> None:
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


async def test_task_killed_before_its_object_exists_never_starts(
    world: executor_world.World,
) -> None:
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


async def test_killed_running_task_is_proved_to_have_stopped(world: executor_world.World) -> None:
    task = await world.submit("sleep 300")
    await world.wait_until_started(task)
    await world.kill(task)
    view = await world.wait_for_state(task, "Killed", "Killed")
    assert view.stopped is True
    assert world.starts(task) == [1]
    await world.wait_until_clean()


async def test_success_before_the_deletion_counts_over_the_kill(
    world: executor_world.World,
) -> None:
    """The program ends while the API is away, and the kill comes before the manager sees that."""
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


async def test_success_after_the_deletion_leaves_the_task_killed(
    world: executor_world.World,
) -> None:
    task = await world.submit("trap 'exit 0' TERM; while :; do sleep 0.05; done")
    await world.wait_until_started(task)
    await world.kill(task)
    view = await world.wait_for_state(task, "Killed", "Killed")
    assert view.stopped is True
    await world.wait_until_clean()


async def test_program_that_ignores_sigterm_is_gone_when_its_task_is_killed(
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


async def test_attempt_over_its_running_timeout_is_ended_and_fails(
    world: executor_world.World,
) -> None:
    timeouts = api_task.Timeouts(running_seconds=0.5, kill_grace_seconds=1)
    task = await world.submit("sleep 300", timeouts=timeouts)
    view = await world.wait_for_state(task, "Failed", "TimedOut")
    assert (view.attempt, view.failures, view.stopped) == (1, 1, True)
    await world.wait_until_clean()


async def test_new_run_has_its_own_objects(world: executor_world.World) -> None:
    task = await world.submit('[ "$KILN_RUN" = 2 ]')
    await world.wait_for_state(task, "Failed", world.subject.failed)
    await world.hub.retry(task)
    view = await world.wait_for_state(task, "Success")
    assert (view.run, view.attempt) == (2, 1)
    lines = world.starts_file.read_text().split()
    assert [line.split("/")[1:] for line in lines] == [["1", "1"], ["2", "1"]]
    await world.wait_until_clean()


def second_start(world: executor_world.World, view: model.TaskView) -> int:
    """Return the number of the second attempt that started.

    It is not always 2: a worker that is leaving loses some attempts before they start.
    """
    return view.attempt if world.subject.place() else 2


@pytest.mark.parametrize("how", ["held", "by force"])
async def test_object_deleted_by_another_client_is_a_loss_and_retried(
    world: executor_world.World, how: str
) -> None:
    task = await world.submit(FIRST_ATTEMPT_SLEEPS, retry=NO_DELAY)
    await world.wait_until_started(task)
    await world.wait_for_state(task, "Running")
    first = await wait_for_only_object(world)
    await world.subject.remove(first, by_force=how == "by force")
    view = await world.wait_for_state(task, "Success")
    assert (view.losses, view.failures) == (1, 0)
    assert world.starts(task) == [1, second_start(world, view)]
    await world.wait_until_clean()


async def test_repeated_deletions_fail_the_task_as_lost_too_often(
    world: executor_world.World,
) -> None:
    retry = api_task.Retry(max_losses=1, delay_seconds=0.05)
    task = await world.submit("sleep 300", retry=retry)
    for count in (1, 2):
        await world.wait_for_starts(task, count)
        await world.wait_for_state(task, "Running")
        for name in await world.subject.objects():
            await world.subject.remove(name, by_force=not world.subject.graceful_counts)
    view = await world.wait_for_state(task, "Failed", "LostTooOften")
    assert (world.starts(task), view.losses) == ([1, second_start(world, view)], 2)
    await world.wait_until_clean()


async def test_object_deleted_while_the_manager_is_down_is_a_loss(
    world: executor_world.World,
) -> None:
    task = await world.submit(FIRST_ATTEMPT_SLEEPS, retry=NO_DELAY)
    await world.wait_for_state(task, "Running")
    await world.end()
    await world.subject.remove(await wait_for_only_object(world), by_force=True)
    await world.start()
    view = await world.wait_for_state(task, "Success")
    assert view.losses == 1
    assert world.starts(task) == [1, second_start(world, view)]
    await world.wait_until_clean()


async def test_foreign_object_of_the_same_name_fails_the_task_and_stays(
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


async def test_kill_leaves_a_foreign_object_of_the_same_name_alone(
    world: executor_world.World,
) -> None:
    await world.subject.absent(now=True)
    task = await world.submit()
    await world.wait_for_state(task, "Staging", "ExecutorUnavailable")
    name = await world.subject.occupy(world.attempt(task))
    await world.kill(task)
    await world.subject.absent(now=False)
    await world.wait_for_state(task, "Killed")
    assert await world.subject.objects() == [name]
    assert await world.subject.is_unchanged(name)


async def test_task_waits_with_a_reason_until_its_api_is_available(
    world: executor_world.World,
) -> None:
    await world.subject.absent(now=True)
    task = await world.submit()
    state, reason, message = world.subject.waits
    view = await world.wait_for_state(task, state, reason)
    assert message in view.message
    assert world.starts(task) == []
    await world.subject.absent(now=False)
    view = await world.wait_for_state(task, "Success")
    assert (view.attempt, view.losses) == (1, 0)
    assert world.starts(task) == [1]


async def test_attempt_is_not_lost_while_its_api_is_unavailable(
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


async def test_manager_without_the_executor_keeps_its_tasks_waiting(
    world: executor_world.World,
) -> None:
    await world.end()
    await world.start_without_executors()
    try:
        task = await world.submit()
        state, reason, message = world.subject.without
        view = await world.wait_for_state(task, state, reason)
        assert message in view.message
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
async def test_manager_cut_off_at_any_step_starts_each_attempt_once(
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
        cut = await wait_until_cut_off_or_done(world, task, kill=story == "kill", gate=gate)
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


async def wait_until_cut_off_or_done(
    world: executor_world.World, task: Any, *, kill: bool, gate: Path
) -> bool:
    """Wait until the manager is cut off (return True), or nothing is left to do (return False).

    Programs wait for the gate, so that their start is seen before their end, however late that is.
    """
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
