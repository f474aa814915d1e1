"""When the wall clock jumps back, deadlines stay where they were: they are of the other clock."""

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import inputs
from support import scripted_machine

FAILED = attempts.Outcome(attempts.Ending.FAILED, "NonZeroExit", "exit code 1", exit_code=1)
_S = api_task.State


def turn_back(world: scripted_machine.World, seconds: float) -> None:
    world.now = inputs.Moment(world.now.wall - seconds, world.now.mono)


def test_running_timeout_is_not_postponed() -> None:
    world = scripted_machine.World()
    world.join()
    task = world.submit(timeouts=api_task.Timeouts(running_seconds=10, kill_grace_seconds=1))
    turn_back(world, 3600)
    world.report(task)
    world.after(11)
    assert str(task.reason) == "TimedOut"


def test_retry_is_not_postponed() -> None:
    world = scripted_machine.World()
    world.join()
    task = world.submit(retry=api_task.Retry(max_attempts=2, delay_seconds=5, jitter=0))
    world.report(task)
    world.report(task, FAILED)
    turn_back(world, 3600)
    world.after(5.5)
    assert (task.state, task.attempt) == (_S.STAGING, 2)


def test_times_of_a_run_never_go_backwards() -> None:
    world = scripted_machine.World()
    world.join()
    task = world.submit()
    turn_back(world, 3600)
    world.report(task)
    done = attempts.Outcome(attempts.Ending.SUCCEEDED, "Succeeded", exit_code=0)
    world.report(task, done)
    assert task.started is not None
    assert task.finished is not None
    assert task.created <= task.started <= task.finished
