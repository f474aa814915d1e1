"""The part of a manager that runs attempts of executors, on a real hub and journal, with lives that
can be cut off.

For the executor contract: `World` has one executor under test (`Subject`), whose objects and
programs outlive the manager. A life can be cut off at any of its steps (before or after a request,
a report, a call of the executor), as by kill -9: nothing of it goes on and nothing is cleaned up.
"""

import abc
import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.controllers import ports
from kilnwork.controllers.attempts import reconciler
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import hub as hubs
from kilnwork.dispatch.journal.sqlite import journal
from kilnwork.dispatch.machine import instructions
from kilnwork.executors import port, registry
from kilnwork.kit import clock, coroutines, ids, processes
from kilnwork.kube import controller, queue
from support import verifiers, waiting

NS = "default"
SOCKET = "c.sock"
LEASE_S = 15.0
"""Time after the grace period of a kill until the kill counts as unconfirmed."""


class Steps:
    """The steps of one life, and the step after which it is cut off; None for never."""

    def __init__(self, last: int | None) -> None:
        self.names: list[str] = []
        self.cut = asyncio.Event()
        self._last = last

    def count_step(self, name: str) -> bool:
        """Count a step; return False if the life is over."""
        if not self.cut.is_set():
            self.names.append(name)
            if len(self.names) == self._last:
                self.cut.set()
        return not self.cut.is_set()

    async def reach(self, name: str) -> None:
        """Count a step; never return if the life is over."""
        if not self.count_step(name):
            await asyncio.Event().wait()


class Life:
    """What a manager creates at each start: an executor and the services that it needs.

    `executor` is None if the executor is not part of the manager and connects by itself.
    """

    def __init__(
        self, executor: port.Executor | None, *services: Coroutine[Any, Any, None]
    ) -> None:
        self.executor = executor
        self.services = services


class Subject(abc.ABC):
    """An executor under test, and the ways in which others may change its objects."""

    creates: str
    """Name of the step that creates an object."""
    deletes: str
    """Name of the step that deletes an object; "" if the executor deletes nothing itself."""
    releases: str
    """Name of the step that releases an object once its outcome is stored; "" if there is none."""

    failed = "NonZeroExit"
    """Reason of a task whose program failed."""

    too_large_reason = "ResultTooLarge"
    """Reason of a task whose result is too large."""

    knows_programs = True
    """Whether it reports exit codes and nodes."""

    options = hubs.HubOptions(lease_s=LEASE_S)
    """Of the dispatcher."""

    graceful_counts = True
    """Whether it counts against `maxLosses` that an object is deleted with a grace."""

    without = ("Pending", "ExecutorUnavailable", "no executor pod")
    """State, reason and message of a task in a manager that has no such executor."""

    waits = ("Staging", "ExecutorUnavailable", "by the test")
    """The same while its API does not respond."""

    unheard = ("Running", "ExecutorUnavailable")
    """State and reason of one that runs then."""

    hub: hubs.Hub | None = None
    """The dispatcher of the moment."""

    async def joined(self, hub: hubs.Hub) -> None:
        """Called when a dispatcher has started."""
        self.hub = hub

    def ended(self) -> None:
        """Called when the dispatcher is gone."""
        self.hub = None

    async def reports_ends(self) -> bool:
        """Return whether the ends of all programs can be observed now."""
        return True

    def place(self) -> port.WorkerPod | None:
        """Return where attempts are placed, if the executor needs that."""
        return None

    @abc.abstractmethod
    def spec(self, script: str, **more: Any) -> api_task.TaskSpec:
        """Return the spec of a task that runs a shell script; `more` are fields of the spec."""

    def too_large(self, script: str, **more: Any) -> api_task.TaskSpec:
        """Return the spec of a task that runs a shell script and has an oversized result."""
        raise NotImplementedError("results of this executor have no bound here")

    @abc.abstractmethod
    def life(self, steps: Steps) -> Life:
        """Return the executor of a new manager. Its requests count as steps."""

    @abc.abstractmethod
    async def objects(self) -> list[str]:
        """Return the names of all objects that exist for attempts."""

    @abc.abstractmethod
    async def held(self) -> list[str]:
        """Return the names of objects that the executor keeps from being removed."""

    @abc.abstractmethod
    async def remove(self, name: str, *, by_force: bool) -> None:
        """Delete an object as another client would; `by_force` also removes its finalizers."""

    @abc.abstractmethod
    async def occupy(self, attempt: port.Attempt) -> str:
        """Create a foreign object of the name that an attempt needs; return the name."""

    async def create_late(self, attempt: port.Attempt) -> None:
        """Let a request of a former manager arrive now."""
        raise NotImplementedError("nothing but the executor itself makes attempts")

    @abc.abstractmethod
    async def is_unchanged(self, name: str) -> bool:
        """Return whether the foreign object is unchanged."""

    @abc.abstractmethod
    async def absent(self, *, now: bool) -> None:
        """Make its API unavailable, or available again."""


class SteppingLink:
    """A link of the hub whose reports are steps."""

    def __init__(self, link: ports.ExecutorLink, steps: Steps) -> None:
        self._link = link
        self._steps = steps

    def observed(self, ref: attempts.AttemptRef, observed: model.Observed) -> None:
        if not self._steps.cut.is_set():
            self._link.observed(ref, observed)

    def started(self, ref: attempts.AttemptRef, *, at: float, container: str = "") -> None:
        if self._steps.count_step("before started"):
            self._link.started(ref, at=at, container=container)
            self._steps.count_step("after started")

    async def finished(self, ref: attempts.AttemptRef, outcome: attempts.Outcome) -> None:
        await self._steps.reach("before finished")
        await self._link.finished(ref, outcome)
        await self._steps.reach("after finished")

    def log(self, ref: attempts.AttemptRef, *, offset: int, data: bytes) -> None:
        self._link.log(ref, offset=offset, data=data)

    def discard_log(self, ref: attempts.AttemptRef) -> None:
        self._link.discard_log(ref)


Receive = Callable[[instructions.ForExecutor], None]


def _noting(stops: set[ids.TaskId], receive: Receive) -> Receive:
    """Return a `receive` that also records the tasks whose attempts are to be stopped."""

    def noted(instruction: instructions.ForExecutor) -> None:
        receive(instruction)
        if isinstance(instruction, instructions.StopAttempt):
            stops.add(instruction.ref.task)

    return noted


class SteppingContainers(SteppingLink):
    """A stepping link for attempts that are containers in the Pods of workers."""

    def __init__(self, link: ports.Containers, steps: Steps, stops: set[ids.TaskId]) -> None:
        super().__init__(link, steps)
        self.kill = link.kill
        self._join = link.join
        self._stops = stops

    def join(self, receive: Receive) -> None:
        self._join(_noting(self._stops, receive))


class SteppingHub:
    """The part of the hub that the driver of executors uses."""

    def __init__(self, hub: hubs.Hub, steps: Steps) -> None:
        self._hub = hub
        self._steps = steps
        self.stops: set[ids.TaskId] = set()
        """Tasks whose attempts the driver has been instructed to stop."""
        self.view = hub.view
        self.holds = hub.holds
        self.containers = SteppingContainers(hub.containers, steps, self.stops)

    async def join_executor(
        self,
        executor: str,
        *,
        capacity: int,
        receive: Receive,
    ) -> SteppingLink:
        receive = _noting(self.stops, receive)
        link = await self._hub.join_executor(executor, capacity=capacity, receive=receive)
        return SteppingLink(link, self._steps)


class World:
    """A journal, a subject, and the current life of the manager."""

    def __init__(self, directory: Path, subject: Subject) -> None:
        self.directory = directory
        self.subject = subject
        self.starts_file = directory / "starts"
        self.hub: hubs.Hub
        self.steps: Steps
        self.life: Life
        self._names = 0

    async def start(self, *, cut_at: int | None = None, steps: Steps | None = None) -> None:
        """Start a life that is cut off at step `cut_at`, or as `steps` defines."""
        self.steps = steps or Steps(cut_at)
        await self.start_without_executors()
        self.life = self.subject.life(self.steps)
        if self.life.executor is not None:
            await self._drive(self.life.executor)

    async def _drive(self, executor: port.Executor) -> None:
        work = queue.WorkQueue()
        drives = reconciler.AttemptReconciler(registry.Registry([executor]), work)
        self._services = coroutines.BackgroundWork("services")
        for service in self.life.services:
            self._services.start("service", service)
        self._driven = SteppingHub(self.hub, self.steps)
        await drives.start(self._driven)
        self._loop = controller.Controller("attempt", drives.reconcile, work, workers=8)
        await self._loop.start()

    async def start_without_executors(self) -> hubs.Hub:
        """Start a life of the hub alone."""
        self.hub = hubs.Hub(
            journal.Journal(self.directory / "journal.db"),
            clock=clock.SystemClock(),
            verifier=verifiers.OneSecret(),
            logs_dir=self.directory / "logs",
            entropy=ids.system_entropy(),
            options=self.subject.options,
        )
        await self.hub.start(self.directory / SOCKET)
        await self.subject.joined(self.hub)
        return self.hub

    async def end(self) -> None:
        """Cut off the life; the next `start` finds what is on disk."""
        self.steps.cut.set()
        if self.life.executor is not None:
            await self._loop.stop(grace_s=0.0)
            await self._services.stop()
        await self.end_hub()

    async def end_hub(self) -> None:
        """End a life of the hub alone."""
        await self.hub.stop()
        self.subject.ended()

    async def restart(self) -> None:
        """Cut off this life and start another one."""
        await self.end()
        await self.start()

    def script(self, then: str = "") -> str:
        """Return a script that reports its start to the test and then runs `then`."""
        identity = '"$KILN_TASK_ID/$KILN_RUN/$KILN_ATTEMPT"'
        return f"echo {identity} >> {self.starts_file}; {then}"

    async def submit(
        self,
        then: str = "",
        *,
        task: ids.TaskId | None = None,
        too_large: bool = False,
        **spec: Any,
    ) -> ids.TaskId:
        """Submit a spawned task of the subject's executor (no Task object owns it).

        `task` is its id, to submit it again. `too_large`: its result is oversized.
        """
        make = self.subject.too_large if too_large else self.subject.spec
        self._names += 1
        spec.setdefault("timeouts", api_task.Timeouts(kill_grace_seconds=2))
        submission = model.Submission(
            task=task or ids.new_task_id(),
            namespace=NS,
            name=f"t{self._names}",
            spec=make(self.script(then), **spec),
            declared=False,
        )
        await self.hub.submit(submission)
        return submission.task

    def attempt(self, task: ids.TaskId, number: int = 1, *, script: str = "true") -> port.Attempt:
        """Return that attempt of a task as the driver of executors would identify it."""
        view = self.view(task)
        ref = attempts.AttemptRef(task, view.run, number)
        return port.Attempt(
            ref=ref,
            namespace=NS,
            name=view.name,
            owner_uid="",
            spec=self.subject.spec(script),
            place=self.subject.place(),
        )

    async def kill(self, task: ids.TaskId) -> None:
        await self.hub.kill(task, reason="Killed")

    async def wait_until_stopping(self, task: ids.TaskId) -> None:
        """Wait until the driver of executors, or the hub if there is none, knows that a task is to
        be stopped.
        """

        def look() -> bool:
            if self.life.executor is None:
                return self.view(task).state in ("Killing", "Killed")
            return task in self._driven.stops

        await waiting.wait_until_async(look, what="the driver knows of the kill")

    def view(self, task: ids.TaskId) -> model.TaskView:
        view = self.hub.view(task)
        assert view is not None
        return view

    def starts(self, task: ids.TaskId) -> list[int]:
        """Return the attempt number of each start of a program of the task."""
        if not self.starts_file.exists():
            return []
        lines = self.starts_file.read_text().split()
        mine = [line.split("/") for line in lines if line.startswith(ids.task_text(task))]
        return [int(attempt) for _, _, attempt in mine]

    async def wait_until_started(self, task: ids.TaskId, attempt: int = 1) -> None:
        """Wait until the program of an attempt runs."""
        await waiting.wait_until_async(
            lambda: attempt in self.starts(task), what=f"attempt {attempt} has started"
        )

    async def wait_for_starts(self, task: ids.TaskId, count: int) -> None:
        """Wait until programs of a task were started so many times."""
        await waiting.wait_until_async(
            lambda: len(self.starts(task)) == count, what=f"it starts {count} times"
        )

    async def wait_until_ended(self, task: ids.TaskId) -> None:
        """Wait until no program of a task runs."""
        marker = f"KILN_TASK_ID={ids.task_text(task)}"
        await waiting.wait_until_async(
            lambda: not processes.find_members(None, marker=marker), what="its program has ended"
        )
        await waiting.wait_until_async(self.subject.reports_ends, what="its end can be seen")

    async def wait_for_state(
        self, task: ids.TaskId, state: str, reason: str | None = None
    ) -> model.TaskView:
        """Wait for a state, and a reason if one is given; return the view."""

        def look() -> model.TaskView | None:
            view = self.view(task)
            same = view.state == state and reason in (None, view.reason)
            return view if same else None

        try:
            view = await waiting.wait_until_async(look, what=f"{state}/{reason}")
        except AssertionError as error:
            view = self.view(task)
            details = f"{view.state}/{view.reason}: {view.message}; steps {self.steps.names}"
            raise AssertionError(f"{error}; it says {details}") from None
        assert isinstance(view, model.TaskView)
        return view

    async def wait_until_clean(self, *, but: Sequence[str] = ()) -> None:
        """Wait until no objects exist for any attempt (`but`: except these) and none is held."""

        async def empty() -> bool:
            return await self.subject.objects() == list(but) and not await self.subject.held()

        await waiting.wait_until_async(empty, what="nothing is left")


@contextlib.asynccontextmanager
async def running(directory: Path, subject: Subject) -> AsyncIterator[World]:
    """Start a world with its first life."""
    made = World(directory, subject)
    await made.start()
    try:
        yield made
    finally:
        await made.end()
