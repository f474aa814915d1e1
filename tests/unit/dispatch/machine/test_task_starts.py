"""A task that is held back, or whose server stops, does not start; it says so and waits again."""

from kilnwork.api import attempts, reasons
from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import inputs, instructions, records, transition_table
from support import scripted_machine

FAILED = attempts.Outcome(attempts.Ending.FAILED, "NonZeroExit", "exit code 1", exit_code=1)
_S = api_task.State


def said(task: records.Task) -> tuple[str, str]:
    return task.state.value, str(task.reason)


def test_a_queued_task_is_suspended_and_resumed() -> None:
    world = scripted_machine.World()
    task = world.submit()
    world.apply(inputs.Suspend(scripted_machine.TASK, True))
    world.join()
    assert said(task) == ("Pending", "Suspended")
    assert (world.runs, len(task.cluster.queue)) == (0, 0)
    world.apply(inputs.Suspend(scripted_machine.TASK, False))
    assert (task.state, world.runs) == (_S.STAGING, 1)


def test_suspending_twice_changes_nothing() -> None:
    world = scripted_machine.World()
    world.submit()
    for _ in range(2):
        world.apply(inputs.Suspend(scripted_machine.TASK, True))
    world.apply(inputs.Suspend(scripted_machine.TASK, False))
    world.apply(inputs.Suspend(scripted_machine.TASK, False))
    world.join()
    assert world.runs == 1


def test_running_attempt_continues_and_the_next_one_waits() -> None:
    world = scripted_machine.World()
    world.join()
    task = world.submit(retry=api_task.Retry(max_attempts=2, delay_seconds=0))
    world.report(task)
    world.apply(inputs.Suspend(scripted_machine.TASK, True))
    assert task.state is _S.RUNNING
    assert not [s for s in world.sent if isinstance(s, instructions.StopAttempt)]
    world.report(task, FAILED)
    assert (said(task), world.runs) == (("Pending", "Suspended"), 1)
    world.apply(inputs.Suspend(scripted_machine.TASK, False))
    assert (task.attempt, world.runs) == (2, 2)


def test_suspended_retry_still_waits_its_delay() -> None:
    world = scripted_machine.World()
    world.join()
    retry = api_task.Retry(max_attempts=2, delay_seconds=50, jitter=0)
    task = world.submit(retry=retry)
    world.report(task)
    world.report(task, FAILED)
    world.apply(inputs.Suspend(scripted_machine.TASK, True))
    assert said(task) == ("Pending", "Suspended")
    world.apply(inputs.Suspend(scripted_machine.TASK, False))
    assert said(task) == ("Pending", "RetryBackoff")
    world.apply(inputs.Suspend(scripted_machine.TASK, True))
    world.after(51)
    assert (said(task), world.runs) == (("Pending", "Suspended"), 1)
    world.apply(inputs.Suspend(scripted_machine.TASK, False))
    assert world.runs == 2


def test_suspended_task_can_be_killed() -> None:
    world = scripted_machine.World()
    task = world.submit()
    world.apply(inputs.Suspend(scripted_machine.TASK, True))
    world.apply(inputs.Kill(scripted_machine.TASK, reasons.Reason.KILLED))
    assert said(task) == ("Killed", "Killed")
    assert task.attempt_state is not transition_table.AttemptState.STARTED


def test_timeouts_restart_after_a_suspension() -> None:
    world = scripted_machine.World()
    limits = api_task.Timeouts(pending_seconds=10, total_seconds=12)
    task = world.submit(timeouts=limits)
    world.after(8)
    world.apply(inputs.Suspend(scripted_machine.TASK, True))
    world.after(100)
    world.apply(inputs.Suspend(scripted_machine.TASK, False))
    world.after(9)
    assert task.state is _S.PENDING
    world.after(1.5)
    assert said(task) == ("Failed", "PendingTimedOut")


def test_timeouts_count_from_when_the_task_became_pending() -> None:
    world = scripted_machine.World()
    task = world.submit(since=world.now.wall - 8, timeouts=api_task.Timeouts(pending_seconds=10))
    world.after(1)
    assert task.state is _S.PENDING
    world.after(1.5)
    assert said(task) == ("Failed", "PendingTimedOut")


def test_total_time_counts_from_when_the_task_became_pending() -> None:
    world = scripted_machine.World()
    world.join()
    task = world.submit(since=world.now.wall - 8, timeouts=api_task.Timeouts(total_seconds=10))
    world.report(task)
    world.after(2.5)
    assert str(task.reason) == "TotalTimedOut"


def test_pending_time_in_the_future_extends_no_timeout() -> None:
    world = scripted_machine.World()
    task = world.submit(since=world.now.wall + 3600, timeouts=api_task.Timeouts(pending_seconds=10))
    assert task.pending_since == world.now.wall


def test_a_server_that_stops_starts_nothing_and_counts_no_loss() -> None:
    world = scripted_machine.World()
    world.join()
    task = world.submit()
    world.report(task)
    assert (said(task)[0], world.runs) == ("Running", 1)
    world.apply(inputs.Close())
    world.report(task, attempts.Outcome(attempts.Ending.LOST, "WorkerLost", "the Pod was ended"))
    assert (said(task)[0], task.losses) == ("Pending", 0)
    assert world.runs == 1


def test_an_attempt_that_its_lost_worker_may_have_started_is_counted() -> None:
    world = scripted_machine.World()
    world.join()
    task = world.submit()
    assert (task.attempt_state, task.attempt) == (transition_table.AttemptState.RESERVED, 1)
    world.apply(inputs.WorkerGone("uid"))
    world.join("pod2", link=2)
    assert (task.attempt, task.unstarted, task.losses) == (2, 0, 0)


def test_an_attempt_that_its_worker_had_not_started_is_not_counted() -> None:
    world = scripted_machine.World()
    world.join()
    task = world.submit()
    world.report(task, attempts.Outcome(attempts.Ending.LOST, "WorkerStopping", proof=True))
    world.join("pod2", link=2)
    assert (task.attempt, task.unstarted, task.losses) == (2, 1, 0)
