"""Kind Task: one unit of work on a TaskCluster, with inputs, attempts and one result.

The spec is also what the journal keeps and what the channel carries for spawned tasks: one model.
Field names and meaning follow the dynamic batch prototype (clusterName, image, command, args,
inputObject); the rest is Kubernetes' usual vocabulary.
"""

from enum import StrEnum
from typing import Annotated, Any

import msgspec

from kilnwork.api import meta

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
LONGEST_S = 1_000_000_000
"""Longest time anybody may ask for: its end still fits into timestamps and SQL."""

MAX_RUN = 2**31 - 1
"""Highest number of a run: it fits into frames and SQL."""

EnvName = Annotated[str, msgspec.Meta(min_length=1, pattern=r"^[^=\x00]+$")]


class State(StrEnum):
    """Where a task is. Success, Failed and Killed of a run never change."""

    PENDING = "Pending"
    STAGING = "Staging"
    RUNNING = "Running"
    SUCCESS = "Success"
    FAILED = "Failed"
    KILLING = "Killing"
    KILLED = "Killed"

    @property
    def final(self) -> bool:
        """True when this run will not change any more."""
        return self in _FINAL


_FINAL = frozenset({State.SUCCESS, State.FAILED, State.KILLED})


class Wire(
    msgspec.Struct,
    frozen=True,
    rename="camel",
    omit_defaults=True,
    kw_only=True,
    forbid_unknown_fields=True,
):
    """Base of everything a user writes: camelCase, unknown fields refused."""


class EnvVar(Wire, frozen=True):
    """One environment variable of a command; only literal values."""

    name: EnvName
    value: str = ""


class TaskInput(Wire, frozen=True):
    """One named input: a TaskObject, or the result of another Task of this namespace.

    `path` (RFC 9535 JSONPath) picks a part; the first match is taken.
    """

    name: Name
    object: Name | None = None
    task: Name | None = None
    path: str | None = None


class Retry(Wire, frozen=True):
    """When a failed or lost attempt is followed by another.

    `maxAttempts` counts failures of user code (default 1: a retry is asked for, never assumed).
    `maxLosses` (default 3) counts losses that are not its fault: worker, node, a foreign SIGKILL.
    `delaySeconds`: before the second attempt; before attempt n it is times `factor` ** (n - 2).
    `factor`: by which each delay is longer than the one before. `maxDelaySeconds`: the longest
    delay. `jitter`: each delay is spread by ± this fraction. `on` narrows which failures are
    retried: `exit:N`, `timeout`; empty means all. Exit 75 (EX_TEMPFAIL, sysexits.h)
    always asks for a retry.
    """

    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    max_losses: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 3
    delay_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 1.0
    factor: Annotated[float, msgspec.Meta(ge=1, le=100)] = 2.0
    max_delay_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 60.0
    jitter: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.2
    on: tuple[Annotated[str, msgspec.Meta(pattern=r"^(exit:[0-9]{1,3}|timeout)$")], ...] = ()


class Timeouts(Wire, frozen=True):
    """Deadlines in seconds, up to 31 years; None means none.

    `pendingSeconds`: from becoming pending to its first start. `runningSeconds`: per attempt.
    `totalSeconds`: the whole run, waiting included. `killGraceSeconds`: between SIGTERM and SIGKILL
    (default 30, as terminationGracePeriodSeconds of a Pod).
    """

    pending_seconds: Annotated[float, msgspec.Meta(gt=0, le=LONGEST_S)] | None = None
    running_seconds: Annotated[float, msgspec.Meta(gt=0, le=LONGEST_S)] | None = None
    total_seconds: Annotated[float, msgspec.Meta(gt=0, le=LONGEST_S)] | None = None
    kill_grace_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 30.0


class Call(Wire, frozen=True):
    """A Python call, run in a slot of the worker instead of a command.

    `function`: `package.module:name`, imported by the worker unless `code` (digest of the blob that
    holds the function, `sha256:…`) ships it. `args`, `kwargs`: JSON, for Task objects; a submitted
    call has its arguments beside its spec. `environment`: digest of the files shipped with it.
    `returns`: how many results a tuple of them is taken apart into. `stream`: it is a generator.
    `acceptFailures`: run even if an input failed, and receive the error in its place.
    """

    function: Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
    code: str | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    environment: str | None = None
    returns: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    stream: bool = False
    accept_failures: bool = False


class TaskSpec(Wire, frozen=True):
    """What to run and how long to try: a `command`, or a Python `call`.

    `clusterName`: TaskCluster of this namespace (default `default`). `image` is a label on a local
    node, where programs come from the host. `inputObject`: a TaskObject that must exist first; as
    an input its name is `input`. `outputType`: `json` (default; the output file must parse) or
    `bytes`. `outputObject`: TaskObject that receives the JSON result. `run` may only rise: it
    starts the task anew. `killTimestamp` (RFC 3339): stop it at that time, at once if past.
    """

    cluster_name: Name = "default"
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    call: Call | None = None
    env: tuple[EnvVar, ...] = ()
    input_object: Name | None = None
    inputs: tuple[TaskInput, ...] = ()
    output_object: Name | None = None
    output_type: Annotated[str, msgspec.Meta(pattern="^(json|bytes)$")] = "json"
    priority: Annotated[int, msgspec.Meta(ge=-1_000_000, le=1_000_000)] = 0
    retry: Retry = Retry()
    timeouts: Timeouts = Timeouts()
    run: Annotated[int, msgspec.Meta(ge=1, le=MAX_RUN)] = 1
    kill_timestamp: str | None = None
    suspend: bool = False
    ttl_seconds_after_finished: Annotated[int, msgspec.Meta(ge=0, le=LONGEST_S)] | None = None


class Result(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """A task's result; `value` only when it is JSON and small enough for the status."""

    value: Any = msgspec.UNSET
    media_type: str = "application/json"
    size_bytes: int = 0
    digest: str = ""


class ChildCounts(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """How many tasks this one has spawned, by where they are; killed ones count as failed."""

    total: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0


class TaskStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The journal's truth about a task, as last written. `reason` is never empty while it waits."""

    state: str = ""
    reason: str = ""
    message: str = ""
    run: int = 0
    attempts: int = 0
    losses: int = 0
    pod_name: str = ""
    node_name: str = ""
    exit_code: int | None = None
    result: Result | None = None
    output_object: str = ""
    start_time: str | None = None
    finish_time: str | None = None
    children: ChildCounts | None = None
    observed_generation: int = 0
    conditions: tuple[meta.Condition, ...] = ()


class Task(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One unit of work."""

    metadata: meta.ObjectMeta
    spec: TaskSpec = TaskSpec()
    status: TaskStatus = TaskStatus()
    api_version: str = "kilnwork.dev/v1alpha1"
    kind: str = "Task"
