"""Inputs of the machine: submissions, reports, deadlines, and tasks that are forgotten.

Each module that decides for the machine has tests of its own; these are about its inputs: which of
them count, and what is sent, written and published.
"""

from typing import Any

import msgspec
import pytest

from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.dispatch import errors, model
from kilnwork.dispatch.machine import inputs, instructions, records, task_starts
from kilnwork.kit import ids
from support import scripted_calls, scripted_machine

S = api_task.State

# Tasks that are forgotten: at once when they are over, and unwritten if nothing has their end


def forgotten(world: scripted_calls.World, task: ids.TaskId) -> instructions.Batch:
    """The batch in which it is to be forgotten."""
    world.machine.handle(inputs.Forget((task,)), world.now)
    return world.machine.take(world.now)


def with_call() -> tuple[scripted_calls.World, ids.TaskId]:
    """A world in which a slot has a call, whose row is stored."""
    world = scripted_calls.World()
    world.driver()
    world.define(scripted_calls.spec())
    (task,) = world.submit()
    world.task(task).stored = world.task(task).state
    return world, task


def end(world: scripted_calls.World, task: ids.TaskId) -> None:
    """It ends in the batch at hand."""
    player, record = world.holder(task), world.task(task)
    over = calls.CallEnd(
        record.ref, attempts.Ending.SUCCEEDED, "Succeeded", "", scripted_calls.RESULT, 1.0, 0.001
    )
    world.machine.handle(inputs.CallsEnded(player.link, 1, (over,)), world.now)


def test_end_of_a_forgotten_task_is_not_written() -> None:
    world, task = with_call()
    record = world.task(task)
    end(world, task)
    batch = forgotten(world, task)
    assert (batch.forgotten, list(batch.dirty)) == ({task: record.row}, [])
    assert batch.finals == [record]  # memory drops it, and drivers get their result
    assert [result.number for result in batch.results[scripted_calls.DRIVER]] == [record.number]


def test_unfinished_task_is_not_forgotten() -> None:
    world, task = with_call()
    batch = forgotten(world, task)
    assert batch.forgotten == {}
    assert world.machine.task(task) is not None


def test_end_that_is_being_written_is_kept() -> None:
    world, task = with_call()
    end(world, task)
    world.machine.take(world.now)
    assert forgotten(world, task).forgotten == {}


def test_end_of_a_task_without_a_row_is_written() -> None:
    world, task = with_call()
    record = world.task(task)
    record.stored = None
    end(world, task)
    batch = forgotten(world, task)
    assert (batch.forgotten, list(batch.dirty)) == ({}, [record])


def test_task_that_is_not_in_memory_is_forgotten() -> None:
    world, task = with_call()
    end(world, task)
    world.machine.forget(world.machine.take(world.now).finals)
    assert forgotten(world, task).forgotten == {task: None}


def test_new_tasks_that_share_a_spec_share_a_template() -> None:
    world = scripted_calls.World(slots=0)
    spec = scripted_calls.spec()
    new = [
        model.Submission(
            task=scripted_calls.task_id(number), namespace="ns", name=f"t-{number}", spec=spec,
            arguments=scripted_calls.ARGUMENTS, declared=False,
        )
        for number in range(2)
    ]  # fmt: skip
    assert not any(map(world.machine.refusal, new))
    world.machine.handle(inputs.SubmitNew(new), world.now)
    batch = world.machine.take(world.now)
    one, other = batch.dirty
    assert one.has_template_spec
    assert (one.template, [one.name, other.name]) == (other.template, ["t-0", "t-1"])
    assert batch.templates == [one.template]


# Commands: one worker with one slot


def step(world: scripted_machine.World, item: inputs.Input) -> instructions.Batch:
    """Give an input to the machine and return the batch of its changes."""
    world.machine.handle(item, world.now)
    return world.machine.take(world.now)


def world_with_command(**spec: Any) -> tuple[scripted_machine.World, records.Task]:
    """Return a world with a worker that runs a command."""
    world = scripted_machine.World()
    world.join()
    task = world.submit(**spec)
    world.report(task)
    assert task.state is S.RUNNING
    return world, task


def submission(run: int = 1, **fields: Any) -> model.Submission:
    filled = api_task.TaskSpec(command=("true",), run=run)
    return model.Submission(
        task=scripted_machine.TASK, namespace="ns", name="t", spec=filled, **fields
    )


def outcome(
    ending: attempts.Ending = attempts.Ending.SUCCEEDED, reason: str = "Succeeded", **fields: Any
) -> attempts.Outcome:
    return attempts.Outcome(ending, reason, **fields)


FAILED = outcome(attempts.Ending.FAILED, "NonZeroExit", exit_code=1)


@pytest.mark.parametrize(("more", "fits"), [(0, True), (1, False)])
def test_submission_may_have_exactly_the_maximum_size(more: int, *, fits: bool) -> None:
    world = scripted_machine.World()
    empty = len(msgspec.json.encode(submission().spec))
    given = submission(inputs=bytes(task_starts.MAX_TASK_BYTES - empty + more))
    if fits:
        assert list(step(world, inputs.Submit(given)).dirty) == [
            world.memory.tasks[scripted_machine.TASK]
        ]
    else:
        with pytest.raises(errors.TaskTooLarge, match="spec and inputs take"):
            step(world, inputs.Submit(given))
        assert world.memory.tasks == {}


def test_call_with_large_arguments_is_refused() -> None:
    world = scripted_machine.World()
    big = attempts.Payload(attempts.JSON, bytes(task_starts.MAX_TASK_BYTES))
    call = model.Submission(
        task=scripted_machine.TASK, namespace="ns", name="t", spec=scripted_calls.spec(),
        arguments=big,
    )  # fmt: skip
    assert "spec and inputs take" in world.machine.refusal(call)


@pytest.mark.parametrize("run", [1, 2])
def test_run_that_is_not_newer_than_the_current_changes_nothing(run: int) -> None:
    world = scripted_machine.World()
    step(world, inputs.Submit(submission(run=2)))
    before = world.memory.tasks[scripted_machine.TASK]
    assert step(world, inputs.Submit(submission(run=run))).empty
    assert world.memory.tasks == {scripted_machine.TASK: before}


def test_newer_run_replaces_a_running_one_when_that_has_ended() -> None:
    world, task = world_with_command()
    newer = inputs.Submit(submission(run=2))
    stop = instructions.StopAttempt(1, task.ref, 30.0, "Replaced")
    assert step(world, newer).sends == [stop]
    assert (task.run, task.state, task.reason) == (1, S.KILLING, "Replaced")
    assert task.message == "run 2 takes its place"
    world.report(task, outcome(attempts.Ending.STOPPED, "Replaced"))
    assert task.state is S.KILLED
    step(world, newer)
    assert world.memory.tasks[scripted_machine.TASK].run == 2


def test_run_after_a_success_needs_force() -> None:
    world, task = world_with_command()
    world.report(task, outcome())
    with pytest.raises(errors.RunRefused, match=r"^run 1 of ns/t succeeded; .* needs force$"):
        step(world, inputs.Submit(submission(run=2)))
    assert world.memory.tasks[scripted_machine.TASK] is task
    step(world, inputs.Submit(submission(run=2), force=True))
    assert world.memory.tasks[scripted_machine.TASK].run == 2


def test_run_after_a_failure_needs_no_force() -> None:
    world, task = world_with_command()
    world.report(task, FAILED)
    assert task.state is S.FAILED
    step(world, inputs.Submit(submission(run=2)))
    assert world.memory.tasks[scripted_machine.TASK].run == 2


@pytest.mark.parametrize(
    ("past", "force", "admitted"),
    [
        (inputs.Past(1, S.FAILED), False, True),
        (inputs.Past(2, S.FAILED), True, False),
        (inputs.Past(3, S.FAILED), True, False),
        (inputs.Past(1, S.SUCCESS), True, True),
        (None, False, True),
    ],
)
def test_run_of_a_task_in_the_journal_is_admitted_if_it_is_newer(
    past: inputs.Past | None, *, force: bool, admitted: bool
) -> None:
    world = scripted_machine.World()
    batch = step(world, inputs.Submit(submission(run=2), past=past, force=force))
    assert [task.run for task in batch.dirty] == [2] * admitted
    assert batch.empty == (not admitted)


def test_run_after_a_success_in_the_journal_needs_force() -> None:
    world = scripted_machine.World()
    item = inputs.Submit(submission(run=2), past=inputs.Past(1, S.SUCCESS))
    with pytest.raises(errors.RunRefused, match="run 1 of ns/t succeeded"):
        world.machine.handle(item, world.now)
    assert world.memory.tasks == {}


def test_task_with_a_newer_run_is_kept_by_prunes() -> None:
    world = scripted_machine.World()
    again = inputs.Submit(submission(run=2), past=inputs.Past(1, S.FAILED))
    name = scripted_machine.TASK
    with world.memory.pins.collect(()) as pinned, world.memory.pins.retire((name,)):
        world.machine.handle(inputs.Forget((name,)), world.now)
        batch = step(world, again)
    assert (batch.forgotten, pinned) == ({}, {name})
    first = scripted_machine.World()
    with first.memory.pins.collect(()) as pinned:
        step(first, inputs.Submit(submission()))
    assert pinned == set()


def test_run_continues_with_the_children_of_an_earlier_one() -> None:
    world = scripted_machine.World()
    earlier = inputs.Earlier(run=1, total=3, succeeded=2, failed=1)
    past = inputs.Past(1, S.FAILED)
    batch = step(world, inputs.Submit(submission(run=2), past=past, earlier=earlier))
    assert batch.taken_over == [(scripted_machine.TASK, 1, 2)]
    family = world.memory.tasks[scripted_machine.TASK].family
    assert family is not None
    assert family.counts() == api_task.ChildCounts(total=3, running=0, succeeded=2, failed=1)


def test_kill_gives_a_waiting_task_its_reason_and_message() -> None:
    world = scripted_machine.World()
    task = world.submit()
    batch = step(world, inputs.Kill(task.id, "Killed", "by ann"))
    assert (task.state, task.reason, task.message) == (S.KILLED, "Killed", "by ann")
    assert batch.finals == [task]
    unknown = scripted_calls.task_id(99)
    assert step(world, inputs.Kill(unknown, "Killed", "")).empty


def test_suspended_task_waits_until_it_is_resumed() -> None:
    world = scripted_machine.World()
    task = world.submit()
    assert list(step(world, inputs.Suspend(task.id, suspended=True)).dirty) == [task]
    assert step(world, inputs.Suspend(task.id, suspended=True)).empty
    world.join()
    assert (task.suspended, task.state, world.runs) == (True, S.PENDING, 0)
    world.apply(inputs.Suspend(task.id, suspended=False))
    assert (task.suspended, task.state, world.runs) == (False, S.STAGING, 1)
    assert step(world, inputs.Suspend(scripted_calls.task_id(99), suspended=True)).empty


def test_finished_task_is_not_suspended() -> None:
    world, task = world_with_command()
    world.report(task, outcome())
    assert step(world, inputs.Suspend(task.id, suspended=True)).empty
    assert not task.suspended


def test_only_tasks_that_are_not_in_memory_are_released() -> None:
    world = scripted_machine.World()
    task, other = world.submit(), scripted_calls.task_id(99)
    assert step(world, inputs.Release((task.id, other))).released == [other]


def test_tasks_of_a_deleted_cluster_fail() -> None:
    world = scripted_machine.World()
    task = world.submit()
    for namespace, cluster in (("ns", "another"), ("another", "default")):
        step(world, inputs.CloseCluster(namespace, cluster))
        assert task.state is S.PENDING
    step(world, inputs.CloseCluster("ns", "default"))
    assert (task.state, task.reason) == (S.FAILED, "ClusterDeleted")
    assert task.message == "there is no TaskCluster default"


def other_cluster(number: int) -> model.Submission:
    return model.Submission(
        task=scripted_calls.task_id(number), namespace="ns", name=f"t-{number}",
        spec=api_task.TaskSpec(command=("true",), cluster_name="other"),
    )  # fmt: skip


def test_tasks_of_other_clusters_outlive_a_deleted_cluster() -> None:
    world = scripted_machine.World()
    task = world.submit()
    world.apply(inputs.Submit(other_cluster(99)))
    assert step(world, inputs.CloseCluster("ns", "default")).finals == [task]
    (other,) = step(world, inputs.CloseCluster("ns", "other")).finals
    assert (other.name, other.message) == ("t-99", "there is no TaskCluster other")


def test_new_tasks_have_their_own_rows_and_clusters() -> None:
    world = scripted_machine.World()
    batch = step(world, inputs.SubmitNew((submission(), other_cluster(2), other_cluster(3))))
    assert [task.cluster.key[1] for task in batch.dirty] == ["default", "other", "other"]
    assert [task.row for task in batch.dirty] == [1, 2, 3]


def test_task_that_has_delegated_needs_no_cluster() -> None:
    world, parent = scripted_calls.world_with_call(slots=2)
    child = scripted_calls.spawn(world, parent)
    world.end(parent, delegate=child)
    world.apply(inputs.CloseCluster("ns", "default", running=False))
    assert world.task(parent).state is S.RUNNING
    world.apply(inputs.CloseCluster("ns", "default"))
    assert world.task(parent).state is S.FAILED


def test_cluster_that_is_being_deleted_keeps_what_a_worker_has() -> None:
    world, running = world_with_command()
    waiting = model.Submission(
        task=scripted_calls.task_id(99), namespace="ns", name="w",
        spec=api_task.TaskSpec(command=("true",)),
    )  # fmt: skip
    world.apply(inputs.Submit(waiting))
    batch = step(world, inputs.CloseCluster("ns", "default", running=False))
    (ended,) = batch.finals
    assert (ended.name, ended.message) == ("w", "TaskCluster default is being deleted")
    assert running.state is S.RUNNING
    stop = instructions.StopAttempt(1, running.ref, 30.0, "ClusterDeleted")
    assert step(world, inputs.CloseCluster("ns", "default")).sends == [stop]


def test_worker_whose_link_is_closed_is_not_connected() -> None:
    world, task = world_with_command()
    worker = world.memory.links[1]
    assert world.machine.holds_lease(1)
    world.apply(inputs.LinkClosed(2))
    assert (worker.link, worker.ready) == (1, True)
    world.apply(inputs.LinkClosed(1))
    assert (worker.link, worker.ready) == (0, False)
    assert not world.machine.holds_lease(1)
    assert task.state is S.RUNNING


def test_driver_whose_link_is_closed_submits_no_more() -> None:
    world = scripted_calls.World()
    world.driver()
    world.apply(inputs.LinkClosed(scripted_calls.DRIVER))
    assert world.memory.submitters == {}
    assert world.machine.holds_lease(1)


def test_attempt_whose_link_is_closed_has_none_left() -> None:
    world, task = world_with_command()
    world.apply(inputs.JoinAttempt(7, task.ref))
    assert world.machine.held_by(7, task.ref) is task
    world.apply(inputs.LinkClosed(7))
    assert world.memory.attempt_links == {}
    assert world.memory.links[1].link == 1


def test_attempt_is_held_by_its_own_peer_only() -> None:
    world, task = world_with_command()
    held_by, ref = world.machine.held_by, task.ref
    assert held_by(1, ref) is task
    assert held_by(2, ref) is None
    assert held_by(1, msgspec.structs.replace(ref, attempt=ref.attempt + 1)) is None
    assert held_by(1, msgspec.structs.replace(ref, run=ref.run + 1)) is None
    assert held_by(1, msgspec.structs.replace(ref, task=scripted_calls.task_id(99))) is None
    world.apply(inputs.JoinAttempt(7, msgspec.structs.replace(ref, attempt=5)))
    assert held_by(7, ref) is None
    world.report(task, outcome())
    assert held_by(1, ref) is None


def test_call_is_held_by_its_slot_and_not_by_another() -> None:
    world = scripted_calls.world_with_driver(slots=2)
    one, other = world.submit(2)
    world.started(one)
    record = world.task(one)
    assert world.machine.held_by(world.holder(one).link, record.ref) is record
    assert world.holder(one) is not world.holder(other)
    assert world.machine.held_by(world.holder(other).link, record.ref) is None


def test_start_that_another_peer_reports_is_acknowledged_only() -> None:
    world = scripted_machine.World()
    world.join()
    task = world.submit()
    batch = step(world, inputs.Started(2, 8, task.ref, world.now.wall))
    assert batch.sends == [instructions.Acknowledge(2, 8)]
    assert (task.state, task.started) == (S.STAGING, None)
    world.after(5)
    batch = step(world, inputs.Started(1, 9, task.ref, world.now.wall - 2))
    assert batch.sends == [instructions.Acknowledge(1, 9)]
    assert (task.state, task.started) == (S.RUNNING, world.now.wall - 2)
    assert batch.acknowledged == {}


def test_start_that_a_slot_reports_is_acknowledged_with_its_frames() -> None:
    world, task = scripted_calls.world_with_call()
    link, record = world.holder(task).link, world.task(task)
    item = inputs.Started(link, 4, record.ref, world.now.wall)
    world.machine.handle(item, world.now)
    batch = world.machine.take(world.now)
    assert (batch.acknowledged, batch.sends) == ({link: 4}, [])
    assert record.cluster in batch.clusters
    late = inputs.Started(link, 5, msgspec.structs.replace(record.ref, attempt=9), world.now.wall)
    world.machine.handle(late, world.now)
    batch = world.machine.take(world.now)
    assert (batch.acknowledged, batch.clusters) == ({link: 5}, set())


def test_end_that_another_peer_reports_is_acknowledged_only() -> None:
    world, task = world_with_command()
    batch = step(world, inputs.Finished(2, 5, task.ref, outcome()))
    assert batch.sends == [instructions.Acknowledge(2, 5)]
    assert task.state is S.RUNNING


@pytest.mark.parametrize(("reason", "leaving"), [("WorkerStopping", True), ("PodLost", False)])
def test_worker_that_stops_gets_no_more_tasks(reason: str, *, leaving: bool) -> None:
    world, task = world_with_command(retry=api_task.Retry(max_losses=3, delay_seconds=0))
    world.report(task, outcome(attempts.Ending.LOST, reason))
    assert world.memory.links[1].leaving == leaving
    world.after(10)
    assert (task.state, world.runs) == ((S.PENDING, 1) if leaving else (S.STAGING, 2))


def test_loss_that_a_worker_reports_of_itself_is_excused() -> None:
    world, task = world_with_command()
    lost = outcome(attempts.Ending.LOST, "WorkerLost")
    batch = step(world, inputs.Finished(1, 5, task.ref, lost))
    assert [past.reason for past in batch.past] == ["DispatcherAway"]
    assert (task.losses, task.excused) == (0, 1)


@pytest.mark.parametrize("proof", [True, False])
def test_late_end_proves_that_an_abandoned_attempt_is_gone(*, proof: bool) -> None:
    world, task = world_with_command(timeouts=api_task.Timeouts(kill_grace_seconds=1))
    ref, worker = task.ref, world.memory.links[1]
    world.apply(inputs.Kill(task.id, "Killed", ""))
    world.after(500)
    world.apply(inputs.Renew(1))
    world.after(501)  # grace and lease
    assert (task.state, task.stopped, list(worker.unproven)) == (S.KILLED, False, [ref])
    assert task.message == "it was not seen to end within its grace"
    late = outcome(attempts.Ending.STOPPED, "Killed", proof=proof)
    world.apply(inputs.Finished(1, 9, ref, late))
    assert (task.stopped, list(worker.unproven)) == ((True, []) if proof else (False, [ref]))


def test_observation_of_an_attempt_counts_from_its_own_peer_only() -> None:
    world, task = world_with_command()
    seen = model.Observed("Scheduled", "", "n1")
    before = task.observed
    assert step(world, inputs.AttemptObserved(2, task.ref, seen)).empty
    assert task.observed == before
    step(world, inputs.AttemptObserved(1, task.ref, seen))
    assert task.observed == seen


def test_progress_of_a_declared_task_is_published() -> None:
    world, task = world_with_command()
    half = model.Progress(0.5, "half")
    before = task.progress
    assert step(world, inputs.AttemptProgress(2, task.ref, half)).empty
    assert task.progress == before
    assert step(world, inputs.AttemptProgress(1, task.ref, half)).published == {task.id}
    assert task.progress == half
    task.declared = False
    assert step(world, inputs.AttemptProgress(1, task.ref, half)).empty


def test_journal_may_have_a_child_only_under_a_number_in_use() -> None:
    world, task = world_with_command()
    may_have = world.machine.may_have_child
    assert not may_have(task.ref, "=key")
    child = inputs.Spawn(
        link=1, serial=1, parent=task.ref, child_key="#1", task=scripted_calls.task_id(99),
        name="c", spec=api_task.TaskSpec(command=("true",)), inputs=None, digest=b"d",
    )  # fmt: skip
    world.apply(child)
    assert not may_have(task.ref, "#1")  # it is in memory
    assert may_have(task.ref, "=key")
    assert not may_have(task.ref, "#2")
    world.apply(inputs.Kill(child.task, "Killed", ""))
    world.machine.forget([world.memory.tasks[child.task]])
    assert may_have(task.ref, "#1")
    assert not may_have(task.ref, "#2")
    assert not may_have(msgspec.structs.replace(task.ref, task=child.task), "=key")


def test_calls_that_may_have_been_accepted_are_looked_up() -> None:
    world = scripted_calls.world_with_driver()
    call = calls.CallItem(
        number=1, task=scripted_calls.task_id(1), template=1, arguments=scripted_calls.ARGUMENTS
    )
    item = inputs.SubmitCalls(scripted_calls.DRIVER, (call,))
    assert world.machine.lookups(item) is None
    found = world.machine.lookups(item, again=True)
    assert found is not None
    assert (found.namespace, found.calls) == ("ns", [(1, call.task)])


# Time


def test_next_deadline_is_that_of_the_first_timer() -> None:
    world = scripted_machine.World()
    assert world.machine.next_deadline() is None
    world.submit(timeouts=api_task.Timeouts(pending_seconds=20, total_seconds=10))
    assert world.machine.next_deadline() == 10.0
    world.now = inputs.Moment(world.now.wall + 9.9, 9.9)
    step(world, inputs.Tick())
    assert world.memory.tasks[scripted_machine.TASK].state is S.PENDING
    assert world.machine.task(scripted_machine.TASK) is not None
    assert world.machine.task(scripted_calls.task_id(99)) is None


def test_task_that_waits_too_long_fails() -> None:
    world = scripted_machine.World()
    task = world.submit(timeouts=api_task.Timeouts(pending_seconds=5))
    world.after(5)
    assert (task.state, task.reason) == (S.FAILED, "PendingTimedOut")


def test_task_that_has_started_does_not_wait() -> None:
    world, task = world_with_command(timeouts=api_task.Timeouts(pending_seconds=5))
    world.after(50)
    assert (task.state, task.intent) == (S.RUNNING, records.Intent.NONE)


def test_attempt_that_its_worker_has_not_started_does_not_wait_too_long() -> None:
    world = scripted_machine.World()
    world.join()
    task = world.submit(timeouts=api_task.Timeouts(pending_seconds=5))
    world.after(50)
    assert (task.state, task.intent) == (S.STAGING, records.Intent.NONE)
    observed = scripted_machine.World()
    observed.join()
    task = observed.submit(timeouts=api_task.Timeouts(pending_seconds=5))
    seen = model.Observed("Pulling", "image x")
    observed.apply(inputs.AttemptObserved(1, task.ref, seen))
    observed.after(5)
    assert task.intent is records.Intent.PENDING_TIMEOUT
    assert task.message == "not started within 5 s: Pulling: image x"


def test_attempt_that_runs_too_long_is_stopped() -> None:
    world, task = world_with_command(timeouts=api_task.Timeouts(running_seconds=5))
    world.after(4.5)
    assert (task.state, task.intent) == (S.RUNNING, records.Intent.NONE)
    world.after(0.5)
    assert task.intent is records.Intent.TIMEOUT
    assert (task.reason, task.message) == ("TimedOut", "attempt 1 ran longer than 5 s")
    (stop,) = [s for s in world.sent if isinstance(s, instructions.StopAttempt)]
    assert stop.ref == task.ref


def test_run_that_takes_too_long_is_stopped() -> None:
    world, task = world_with_command(timeouts=api_task.Timeouts(total_seconds=5))
    world.after(5)
    assert task.intent is records.Intent.TOTAL_TIMEOUT
    assert (task.reason, task.message) == ("TotalTimedOut", "the run took longer than 5 s")


def test_time_in_suspension_counts_against_no_deadline() -> None:
    world = scripted_machine.World()
    limits = api_task.Timeouts(pending_seconds=5, total_seconds=10)
    task = world.submit(timeouts=limits)
    world.apply(inputs.Suspend(task.id, suspended=True))
    world.after(50)
    assert task.state is S.PENDING


@pytest.mark.parametrize("limit", ["pending_seconds", "total_seconds"])
def test_deadlines_begin_again_after_a_suspension(limit: str) -> None:
    world = scripted_machine.World()
    task = world.submit(timeouts=api_task.Timeouts(**{limit: 10}))
    world.after(5)
    world.apply(inputs.Suspend(task.id, suspended=True))
    world.apply(inputs.Suspend(task.id, suspended=False))
    states = []
    for seconds in (9, 1):
        world.after(seconds)
        states.append(task.state)
    assert states == [S.PENDING, S.FAILED]


def test_deadline_of_an_earlier_attempt_does_not_stop_the_next() -> None:
    world, task = world_with_command(
        timeouts=api_task.Timeouts(running_seconds=5),
        retry=api_task.Retry(max_attempts=2, delay_seconds=0),
    )
    world.after(3)
    world.report(task, FAILED)
    world.after(0)
    world.report(task)
    assert (task.attempt, task.state) == (2, S.RUNNING)
    world.after(3)
    assert (task.state, task.intent) == (S.RUNNING, records.Intent.NONE)


def test_retry_is_queued_and_published_after_its_delay() -> None:
    world, task = world_with_command(
        retry=api_task.Retry(max_attempts=2, delay_seconds=30, jitter=0)
    )
    world.report(task, FAILED)
    world.after(29)
    assert (task.state, task.ticket, world.runs) == (S.PENDING, None, 1)
    world.now = inputs.Moment(world.now.wall + 1, world.now.mono + 1)
    world.machine.handle(inputs.Tick(), world.now)
    assert task.ticket is not None
    batch = world.machine.take(world.now)
    assert task.id in batch.published
    assert (task.state, task.attempt) == (S.STAGING, 2)


def test_retry_that_is_queued_already_is_not_queued_again() -> None:
    world, task = world_with_command(
        retry=api_task.Retry(max_attempts=2, delay_seconds=30, jitter=0)
    )
    world.report(task, FAILED)
    world.apply(inputs.LinkClosed(1))
    world.apply(inputs.Suspend(task.id, suspended=True))
    world.now = inputs.Moment(world.now.wall + 60, world.now.mono)  # the wall clock was set
    world.apply(inputs.Suspend(task.id, suspended=False))
    ticket = task.ticket
    assert ticket is not None
    world.after(30)
    assert (task.ticket, len(task.cluster.queue)) == (ticket, 1)


def test_running_timeout_of_an_ended_attempt_stops_nothing() -> None:
    world, task = world_with_command(
        timeouts=api_task.Timeouts(running_seconds=5),
        retry=api_task.Retry(max_attempts=2, delay_seconds=60, jitter=0),
    )
    world.report(task, FAILED)
    world.after(5)
    assert (task.state, task.intent) == (S.PENDING, records.Intent.NONE)


def test_call_that_does_not_end_in_its_grace_ends_with_its_slot() -> None:
    limits = api_task.Timeouts(kill_grace_seconds=2)
    world, task = scripted_calls.world_with_call(scripted_calls.spec(timeouts=limits))
    world.started(task)
    world.apply(inputs.Kill(task, "Killed", ""))
    world.after(1)
    assert world.sent_of(instructions.KillSlot) == []
    world.after(1)
    killed = instructions.KillSlot(1, world.holder(task).name)
    assert world.sent_of(instructions.KillSlot) == [killed]


# One batch: what has ended, then waits, then the queue, then confirmations


def test_dependent_starts_in_the_batch_in_which_what_it_needs_ends() -> None:
    world, task = scripted_calls.world_with_call()
    (dependent,) = world.submit(needs=(task,))
    assert not world.holds(dependent)
    world.end(task)
    assert world.holds(dependent)


def test_child_of_a_call_that_waits_in_place_runs_in_its_slot() -> None:
    world, parent = scripted_calls.world_with_call()
    child = scripted_calls.spawn(world, parent)
    assert not world.holds(child)
    world.wait(parent, child, in_place=True)
    assert world.holder(child) is world.holder(parent)


def test_calls_beyond_the_backlog_are_accepted_when_the_queue_is_shorter() -> None:
    world = scripted_calls.world_with_driver(max_backlog=1)
    tasks = [*world.submit(), *world.submit(2)]
    assert world.accepted == {scripted_calls.DRIVER: 1}
    world.end(tasks[0])
    assert world.accepted == {scripted_calls.DRIVER: 3}


def test_worker_that_does_not_renew_its_lease_is_lost() -> None:
    world, task = world_with_command()
    world.after(999)
    assert world.machine.holds_lease(1)
    world.after(1)
    assert not world.machine.holds_lease(1)
    assert (task.state, task.losses) == (S.PENDING, 1)


def test_lease_is_extended_after_the_dispatcher_was_suspended() -> None:
    world, _ = world_with_command()
    world.after(900)
    world.apply(inputs.Stalled())
    world.after(999)
    assert world.machine.holds_lease(1)
    world.after(1)
    assert not world.machine.holds_lease(1)


def test_nothing_starts_after_a_close() -> None:
    world = scripted_machine.World()
    world.join()
    world.apply(inputs.Close())
    task = world.submit()
    assert (task.state, world.runs) == (S.PENDING, 0)
