"""The contract of every executor, continued: objects that disappear while they are to end, and
large results.

The first half is test_executors.py.
"""

import pytest

from kilnwork.api import task as api_task
from support import executor_world, waiting

GRACE = 1.0


async def remove_object_while_its_api_is_away(world: executor_world.World) -> None:
    """Remove the only object as another client, regardless of finalizers, while no manager can see
    it.
    """
    await world.subject.absent(now=True)
    [name] = await world.subject.objects()
    await world.subject.remove(name, by_force=True)


async def wait_until_end_is_reported(world: executor_world.World) -> None:
    """Wait until the end of an attempt was reported to the dispatcher."""
    await waiting.wait_until_async(
        lambda: "after finished" in world.steps.names, what="its end is reported"
    )


async def test_timeout_of_an_attempt_whose_object_was_removed_fails_the_task(
    world: executor_world.World,
) -> None:
    timeouts = api_task.Timeouts(running_seconds=1.5, kill_grace_seconds=GRACE)
    task = await world.submit("sleep 300", timeouts=timeouts)
    await world.wait_until_started(task)
    await world.wait_for_state(task, "Running")
    await remove_object_while_its_api_is_away(world)
    await world.wait_until_stopping(task)
    await world.subject.absent(now=False)
    await wait_until_end_is_reported(world)
    view = await world.wait_for_state(task, "Failed", "TimedOut")
    assert (view.attempt, view.losses, world.starts(task)) == (1, 0, [1])
    await world.wait_until_clean()


async def test_kill_of_an_attempt_whose_object_was_removed_completes(
    world: executor_world.World,
) -> None:
    task = await world.submit("sleep 300", timeouts=api_task.Timeouts(kill_grace_seconds=GRACE))
    await world.wait_until_started(task)
    await world.wait_for_state(task, "Running")
    await remove_object_while_its_api_is_away(world)
    await world.kill(task)
    await world.wait_for_state(task, "Killing")
    await world.subject.absent(now=False)
    await wait_until_end_is_reported(world)
    view = await world.wait_for_state(task, "Killed")
    assert (view.attempt, view.losses, world.starts(task)) == (1, 0, [1])
    await world.wait_until_clean()


async def test_object_created_late_by_an_older_manager_is_ended(
    world: executor_world.World,
) -> None:
    """Its request arrives long after the next manager has decided about the attempt."""
    await world.subject.absent(now=True)
    task = await world.submit()
    await world.wait_for_state(task, "Staging", "ExecutorUnavailable")
    attempt = world.attempt(task, script=world.script("sleep 300"))
    await world.kill(task)
    await world.wait_until_stopping(task)
    await world.subject.absent(now=False)
    await world.wait_for_state(task, "Killed", "Killed")
    await world.subject.create_late(attempt)
    await world.wait_until_clean()
    await world.wait_until_ended(task)
    assert len(world.starts(task)) <= 1  # it may have started before it was ended
    assert world.view(task).state == "Killed"


@pytest.mark.parametrize("attempts", [1, 2])
async def test_result_that_is_too_large_fails_the_task(
    world: executor_world.World, attempts: int
) -> None:
    retry = api_task.Retry(max_attempts=attempts, delay_seconds=0.01)
    task = await world.submit(too_large=True, retry=retry)
    view = await world.wait_for_state(task, "Failed", world.subject.too_large_reason)
    assert (view.attempt, view.losses, view.result) == (attempts, 0, None)
    await waiting.wait_until_async(
        lambda: world.view(task).stopped, what="it is proved to have stopped"
    )
    await world.wait_until_clean()
