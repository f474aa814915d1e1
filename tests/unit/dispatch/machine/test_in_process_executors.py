"""The machine and executors: one peer takes all, gets back what it had, proves what is over."""

from typing import Any

import pytest

from kilnwork.api import attempts, reasons
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.machine import in_process_executors, inputs, instructions, records, views
from kilnwork.kit import ids
from support import scripted_machine

R = reasons.Reason
S = api_task.State
E = attempts.Ending
POD = api_task.PodTemplate(spec={"containers": [{"name": "main"}]})
LINK, NEXT_LINK = 11, 12
SUCCEEDED = attempts.Outcome(E.SUCCEEDED, R.SUCCEEDED, exit_code=0)
LOST = attempts.Outcome(E.LOST, R.POD_LOST, "a user deleted it")
STOPPED = attempts.Outcome(E.STOPPED, R.KILLED)


class World(scripted_machine.World):
    """A machine to which executor `pod` belongs when it has joined."""

    def __init__(self) -> None:
        super().__init__()
        self.published: set[ids.TaskId] = set()

    def apply(self, item: inputs.Input) -> None:
        self.machine.handle(item, self.now)
        batch = self.machine.take(self.now)
        self.sent += batch.sends
        self.published |= batch.published

    def pod(self, number: int = 1, namespace: str = "ns", **spec: Any) -> records.Task:
        filled = api_task.TaskSpec(pod=POD, **spec)
        task = ids.TaskId(bytes(15) + bytes([number]))
        self.apply(
            inputs.Submit(model.Submission(task=task, namespace=namespace, name="t", spec=filled))
        )
        return self.memory.tasks[task]

    def executor(self, link: int = LINK, *, capacity: int = 100) -> None:
        self.apply(inputs.JoinExecutor(link, "pod", capacity))

    def observed(self, task: records.Task, reason: str, node: str = "", link: int = LINK) -> None:
        self.apply(inputs.AttemptObserved(link, task.ref, model.Observed(reason, "because", node)))

    def over(
        self, task: records.Task, outcome: attempts.Outcome, *, link: int = LINK, attempt: int = 0
    ) -> None:
        ref = task.ref
        if attempt:
            ref = attempts.AttemptRef(ref.task, ref.run, attempt)
        self.apply(inputs.Finished(link, 0, ref, outcome))

    def started(self, task: records.Task, link: int = LINK) -> None:
        self.apply(inputs.Started(link, 0, task.ref, self.now.wall))

    def kill(self, task: records.Task) -> None:
        self.apply(inputs.Kill(task.id, R.KILLED, ""))

    def asked(self, kind: type[Any], link: int = LINK) -> list[attempts.AttemptRef]:
        """Attempts that an executor was asked for, in order."""
        return [s.ref for s in self.sent if isinstance(s, kind) and s.link == link]


@pytest.fixture
def world() -> World:
    made = World()
    made.executor()
    return made


RUN, STOP = instructions.RunAttempt, instructions.StopAttempt


def test_executor_gets_attempts_of_all_namespaces(world: World) -> None:
    tasks = [world.pod(1, "a"), world.pod(2, "b")]
    assert world.asked(RUN) == [task.ref for task in tasks]
    assert {task.state for task in tasks} == {S.STAGING}
    assert len({task.cluster.key for task in tasks}) == 1


def test_worker_of_a_cluster_gets_no_attempts_of_an_executor(world: World) -> None:
    world.join()
    world.pod()
    assert [s.link for s in world.sent if isinstance(s, RUN)] == [LINK]


def test_queue_name_of_an_executor_is_no_valid_cluster_name(world: World) -> None:
    task = world.pod()
    assert task.cluster.is_executor
    namespace, name = task.cluster.key
    assert (namespace, "/" in name) == ("", True)
    world.apply(inputs.CloseCluster("ns", name))
    assert not task.state.final


def test_tasks_beyond_the_capacity_wait_and_say_so() -> None:
    world = World()
    world.executor(capacity=2)
    tasks = [world.pod(number) for number in (1, 2, 3)]
    assert [task.state for task in tasks] == [S.STAGING, S.STAGING, S.PENDING]
    reason, message = views.explain(tasks[2])
    assert (reason, message) == (R.NO_FREE_SLOT, "executor pod runs 2 attempts, its limit")
    world.over(tasks[0], SUCCEEDED)
    assert tasks[2].state is S.STAGING


def test_tasks_wait_and_say_so_before_the_executor_has_joined() -> None:
    world = World()
    task = world.pod()
    assert views.explain(task) == (
        R.EXECUTOR_UNAVAILABLE, "this manager has no executor pod",
    )  # fmt: skip
    world.executor()
    assert world.asked(RUN) == [task.ref]


def test_observation_is_shown_until_the_next_state(world: World) -> None:
    task = world.pod()
    world.observed(task, R.IMAGE_PULL)
    assert views.shown_reason(task) == (R.IMAGE_PULL, "because")
    assert task.id in world.published
    world.published.clear()
    world.observed(task, R.IMAGE_PULL)
    assert world.published == set()  # nothing new
    world.over(task, LOST)
    assert task.reason != R.IMAGE_PULL


def test_reports_over_an_old_link_are_ignored(world: World) -> None:
    task = world.pod()
    world.executor(NEXT_LINK)
    world.observed(task, R.IMAGE_PULL, link=LINK)
    world.over(task, SUCCEEDED, link=LINK)
    assert (task.observed, task.state) == (None, S.STAGING)
    world.over(task, SUCCEEDED, link=NEXT_LINK)
    assert task.state is S.SUCCESS


def test_an_older_attempt_may_not_report(world: World) -> None:
    task = world.pod()
    world.over(task, LOST)
    assert task.attempt == 2
    world.over(task, SUCCEEDED, attempt=1)
    assert task.state is S.STAGING


def test_executor_gets_its_attempts_again_when_it_rejoins(world: World) -> None:
    waits, runs, dies = (world.pod(number) for number in (1, 2, 3))
    world.started(runs)
    world.kill(dies)
    world.executor(NEXT_LINK)
    assert world.asked(RUN, NEXT_LINK) == [waits.ref, runs.ref, dies.ref]
    assert world.asked(STOP, NEXT_LINK) == [dies.ref]


def test_restart_neither_loses_nor_repeats_attempts_of_an_executor(world: World) -> None:
    """However long it is away: it has no lease, and lives and dies with the dispatcher."""
    task = world.pod()
    world.started(task)
    world.after(1_000_000)
    assert task.state is S.RUNNING
    assert task.attempt == 1


def test_session_is_the_same_in_every_process() -> None:
    assert (
        in_process_executors.session("pod")
        == in_process_executors.session("pod")
        != in_process_executors.session("other")
    )
    assert len(in_process_executors.session("pod")) == 16


@pytest.mark.parametrize("started", [False, True])
def test_every_loss_counts_also_before_the_start(world: World, started: bool) -> None:  # noqa: FBT001
    """A node that refuses each Pod would be tried for ever otherwise."""
    task = world.pod(retry=api_task.Retry(max_losses=1, delay_seconds=1, jitter=0))
    for losses in (1, 2):
        if started:
            world.started(task)
        world.over(task, LOST)
        assert (task.losses, task.excused) == (losses, 0)
        world.after(10)
    assert (task.state, task.reason) == (S.FAILED, R.LOST_TOO_OFTEN)


def test_the_pending_timeout_covers_staging_and_says_what_it_waited_for(world: World) -> None:
    task = world.pod(timeouts=api_task.Timeouts(pending_seconds=60))
    world.observed(task, R.IMAGE_PULL)
    world.after(59)
    assert world.asked(STOP) == []
    world.after(2)
    assert world.asked(STOP) == [task.ref]
    world.over(task, STOPPED)
    assert (task.state, task.reason) == (S.FAILED, R.PENDING_TIMED_OUT)
    assert task.message == "not started within 60 s: ImagePull: because"


def test_the_pending_timeout_is_over_with_the_first_start(world: World) -> None:
    task = world.pod(timeouts=api_task.Timeouts(pending_seconds=60))
    world.started(task)
    world.over(task, LOST)  # the next attempt waits again, but the run has started
    world.after(61)
    assert world.asked(STOP) == []


def test_a_success_that_was_there_before_the_timeout_was_read_counts(world: World) -> None:
    task = world.pod(timeouts=api_task.Timeouts(pending_seconds=60))
    world.after(61)
    world.over(task, SUCCEEDED)
    assert task.state is S.SUCCESS


def test_a_kill_without_proof_is_unconfirmed_and_proved_later(world: World) -> None:
    task = world.pod(timeouts=api_task.Timeouts(kill_grace_seconds=5))
    world.started(task)
    world.kill(task)
    world.after(4 + world.memory.lease_s)
    assert task.state is S.KILLING
    world.after(2)
    assert (task.state, task.reason, task.stopped) == (S.KILLED, R.UNCONFIRMED, False)
    assert task.message == "it was not seen to end within its grace"
    world.over(task, STOPPED)
    assert task.stopped is True


def test_timed_out_attempt_without_proof_is_not_retried(world: World) -> None:
    task = world.pod(
        retry=api_task.Retry(max_attempts=3, delay_seconds=0),
        timeouts=api_task.Timeouts(running_seconds=60, kill_grace_seconds=5),
    )
    world.started(task)
    world.after(61)
    assert world.asked(STOP) == [task.ref]
    world.after(6 + world.memory.lease_s)
    assert (task.state, task.reason, task.stopped) == (S.FAILED, R.TIMED_OUT, False)
    assert world.asked(RUN) == [task.ref]


def test_attempt_without_proof_is_stopped_again_after_a_restart(world: World) -> None:
    task = world.pod(timeouts=api_task.Timeouts(kill_grace_seconds=5))
    world.kill(task)
    world.after(10 + world.memory.lease_s)
    assert task.stopped is False
    world.executor(NEXT_LINK)
    assert world.asked(RUN, NEXT_LINK) == world.asked(STOP, NEXT_LINK) == [task.ref]
    world.over(task, STOPPED, link=NEXT_LINK)
    assert task.stopped is True


def test_attempt_without_proof_occupies_capacity(world: World) -> None:
    world = World()
    world.executor(capacity=1)
    first, second = world.pod(1), world.pod(2)
    world.kill(first)
    world.after(100 + world.memory.lease_s)
    assert (first.stopped, second.state) == (False, S.PENDING)
    world.over(first, STOPPED)
    assert second.state is S.STAGING


def test_node_is_that_of_the_newest_attempt(world: World) -> None:
    task = world.pod()
    world.observed(task, R.STARTED, node="n1")
    assert task.placed == "n1"
    world.observed(task, R.STARTED)  # unknown by now, but it has not moved
    assert task.placed == "n1"
    world.over(task, LOST)
    assert (task.attempt, task.placed) == (2, "")
