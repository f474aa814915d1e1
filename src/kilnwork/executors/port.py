"""The port of executors, which run attempts, adopt existing attempts by name, and prove their end.

Implemented by `pod`, `ephemeral`, `custom_resource` and `workflow`, used by `controllers.attempts`.
Every method may be repeated at any time, also by another manager after a crash: an attempt is
created under a name that is derived from its identity, so that it is found again and never created
twice.

States are those of a task (docs/reference/executors.md): STAGING until it runs, RUNNING, OVER. Each
state comes with a `reason` for programs and a `message` for people.
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
    """The Pod of a worker in which an attempt must run.

    `environment`: environment variables to set in addition to those of the task.
    """

    pod: str
    pod_uid: str
    environment: tuple[tuple[str, str], ...] = ()


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that an executor must run.

    `name`: the task's name, from which names of objects are derived; `owner_uid`: uid of the Task
    object, "" for a spawned task, which has none. `inputs`: a JSON object by input name. `began`:
    whether the journal has recorded its start, so that it may be adopted but never created.
    `place`: where it runs, if a worker requested it.
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
    """An order to end an attempt, for `reason`; `grace_s`: seconds between SIGTERM and SIGKILL."""

    grace_s: float
    reason: str


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """The observed state of an attempt. `outcome` is set if and only if it has ended.

    `started`: wall clock, seconds; None if it has not started. `check_s`: observe again after this
    many seconds even without a wake; None if a watch reports changes. `exists`: False while no
    object of the attempt has been created, so that `ensure` must be called again. `container`: id
    of the single container of the attempt, "" if that is unknown or there are several.
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
    """A callback for changes of an attempt, which must then be observed at once, or after `after_s`
    seconds.
    """

    def __call__(self, ref: attempts.AttemptRef, *, after_s: float = 0.0) -> None: ...


def ignore_wake(ref: attempts.AttemptRef, *, after_s: float = 0.0) -> None:
    """Do nothing; this is the `Wake` of an executor that is not watched yet."""


class Executor(Protocol):
    """An executor, which runs attempts of the tasks whose spec names it.

    Raises `KubeError` for errors that may be temporary: the same call is repeated later, and the
    task shows why it waits.
    """

    name: str
    """Name of the executor, as in `TaskSpec.executor`."""

    async def ensure(self, attempt: Attempt) -> Observation:
        """Create the attempt, or adopt it if it was created before; an attempt is never started
        twice.
        """
        ...

    async def observe(self, attempt: Attempt) -> Observation:
        """Observe an attempt and return its state. Call this only after `ensure` has returned."""
        ...

    async def stop(self, attempt: Attempt, how: Stop) -> Observation:
        """Begin or continue to end the attempt. Phase OVER is proof that no process of it runs or
        ever will run, unless `proof` of its outcome is False."""
        ...

    async def result(self, attempt: Attempt) -> attempts.Payload | None:
        """Return the result of an attempt that succeeded; None if it has none. Raises
        `ResultError`.
        """
        ...

    async def release(self, attempt: Attempt) -> None:
        """Release the objects that were kept for an attempt whose outcome is stored now."""
        ...


@runtime_checkable
class RunsInWorkers(Protocol):
    """Optional ability of an executor: it runs attempts in the Pods of workers, which request them
    and report their ends.
    """

    in_workers: bool


@runtime_checkable
class WatchesAttempts(Protocol):
    """Optional ability of an executor: it reports which attempts exist and when they change.

    A manager thereby finds attempts that an earlier manager has left behind, and need not poll.
    """

    def watch(self, wake: Wake) -> None:
        """Begin to call `wake` for every existing attempt, and whenever an attempt changes."""
        ...

    def leftover(self, ref: attempts.AttemptRef, *, known: bool) -> Attempt | None:
        """Return an attempt that exists but is no longer wanted, with enough data to stop and
        release it.

        None if the attempt does not exist, or is released already. `known`: whether the journal has
        its task. Otherwise the attempt may belong to another manager, and is released only if it is
        being deleted.
        """
        ...


class AttemptOutput(msgspec.Struct, frozen=True):
    """One output of an attempt: the output of one run of one of its containers.

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
    `max_bytes`: maximum number of bytes after `skip`; None for all.
    """

    skip: int = 0
    follow: bool = False
    max_bytes: int | None = None


@runtime_checkable
class ReadsLogs(Protocol):
    """Optional ability of an executor: the output of an attempt can be read while it runs, and
    until it is released.
    """

    async def outputs(self, attempt: Attempt) -> Sequence[AttemptOutput]:
        """Return the outputs of the attempt's containers that have started. Raises `KubeError`."""
        ...

    def logs(
        self, attempt: Attempt, output: AttemptOutput, how: LogRange
    ) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of one output of an attempt. Raises `KubeError`."""
        ...


class ResultError(Exception):
    """A result cannot be read. `reason`: one of `api.reasons`.

    `is_loss`: whether the task is not at fault, so that it may run again.
    """

    def __init__(self, reason: str, message: str, *, is_loss: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.is_loss = is_loss
