"""What an executor is: something that runs attempts, adopts them by name, and proves their end.

Implemented by the packages beside this module, used by `controllers.attempts`. Everything here may
be repeated at any time, also by another manager after a crash: an attempt is created under a name
that follows from its identity, so that it is found again and never created twice.

States are those of a task (docs/reference/executors.md): STAGING until it runs, RUNNING, OVER. Why
it is there is a `reason` for programs and a `message` for people.
"""

from collections.abc import AsyncGenerator, Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec

from kilnwork.api import attempts, task


class Phase(StrEnum):
    """How far an attempt is."""

    STAGING = "Staging"
    RUNNING = "Running"
    OVER = "Over"


class WorkerPod(msgspec.Struct, frozen=True, kw_only=True):
    """The Pod of a worker in which an attempt is to run. `environment`: what it gets besides the
    task's own."""

    pod: str
    pod_uid: str
    environment: tuple[tuple[str, str], ...] = ()


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt to be run.

    `name`: of the task, for people; `owner_uid`: of the Task object, "" for a spawned task, which
    has none. `inputs`: a JSON object by input name. `began`: the journal knows that it has started,
    so that it may be adopted but never created. `place`: where it runs, if a worker asked for it.
    """

    ref: attempts.AttemptRef
    namespace: str
    name: str
    owner_uid: str
    spec: task.TaskSpec
    inputs: bytes | None = None
    began: bool = False
    place: WorkerPod | None = None


class Stop(msgspec.Struct, frozen=True):
    """An attempt is to end, for `reason`; `grace_s`: seconds between SIGTERM and SIGKILL."""

    grace_s: float
    reason: str


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What is seen of an attempt. `outcome` is there if and only if it is over.

    `started`: wall clock, seconds; None while it has not. `check_s`: look again after so many
    seconds even if nothing wakes us; None where a watch does. `exists`: False while nothing of it
    has been created, so that `ensure` is to be called again. `container`: id of the one container
    that it is, "" where that is not known or not one.
    """

    phase: Phase
    reason: str
    message: str = ""
    node: str = ""
    started: float | None = None
    outcome: attempts.Outcome | None = None
    check_s: float | None = None
    exists: bool = True
    container: str = ""


class Wake(Protocol):
    """Something has changed about an attempt: observe it, at once or within `after_s`."""

    def __call__(self, ref: attempts.AttemptRef, *, after_s: float = 0.0) -> None: ...


def ignore_wake(ref: attempts.AttemptRef, *, after_s: float = 0.0) -> None:
    """Do nothing: the `Wake` of an executor that is not watched yet."""


class Executor(Protocol):
    """Runs attempts of tasks whose spec names it. Raises `KubeError` for what may pass by itself:
    the same is tried again later, and the task says why it waits."""

    name: str
    """As `TaskSpec.executor` has it."""

    async def ensure(self, attempt: Attempt) -> Observation:
        """Create it unless it is there; adopt what we created before; never start it twice."""
        ...

    async def observe(self, attempt: Attempt) -> Observation:
        """What is seen of an attempt that `ensure` has returned."""
        ...

    async def stop(self, attempt: Attempt, how: Stop) -> Observation:
        """Begin to end it, or go on; OVER is proof that nothing of it runs or ever will."""
        ...

    async def result(self, attempt: Attempt) -> attempts.Payload | None:
        """The result of an attempt that succeeded; None if it has none. Raises `ResultError`."""
        ...

    async def release(self, attempt: Attempt) -> None:
        """Its outcome is stored: nothing needs to be kept for our sake any more."""
        ...


@runtime_checkable
class RunsInWorkers(Protocol):
    """Ability: it runs attempts in the Pods of workers, which ask for it, and report their ends."""

    in_workers: bool


@runtime_checkable
class WatchesAttempts(Protocol):
    """Ability: it says by itself of which attempts there is something, so that what a manager left
    behind is found by the next one, and that nothing need be polled."""

    def watch(self, wake: Wake) -> None:
        """Call `wake` for every attempt of which there is something, and when that changes."""
        ...

    def leftover(self, ref: attempts.AttemptRef, *, known: bool) -> Attempt | None:
        """Return what exists of an attempt that is not wanted any more: enough to stop and release
        it; None when nothing is, or it is released already.

        `known`: the journal has its task. If not, it may be another manager's, and only what is
        being deleted is released.
        """
        ...


class AttemptOutput(msgspec.Struct, frozen=True):
    """One output of an attempt: that of one life of one of its containers.

    `name`: what its lines begin with, "" where the attempt has one container. `source`: the
    container. `life`: from 0; it rises when the container is started again. `is_over`: it prints
    nothing more.
    """

    name: str
    source: str
    life: int = 0
    is_over: bool = False


class LogRange(msgspec.Struct, frozen=True, kw_only=True):
    """How an output is read. `skip`: bytes that are known. `follow`: go on until it ends.
    `max_bytes`: no more than these after `skip`; None: all."""

    skip: int = 0
    follow: bool = False
    max_bytes: int | None = None


@runtime_checkable
class ReadsLogs(Protocol):
    """Ability: what an attempt prints can be read while it runs, and until it is released."""

    async def outputs(self, attempt: Attempt) -> Sequence[AttemptOutput]:
        """Return the outputs of the containers that have begun. Raises `KubeError`."""
        ...

    def logs(
        self, attempt: Attempt, output: AttemptOutput, how: LogRange
    ) -> AsyncGenerator[bytes, None]:
        """Yield one output. Raises `KubeError`."""
        ...


class ResultError(Exception):
    """A result cannot be had. `reason`: one of `api.reasons`. `is_loss`: the task is not to blame,
    so that it may run again."""

    def __init__(self, reason: str, message: str, *, is_loss: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.is_loss = is_loss
