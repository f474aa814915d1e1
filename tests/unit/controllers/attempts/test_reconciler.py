"""The driver between a dispatcher and an executor that do what the test says."""

from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec
import pytest

from kilnwork.api import attempts, reasons
from kilnwork.api import task as api_task
from kilnwork.controllers.attempts import reconciler
from kilnwork.dispatch import model
from kilnwork.dispatch.machine import instructions, records
from kilnwork.executors import port, registry
from kilnwork.kit import ids
from kilnwork.kube import errors, queue
from support import view_samples

R = reasons.Reason
E = attempts.Ending
TASK = ids.TaskId(bytes(15) + b"\1")
REF = attempts.AttemptRef(TASK, 1, 1)
KEY = ("scripted", str(REF))

STAGING = port.Observation(phase=port.Phase.STAGING, reason=R.STARTING)
NOT_CREATED = port.Observation(
    phase=port.Phase.STAGING, reason=R.QUOTA_EXCEEDED, exists=False, check_s=5.0
)
RUNNING = port.Observation(phase=port.Phase.RUNNING, reason=R.STARTED, started=7.0, node="n1")
POLLED = port.Observation(phase=port.Phase.RUNNING, reason=R.STARTED, started=7.0, check_s=2.0)
AWAY = errors.Unavailable(0, "", "connection refused")


def over(ending: attempts.Ending = E.SUCCEEDED) -> port.Observation:
    outcome = attempts.Outcome(ending, R.SUCCEEDED)
    return port.Observation(phase=port.Phase.OVER, reason=R.SUCCEEDED, outcome=outcome)


class Scripted:
    """An executor that says what comes next in `script`, and keeps what it was asked."""

    name = "scripted"

    def __init__(self) -> None:
        self.script: list[port.Observation | Exception] = []
        self.calls: list[str] = []
        self.output: list[bytes | Exception] = []
        self.value: attempts.Payload | Exception | None = None
        self.release_error: Exception | None = None
        self.left: port.Attempt | None = None
        self.wake: port.Wake

    def watch(self, wake: port.Wake) -> None:
        self.wake = wake

    def leftover(self, ref: attempts.AttemptRef, *, known: bool) -> port.Attempt | None:
        self.calls.append(f"leftover {'known' if known else 'unknown'}")
        return self.left if known else None

    async def ensure(self, attempt: port.Attempt) -> port.Observation:
        return self._next("ensure")

    async def observe(self, attempt: port.Attempt) -> port.Observation:
        return self._next("observe")

    async def stop(self, attempt: port.Attempt, how: port.Stop) -> port.Observation:
        return self._next(f"stop {how.grace_s:g} {how.reason}")

    async def result(self, attempt: port.Attempt) -> attempts.Payload | None:
        self.calls.append("result")
        if isinstance(self.value, Exception):
            raise self.value
        return self.value

    async def release(self, attempt: port.Attempt) -> None:
        self.calls.append("release")
        if self.release_error is not None:
            raise self.release_error

    async def outputs(self, attempt: port.Attempt) -> list[port.AttemptOutput]:
        return [port.AttemptOutput(name="", source="main")]

    async def logs(
        self, attempt: port.Attempt, output: port.AttemptOutput, how: port.LogRange
    ) -> AsyncGenerator[bytes, None]:
        for piece in self.output:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    def _next(self, call: str) -> port.Observation:
        self.calls.append(call)
        said = self.script.pop(0)
        if isinstance(said, Exception):
            raise said
        return said


class Hub:
    """The dispatcher's side: what was reported, in order."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.known = True
        self.held = False
        self.receive: Callable[[instructions.ForExecutor], None]

    async def join_executor(
        self, executor: str, *, capacity: int, receive: Callable[[instructions.ForExecutor], None]
    ) -> "Hub":
        self.receive = receive
        return self

    @property
    def containers(self) -> "Hub":
        return self

    def join(self, receive: Callable[[instructions.ForExecutor], None]) -> None:
        self.receive = receive

    def kill(self, pod_uid: str, ref: attempts.AttemptRef, container: str) -> bool:
        return False

    def holds(self, ref: attempts.AttemptRef) -> bool:
        return self.held

    def view(self, task: ids.TaskId) -> model.TaskView | None:
        return view_samples.running(task=task) if self.known else None

    def observed(self, ref: attempts.AttemptRef, observed: model.Observed) -> None:
        self.said.append(("observed", observed.reason, observed.message))

    def started(self, ref: attempts.AttemptRef, *, at: float, container: str = "") -> None:
        self.said.append(("started", at))

    async def finished(self, ref: attempts.AttemptRef, outcome: attempts.Outcome) -> None:
        self.said.append(("finished", outcome.ending, outcome.reason, outcome.result))

    def log(self, ref: attempts.AttemptRef, *, offset: int, data: bytes) -> None:
        self.said.append(("log", offset, data))

    def discard_log(self, ref: attempts.AttemptRef) -> None:
        self.said.append("discard")

    @property
    def endings(self) -> list[Any]:
        """How it ended, each time that this was said."""
        return [said[1] for said in self.said if said[0] == "finished"]


class World:
    def __init__(self, executor: Scripted | None = None) -> None:
        self.executor = executor or Scripted()
        self.hub = Hub()
        self.queue = queue.WorkQueue()
        self.driver = reconciler.AttemptReconciler(registry.Registry([self.executor]), self.queue)

    async def start(self) -> None:
        await self.driver.start(self.hub)

    def run(self) -> None:
        cluster = records.Cluster(("", "executor/scripted"))
        spec = api_task.TaskSpec()
        task = records.Task(1, TASK, 1, "ns", "t", cluster, True, spec, inputs=None)
        self.hub.receive(instructions.RunAttempt(1, REF, task))

    def stop(self) -> None:
        self.hub.receive(instructions.StopAttempt(1, REF, 3.0, R.KILLED))

    async def passes(self, *script: port.Observation | Exception) -> float | None:
        """One pass for each; what the last one gives."""
        self.executor.script += script
        again = None
        for _ in script:
            again = await self.driver.reconcile(KEY)
        return again


@pytest.fixture
async def world() -> World:
    made = World()
    await made.start()
    return made


async def test_an_attempt_is_ensured_once_then_observed(world: World) -> None:
    world.run()
    assert len(world.queue) == 1
    await world.passes(STAGING, STAGING, RUNNING, RUNNING, over())
    assert world.executor.calls == [
        "ensure", "observe", "observe", "observe", "observe", "result", "release",
    ]  # fmt: skip
    assert [said for said in world.hub.said if said[0] == "started"] == [("started", 7.0)]
    assert world.hub.endings == [E.SUCCEEDED]
    assert await world.driver.reconcile(KEY) is None  # it is forgotten
    assert world.executor.calls[-2:] == ["release", "leftover known"]


async def test_uncreated_attempt_is_ensured_again_after_the_given_delay(world: World) -> None:
    world.run()
    assert await world.passes(NOT_CREATED) == 5.0
    await world.passes(STAGING, STAGING)
    assert world.executor.calls == ["ensure", "ensure", "observe"]


async def test_polled_attempt_is_observed_but_not_ensured_again(world: World) -> None:
    world.run()
    assert await world.passes(POLLED, POLLED) == 2.0
    assert world.executor.calls == ["ensure", "observe"]


async def test_kube_error_is_shown_and_retried(world: World) -> None:
    world.run()
    with pytest.raises(errors.Unavailable):  # the controller's loop backs off
        await world.passes(AWAY)
    assert world.hub.said == [("observed", R.EXECUTOR_UNAVAILABLE, "connection refused")]
    await world.passes(STAGING)
    assert world.executor.calls == ["ensure", "ensure"]
    assert world.hub.said[-1] == ("observed", R.STARTING, "")


async def test_unexpected_exception_is_shown_and_retried(world: World) -> None:
    world.run()
    with pytest.raises(KeyError):  # the controller's loop logs it and backs off
        await world.passes(KeyError("phase"))
    text = "the manager tries again after KeyError: 'phase'"
    assert world.hub.said == [("observed", R.INTERNAL_ERROR, text)]
    await world.passes(STAGING)
    assert world.hub.said[-1] == ("observed", R.STARTING, "")


async def test_long_messages_are_cut_at_the_end(world: World) -> None:
    world.run()
    long = msgspec.structs.replace(STAGING, message="container c79 of Pod p: " + 40_000 * "x")
    await world.passes(long)
    with pytest.raises(ValueError, match="xxx"):
        await world.passes(ValueError(40_000 * "x"))
    shown = [message for _, _, message in world.hub.said]
    assert [len(message) for message in shown] == [4096, 4096]
    assert [message.split()[1] for message in shown] == ["c79", "manager"]


async def test_conflict_is_retried_without_being_shown(world: World) -> None:
    world.run()
    world.stop()
    with pytest.raises(errors.Conflict):
        await world.passes(errors.Conflict(409, "Conflict", "it has changed"))
    assert world.hub.said == []


async def test_attempt_stopped_before_creation_is_not_created(world: World) -> None:
    world.run()
    world.stop()
    await world.passes(over(E.STOPPED))
    assert world.executor.calls == ["stop 3 Killed", "release"]
    assert world.hub.endings == [E.STOPPED]


async def test_stop_is_repeated_until_the_end_is_confirmed(world: World) -> None:
    world.run()
    await world.passes(RUNNING)
    world.stop()
    await world.passes(RUNNING, RUNNING, over(E.STOPPED))
    assert world.executor.calls[1:] == [*3 * ["stop 3 Killed"], "release"]


async def test_stop_of_an_unknown_attempt_is_ignored(world: World) -> None:
    world.stop()
    assert await world.driver.reconcile(KEY) is None
    assert world.executor.calls == ["leftover known"]


async def test_the_same_instruction_again_changes_nothing(world: World) -> None:
    world.run()
    await world.passes(RUNNING)
    world.run()
    await world.passes(RUNNING)
    assert world.executor.calls == ["ensure", "observe"]


async def test_output_and_result_are_stored_before_the_end_is_reported(world: World) -> None:
    world.run()
    world.executor.output = [b"one\n", b"two\n"]
    world.executor.value = attempts.Payload(attempts.JSON, b"1")
    await world.passes(over())
    assert world.hub.said == [
        ("log", 0, b"one\n"),
        ("log", 4, b"two\n"),
        ("observed", R.SUCCEEDED, ""),
        ("finished", E.SUCCEEDED, R.SUCCEEDED, world.executor.value),
    ]


@pytest.mark.parametrize("error", [AWAY, KeyError("containers")])
async def test_unreadable_output_does_not_affect_the_outcome(
    world: World, error: Exception
) -> None:
    world.run()
    world.executor.output = [b"one\n", error]
    await world.passes(over())
    assert world.hub.endings == [E.SUCCEEDED]


async def test_unreadable_result_fails_the_attempt(world: World) -> None:
    world.run()
    world.executor.value = port.ResultError(R.RESULT_TOO_LARGE, "70 KiB")
    await world.passes(over())
    assert world.hub.said[-1] == ("finished", E.FAILED, R.RESULT_TOO_LARGE, None)


async def test_result_that_is_not_available_yet_is_awaited(world: World) -> None:
    world.run()
    world.executor.value = AWAY
    with pytest.raises(errors.Unavailable):
        await world.passes(over())
    assert world.hub.said[-1] == ("observed", R.EXECUTOR_UNAVAILABLE, "connection refused")
    world.executor.value = None
    await world.passes(over())
    assert world.hub.endings == [E.SUCCEEDED]


async def test_only_a_success_has_a_result(world: World) -> None:
    world.run()
    await world.passes(over(E.FAILED))
    assert world.executor.calls == ["ensure", "release"]


async def test_end_is_reported_once_and_release_is_retried(world: World) -> None:
    world.run()
    world.executor.release_error = AWAY
    with pytest.raises(errors.Unavailable):
        await world.passes(over())
    said = list(world.hub.said)
    with pytest.raises(errors.Unavailable):
        await world.passes(over())
    world.executor.release_error = None
    await world.passes(over(E.LOST))  # gone by now, which changes nothing
    assert world.hub.said == said
    assert world.hub.endings == [E.SUCCEEDED]
    assert world.executor.calls.count("release") == 3


LEFT = port.Attempt(ref=REF, namespace="ns", name="t", owner_uid="", spec=api_task.TaskSpec())


async def test_leftover_of_a_settled_attempt_is_ended_and_released(world: World) -> None:
    world.executor.left = LEFT
    world.executor.wake(REF)
    assert len(world.queue) == 1
    await world.passes(RUNNING, over(E.STOPPED))
    assert world.executor.calls == ["leftover known", *2 * ["stop 1 Replaced"], "release"]
    assert world.hub.said == []


async def test_object_that_appears_during_the_release_is_ended(world: World) -> None:
    """A request of the manager before arrives after the last look, and before the release."""
    world.run()
    release = world.executor.release

    async def meanwhile(attempt: port.Attempt) -> None:
        await release(attempt)
        world.executor.left = attempt
        world.executor.wake(REF)

    world.executor.release = meanwhile  # type: ignore[method-assign]
    await world.passes(over())
    world.executor.release = release  # type: ignore[method-assign]
    taken = await world.queue.get()
    assert taken == KEY
    world.queue.done(KEY)
    await world.passes(RUNNING, over(E.STOPPED))
    assert world.executor.calls[-3:] == [*2 * ["stop 1 Replaced"], "release"]
    assert world.hub.endings == [E.SUCCEEDED]


async def test_unknown_attempt_is_ignored(world: World) -> None:
    world.executor.left = LEFT
    world.hub.known = False
    world.executor.wake(REF)
    assert world.executor.calls == ["leftover known", "leftover unknown"]
    assert len(world.queue) == 0


async def test_journal_is_not_read_without_leftovers(world: World) -> None:
    world.hub.view = lambda task: pytest.fail("it was read")  # type: ignore[method-assign]
    world.executor.wake(REF)
    assert world.executor.calls == ["leftover known"]


async def test_change_before_the_dispatcher_responds_is_handled_afterwards() -> None:
    world = World()
    world.executor.watch = lambda wake: wake(REF)  # type: ignore[method-assign] # as a list does
    await world.start()
    assert world.executor.calls == ["leftover known"]


async def test_change_of_an_attempt_queues_a_pass(world: World) -> None:
    world.run()
    taken = await world.queue.get()
    assert taken == KEY
    world.queue.done(KEY)
    world.executor.wake(REF)
    assert len(world.queue) == 1


class InWorkers(Scripted):
    """One whose attempts workers ask for."""

    in_workers = True


def asked(world: World) -> None:
    cluster = records.Cluster(("ns", "c"))
    task = records.Task(1, TASK, 1, "ns", "t", cluster, True, api_task.TaskSpec(), inputs=None)
    order = instructions.RunContainer(1, REF, task, "w-0", "u", (("A", "1"),))
    world.hub.receive(order)


async def test_start_is_reported_again_to_a_worker_that_asks_again() -> None:
    world = World(InWorkers())
    await world.start()
    asked(world)
    await world.passes(RUNNING, RUNNING)
    asked(world)
    await world.passes(RUNNING)
    assert [said for said in world.hub.said if said[0] == "started"] == 2 * [("started", 7.0)]
    assert world.executor.calls == ["ensure", "observe", "observe"]


async def test_attempt_held_by_the_dispatcher_is_not_a_leftover() -> None:
    world = World(InWorkers())
    await world.start()
    world.hub.held = True
    world.executor.wake(REF)
    assert world.executor.calls == []
    world.hub.held = False
    world.executor.wake(REF)
    assert world.executor.calls == ["leftover known"]
