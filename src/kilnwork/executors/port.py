"""The port of executors: an executor runs attempts, adopts them by name, and proves their end.

Implemented by the packages beside this module, used by `controllers.attempts`. Every method may be
repeated at any time, also by another manager after a crash: an attempt is created under a name that
is derived from its identity, so that it is found again and never created twice.

States are those of a task (docs/reference/executors.md): STAGING until it runs, RUNNING, OVER. Each
comes with a `reason` for programs and a `message` for people.
"""

from collections.abc import AsyncGenerator, Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec

from kilnwork.api import attempts, task


class Phase(StrEnum):
    """The progress of an attempt."""

    STAGING = "Staging"
    RUNNING = "Running"
    OVER = "Over"


class WorkerPod(msgspec.Struct, frozen=True, kw_only=True):
    """The worker's Pod in which an attempt is to run. `environment`: variables besides the task's
    own.
    """

    pod: str
    pod_uid: str
    environment: tuple[tuple[str, str], ...] = ()


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt to be run.

    `name`: of the task, for people; `owner_uid`: of the Task object, "" for a spawned task, which
    has none. `inputs`: a JSON object by input name. `began`: the journal has recorded its start, so
    that it may be adopted but never created. `place`: where it runs, if a worker requested it.
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
    """An order that an attempt ends, for `reason`; `grace_s`: seconds between SIGTERM and
    SIGKILL.
    """

    grace_s: float
    reason: str


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """The observed state of an attempt. `outcome` is set if and only if it has ended.

    `started`: wall clock, seconds; None if it has not started. `check_s`: observe again after this
    many seconds even without a wake; None if a watch reports changes. `exists`: False while nothing
    of it has been created, so that `ensure` must be called again. `container`: id of the single
    container of the attempt, "" if that is unknown or there are several.
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
    """A callback for changes of an attempt: observe it at once, or within `after_s`."""

    def __call__(self, ref: attempts.AttemptRef, *, after_s: float = 0.0) -> None: ...


def ignore_wake(ref: attempts.AttemptRef, *, after_s: float = 0.0) -> None:
    """Do nothing: the `Wake` of an executor that is not watched yet."""


class Executor(Protocol):
    """Runs attempts of tasks whose spec names it.

    Raises `KubeError` for errors that may be temporary: the same call is repeated later, and the
    task shows why it waits.
    """

    name: str
    """As `TaskSpec.executor` has it."""

    async def ensure(self, attempt: Attempt) -> Observation:
        """Create the attempt unless it exists; adopt what was created before; never start it
        twice.
        """
        ...

    async def observe(self, attempt: Attempt) -> Observation:
        """Return the observation of an attempt that `ensure` has returned."""
        ...

    async def stop(self, attempt: Attempt, how: Stop) -> Observation:
        """Begin or continue to end the attempt; OVER is proof that nothing of it runs or ever
        will.
        """
        ...

    async def result(self, attempt: Attempt) -> attempts.Payload | None:
        """Return the result of an attempt that succeeded; None if it has none. Raises
        `ResultError`.
        """
        ...

    async def release(self, attempt: Attempt) -> None:
        """Release what was kept for this attempt: its outcome is stored."""
        ...


@runtime_checkable
class RunsInWorkers(Protocol):
    """Optional ability: runs attempts in the Pods of workers, which request it and report their
    ends.
    """

    in_workers: bool


@runtime_checkable
class WatchesAttempts(Protocol):
    """Optional ability: reports which attempts exist and when they change.

    So a manager finds what an earlier one has left behind, and nothing has to be polled.
    """

    def watch(self, wake: Wake) -> None:
        """Call `wake` for every existing attempt, and whenever one changes."""
        ...

    def leftover(self, ref: attempts.AttemptRef, *, known: bool) -> Attempt | None:
        """Return what exists of an attempt that is no longer wanted: enough to stop and release it.

        None if nothing exists, or it is released already. `known`: the journal has its task. If
        not, it may belong to another manager, and only what is being deleted is released.
        """
        ...


class AttemptOutput(msgspec.Struct, frozen=True):
    """One output of an attempt: that of one run of one of its containers.

    `name`: prefix of its lines, "" if the attempt has one container. `source`: the container.
    `life`: from 0; increases when the container is restarted. `is_over`: nothing more will be
    printed.
    """

    name: str
    source: str
    life: int = 0
    is_over: bool = False


class LogRange(msgspec.Struct, frozen=True, kw_only=True):
    """The range of an output to read.

    `skip`: bytes to leave out at the beginning. `follow`: continue until the output ends.
    `max_bytes`: at most this many after `skip`; None: all.
    """

    skip: int = 0
    follow: bool = False
    max_bytes: int | None = None


@runtime_checkable
class ReadsLogs(Protocol):
    """Optional ability: an attempt's output can be read while it runs, and until it is released."""

    async def outputs(self, attempt: Attempt) -> Sequence[AttemptOutput]:
        """Return the outputs of the containers that have started. Raises `KubeError`."""
        ...

    def logs(
        self, attempt: Attempt, output: AttemptOutput, how: LogRange
    ) -> AsyncGenerator[bytes, None]:
        """Yield one output. Raises `KubeError`."""
        ...


class ResultError(Exception):
    """A result cannot be read. `reason`: one of `api.reasons`.

    `is_loss`: the task is not at fault, so that it may run again.
    """

    def __init__(self, reason: str, message: str, *, is_loss: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.is_loss = is_loss
