"""The machine and calls in Pods: their executor starts and stops them, their process reports."""

from typing import Any

import pytest

from kilnwork.api import attempts, calls, reasons
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.machine import inputs, instructions, records
from kilnwork.kit import ids
from support import scripted_calls

R = reasons.Reason
S = api_task.State
E = attempts.Ending
EXECUTOR, LINK, NEXT_LINK = 11, 21, 22
POD = api_task.PodTemplate(spec={})
RUN, STOP = instructions.RunAttempt, instructions.StopAttempt


class World(scripted_calls.World):
    """A driver whose template 1 is a call in a Pod, executor `pod`, and a worker with a slot."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(slots=1)
        self.apply(inputs.JoinExecutor(EXECUTOR, "pod", 100))
        self.driver()
        self.define(scripted_calls.spec(pod=POD, **fields))
        self.define(scripted_calls.spec("m:in_slot"), number=2)

    def call(self, **item: Any) -> records.Task:
        (task,) = self.submit(**item)
        return self.task(task)

    def process(self, task: records.Task, link: int = LINK) -> scripted_calls.SlotPlayer:
        """The process of the newest attempt is there."""
        player = self.by_link[link] = scripted_calls.SlotPlayer(b"")
        self.apply(inputs.JoinCall(link, task.ref, "ns"))
        return player

    def report(self, task: records.Task, ending: E, *, link: int = LINK, **fields: Any) -> None:
        reason, payload = R.SUCCEEDED, scripted_calls.RESULT
        if ending is not E.SUCCEEDED:
            reason, payload = R.RAISED, scripted_calls.ERROR
        end = calls.CallEnd(task.ref, ending, reason, "", payload, self.now.wall, 0.1, **fields)
        self.apply(inputs.CallsEnded(link, 1, (end,)))

    def over(self, ref: attempts.AttemptRef, ending: E, reason: str = R.SUCCEEDED) -> None:
        """Its executor sees that an attempt is over."""
        self.apply(inputs.Finished(EXECUTOR, 0, ref, attempts.Outcome(ending, reason)))

    def asked(self, kind: type[Any]) -> list[attempts.AttemptRef]:
        return [send.ref for send in self.sent_of(kind) if send.link == EXECUTOR]


def state(task: records.Task) -> api_task.State:
    return task.state


@pytest.fixture
def world() -> World:
    return World()


def test_call_goes_to_its_executor_and_to_no_worker(world: World) -> None:
    task = world.call()
    assert world.asked(RUN) == [task.ref]
    assert (task.state, task.cluster.is_executor) == (S.STAGING, True)
    assert not world.sent_of(instructions.OpenSlot)


def test_calls_beyond_the_capacity_wait_without_a_slot() -> None:
    world = World()
    world.apply(inputs.JoinExecutor(EXECUTOR, "pod", 1))
    first, second = world.call(), world.call()
    assert (first.state, second.state) == (S.STAGING, S.PENDING)
    assert not world.sent_of(instructions.OpenSlot)
    world.over(first.ref, E.FAILED, R.ADMISSION_ERROR)
    assert state(second) is S.STAGING


def test_process_gets_the_call_and_its_report_counts_at_once(world: World) -> None:
    task = world.call()
    player = world.process(task)
    assert player.has == [task.ref]
    assert state(task) is S.RUNNING
    world.report(task, E.SUCCEEDED)
    assert (task.state, task.result) == (S.SUCCESS, scripted_calls.RESULT)
    assert world.acknowledged[LINK] == 1
    result = world.result(task.number)
    assert result is not None
    assert result.payload == scripted_calls.RESULT
    world.over(task.ref, E.SUCCEEDED)  # its Pod, later
    assert state(task) is S.SUCCESS


def test_another_attempt_follows_a_failure_as_the_call_says() -> None:
    world = World(retry=api_task.Retry(max_attempts=2, delay_seconds=0))
    task = world.call()
    world.process(task)
    world.report(task, E.FAILED)
    assert (task.attempt, task.state) == (2, S.STAGING)
    first = attempts.AttemptRef(task.id, 1, 1)
    assert world.asked(RUN) == [first, task.ref]
    world.over(first, E.FAILED)  # the Pod of the first one
    assert (task.attempt, task.state) == (2, S.STAGING)
    world.process(task, NEXT_LINK)
    world.report(task, E.FAILED, link=NEXT_LINK, may_retry=False)
    assert (task.state, task.reason, task.result) == (S.FAILED, R.RAISED, scripted_calls.ERROR)


def test_a_process_that_ends_without_a_report_has_not_returned(world: World) -> None:
    task = world.call()
    world.process(task)
    world.over(task.ref, E.SUCCEEDED)
    assert (task.state, task.reason) == (S.FAILED, R.SLOT_DIED)


def test_end_of_a_pod_without_a_report_is_a_loss(world: World) -> None:
    task = world.call()
    world.process(task)
    world.over(task.ref, E.LOST, R.EVICTED)
    assert (task.losses, task.attempt, task.state) == (1, 2, S.STAGING)


def test_lost_result_is_a_loss_and_not_a_failure(world: World) -> None:
    task = world.call()
    world.process(task)
    first = task.ref
    world.report(task, E.LOST)
    assert (task.losses, task.attempt, task.state) == (1, 2, S.STAGING)
    world.over(first, E.FAILED, R.NON_ZERO_EXIT)  # its Pod, later
    assert (task.losses, task.attempt, task.state) == (1, 2, S.STAGING)


def test_lost_result_of_a_killed_call_waits_for_its_pod(world: World) -> None:
    task = world.call()
    world.process(task)
    world.apply(inputs.CancelTasks(scripted_calls.DRIVER, (task.id,), recursive=True))
    world.report(task, E.LOST)
    assert state(task) is S.KILLING
    world.over(task.ref, E.STOPPED, R.KILLED)
    assert (task.state, task.stopped) == (S.KILLED, True)


def test_killed_call_is_killed_when_its_pod_has_ended(world: World) -> None:
    task = world.call()
    world.process(task)
    world.apply(inputs.CancelTasks(scripted_calls.DRIVER, (task.id,), recursive=True))
    assert world.asked(STOP) == [task.ref]
    world.report(task, E.STOPPED)  # says nothing about the rest of the Pod
    assert state(task) is S.KILLING
    world.over(task.ref, E.STOPPED, R.KILLED)
    assert (task.state, task.stopped) == (S.KILLED, True)


def test_an_end_that_came_before_the_kill_counts(world: World) -> None:
    task = world.call()
    world.process(task)
    world.apply(inputs.CancelTasks(scripted_calls.DRIVER, (task.id,), recursive=True))
    world.report(task, E.SUCCEEDED)
    assert state(task) is S.SUCCESS


def test_a_timeout_stops_its_pod() -> None:
    world = World(timeouts=api_task.Timeouts(running_seconds=5))
    task = world.call()
    world.process(task)
    world.after(6)
    assert world.asked(STOP) == [task.ref]
    world.over(task.ref, E.STOPPED, R.TIMED_OUT)
    assert (task.state, task.reason) == (S.FAILED, R.TIMED_OUT)


def test_next_attempt_finds_the_children() -> None:
    world = World(retry=api_task.Retry(max_attempts=2, delay_seconds=0))
    task = world.call()
    world.process(task)
    world.define(scripted_calls.spec("m:child"), link=LINK)
    child = world.call(link=LINK, parent=task.ref, ordinal=1)
    assert (child.parent, child.siblings) == (task.ref, task.family)
    world.report(task, E.FAILED)
    world.process(task, NEXT_LINK)
    world.define(scripted_calls.spec("m:child"), link=NEXT_LINK)
    world.submit(link=NEXT_LINK, parent=task.ref, ordinal=1)
    (found,) = world.sent_of(instructions.FoundCall)
    assert (found.link, found.task) == (NEXT_LINK, child.id)
    world.end(child.id)
    result = world.results[NEXT_LINK][0]
    assert (result.state, result.payload) == (S.SUCCESS, scripted_calls.RESULT)


def test_call_may_return_the_future_of_a_child(world: World) -> None:
    task = world.call()
    world.process(task)
    world.define(scripted_calls.spec("m:child"), link=LINK)
    child = world.call(link=LINK, parent=task.ref, ordinal=1)
    world.report(task, E.SUCCEEDED, delegate=child.id)
    assert task.reason == R.DELEGATED
    world.end(child.id)
    assert (task.state, task.result) == (S.SUCCESS, scripted_calls.RESULT)


def test_no_process_submits_or_reports_for_another_attempt(world: World) -> None:
    mine, other = world.call(), world.call()
    world.process(mine)
    world.define(scripted_calls.spec("m:child"), link=LINK)
    world.submit(link=LINK, parent=other.ref, ordinal=1)
    assert world.results[LINK][0].reason == R.PARENT_KILLED
    world.report(other, E.SUCCEEDED)
    world.apply(inputs.Yielded(LINK, other.ref, 0, scripted_calls.RESULT))
    world.apply(inputs.AttemptProgress(LINK, other.ref, model.Progress(0.5, "")))
    assert (other.state, other.family, other.progress) == (S.STAGING, None, None)
    assert not world.sent_of(instructions.Stream)


def test_yielded_values_reach_the_driver(world: World) -> None:
    task = world.call()
    world.process(task)
    world.apply(inputs.Yielded(LINK, task.ref, 0, scripted_calls.RESULT))
    (stream,) = world.sent_of(instructions.Stream)
    assert (stream.link, stream.number, stream.index) == (scripted_calls.DRIVER, task.number, 0)


def test_process_of_an_ended_attempt_is_refused(world: World) -> None:
    task = world.call()
    world.over(task.ref, E.FAILED, R.ADMISSION_ERROR)
    world.process(task)
    attached = world.sent_of(instructions.AttachPeer)[-1]
    assert (attached.link, attached.unknown) == (LINK, (task.ref,))
    assert LINK not in world.memory.submitters


def test_reconnected_process_replaces_its_old_link(world: World) -> None:
    task = world.call()
    world.process(task)
    player = world.process(task, NEXT_LINK)
    assert [gone.link for gone in world.sent_of(instructions.CloseLink)] == [LINK]
    assert player.has == [task.ref]
    world.report(task, E.SUCCEEDED, link=LINK)
    assert state(task) is S.RUNNING
    world.apply(inputs.LinkClosed(LINK))
    world.report(task, E.SUCCEEDED, link=NEXT_LINK)
    assert state(task) is S.SUCCESS
    world.apply(inputs.LinkClosed(NEXT_LINK))
    assert not world.memory.attempt_links
    assert set(world.memory.submitters) == {scripted_calls.DRIVER, *world.memory.slot_links}


def test_results_of_dependencies_are_sent_along(world: World) -> None:
    (needed,) = world.submit(template=2)
    task = world.call(needs=(needed,))
    assert state(task) is S.PENDING
    world.end(needed)
    assert state(task) is S.STAGING
    assert task.values is not None
    assert task.values[needed].payload == scripted_calls.RESULT


def test_declared_call_runs_in_the_same_way(world: World) -> None:
    name = world.declare(900, scripted_calls.spec("m:f", args=(1,), kwargs={"b": 2}, pod=POD))
    task = world.task(name)
    assert world.asked(RUN) == [task.ref]
    world.process(task)
    assert task.arguments == attempts.Payload(attempts.JSON, b'[[1],{"b":2}]')
    world.report(task, E.SUCCEEDED)
    assert state(task) is S.SUCCESS


def test_waiting_slot_does_not_run_it_in_place(world: World) -> None:
    (parent,) = world.submit(template=2)
    player = world.holder(parent)
    link = player.link
    world.define(scripted_calls.spec(pod=POD), link=link)
    world.apply(inputs.JoinExecutor(EXECUTOR, "pod", 0))  # so that it waits in the queue
    child = world.call(link=link, parent=world.task(parent).ref, ordinal=1)
    assert child.ticket is not None
    world.wait(parent, child.id, in_place=True)
    assert not child.in_place
    assert state(child) is S.PENDING
    assert ids.task_text(child.id) not in {ids.task_text(ref.task) for ref in player.has}
