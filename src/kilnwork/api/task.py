"""Kind Task: one unit of work on a TaskCluster, with inputs, attempts and one result.

The spec is also what the journal keeps and what the channel carries for spawned tasks: one model.
Field names and meaning follow the dynamic batch prototype (clusterName, image, command, args,
inputObject); the rest is Kubernetes' usual vocabulary.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from kilnwork.api import function_task, http_task, meta, object_task, wire

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
MAX_S = 1_000_000_000
"""Longest time that a field accepts: its end still fits into timestamps and SQL."""

MAX_RUN = 2**31 - 1
"""Highest number of a run: it fits into frames and SQL."""

FORCE_ANNOTATION = "kilnwork.dev/force-run"
"""On a Task: the number of a run that may start although the run before it succeeded."""

RESUME_ANNOTATION = "kilnwork.dev/resume-run"
"""On a Task: the number of a run that goes on with the children of the run before it, of which only
those that failed run again."""

EnvName = Annotated[str, msgspec.Meta(min_length=1, pattern=r"^[^=\x00]+$")]


WORKER = "worker"
"""The executor of tasks that name no other: a slot of a warm worker."""

TEMPLATES = {
    "pod": "pod",
    "workflow": "workflow",
    "customResource": "custom_resource",
    "http": "http",
    "external": "external",
    "function": "function",
}
"""Fields of the spec in JSON that choose and describe an executor, which is called so; the value is
the name of its attribute. Requests to functions are carried out by executor `http`."""

OUTSIDE = frozenset({"http", "external"})
"""Executors that are processes of their own, any number of each."""

EXTERNAL = "external/"
"""Prefix of the names of users' own executors, each of which serves one namespace."""

WITHOUT_PROGRAM = frozenset(TEMPLATES) - {"pod"}
"""Executors whose tasks run no program of ours: their inputs are variables of the template, and
Python submits them as it submits calls."""

REQUESTS = frozenset({"http", "function"})
"""Fields of the spec by which a task is a request."""

_EXECUTOR_QUEUE = "executor/"
_PORTION = "#"


def executor_queue(executor: str, required: Mapping[str, str] = {}) -> str:
    """Return the name of the queue of an executor, or of its processes that have all the `required`
    labels; no TaskCluster can be called so."""
    labels = ",".join(f"{key}={value}" for key, value in sorted(required.items()))
    return f"{_EXECUTOR_QUEUE}{executor}{'?' if labels else ''}{labels}"


def queue_labels(name: str) -> tuple[str, dict[str, str]]:
    """Return the queue of all processes of an executor, and which labels those must have that serve
    the queue of that name."""
    everybody, _, labels = name.partition("?")
    pairs = (label.partition("=") for label in labels.split(",") if label)
    return everybody, {key: value for key, _, value in pairs}


def portion_queue(cluster: str, portion: int) -> str:
    """Return the name of the queue of tasks that need a portion of a SyncSet's data: workers of the
    TaskCluster serve it whose nodes hold that; no TaskCluster can be called so."""
    return f"{cluster}{_PORTION}{portion}"


def queue_portion(name: str) -> tuple[str, int] | None:
    """Return TaskCluster and portion of a queue, None if it is none of a portion."""
    cluster, mark, portion = name.partition(_PORTION)
    return (cluster, int(portion)) if mark and portion.isdecimal() else None


def queue_cluster(name: str) -> str:
    """Return the TaskCluster whose workers serve a queue."""
    return name.partition(_PORTION)[0]


def is_external_queue(name: str) -> bool:
    """Return whether a queue is that of a user's own executor, which serves one namespace."""
    return name.startswith(_EXECUTOR_QUEUE + EXTERNAL)


def is_executor_queue(name: str) -> bool:
    """Return whether a queue is an executor's; if not, it is that of a TaskCluster."""
    return name.startswith(_EXECUTOR_QUEUE)


class State(StrEnum):
    """The state of a task. Success, Failed and Killed of a run never change."""

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


Wire = wire.Wire


class KeyRef(Wire, frozen=True):
    """A key of an object in the task's namespace, whose value is text."""

    name: Name
    """Its name."""
    key: Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
    """Key of its data."""
    optional: bool = False
    """Leave the variable out if it does not exist, instead of failing."""


class EnvSource(Wire, frozen=True):
    """What a variable gets its value from: exactly one of these."""

    secret_key_ref: KeyRef | None = None
    """Key of a Secret."""
    config_map_key_ref: KeyRef | None = None
    """Key of a ConfigMap."""


class EnvVar(Wire, frozen=True):
    """One environment variable of a command or Python call."""

    name: EnvName
    """Name of the variable; it may not contain `=`."""
    value: str = ""
    """Value of the variable, as it is: `$(NAME)` is not expanded."""
    value_from: EnvSource | None = None
    """Where the value is read when an attempt starts, instead of `value`."""


class TaskInput(Wire, frozen=True):
    """One named input: a TaskObject, or the result of another Task of this namespace."""

    name: Name
    """Name of the input in the file `$KILN_INPUT`; a call gets it as the argument of that name."""
    object: Name | None = None
    """Name of a TaskObject. Give this or `task`."""
    task: Name | None = None
    """Name of a Task whose result is read. If that one fails, so does this, with `InputFailed`."""
    path: str | None = None
    """JSONPath (RFC 9535) to a part of the input; the first match is taken. Empty: all of it."""


class Retry(Wire, frozen=True):
    """When a failed or lost attempt is followed by another.

    Exit code 75 (EX_TEMPFAIL, sysexits.h) always asks for a retry.
    """

    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    """How often the command may be tried, counting its failures; a retry is never assumed."""
    max_losses: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 3
    """How many losses are repeated: attempts that ended by no fault of the command, such as the end
    of the worker or the node, or a SIGKILL from elsewhere."""
    delay_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 1.0
    """Delay before the second attempt; there is none after a first loss."""
    factor: Annotated[float, msgspec.Meta(ge=1, le=100)] = 2.0
    """Factor by which each delay is longer than the one before."""
    max_delay_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 60.0
    """The longest delay."""
    jitter: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.2
    """Fraction by which each delay is spread, up and down."""
    on: tuple[Annotated[str, msgspec.Meta(pattern=r"^(exit:[0-9]{1,3}|timeout)$")], ...] = ()
    """Which failures are retried: `exit:N`, `timeout`. Empty: all of them. For kubectl the
    name needs quotes, `"on"`: without them it reads true."""


class Timeouts(Wire, frozen=True):
    """Deadlines in seconds, up to 31 years; one that is not given does not exist."""

    pending_seconds: Annotated[float, msgspec.Meta(gt=0, le=MAX_S)] | None = None
    """Time from becoming pending to the first start. Then the task fails with `PendingTimedOut`."""
    running_seconds: Annotated[float, msgspec.Meta(gt=0, le=MAX_S)] | None = None
    """Time for one attempt. Then that attempt has failed with `TimedOut`."""
    total_seconds: Annotated[float, msgspec.Meta(gt=0, le=MAX_S)] | None = None
    """Time for the whole run, waiting included. Then the task fails with `TotalTimedOut`."""
    kill_grace_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 30.0
    """Time between SIGTERM and SIGKILL, as terminationGracePeriodSeconds of a Pod."""


class Call(Wire, frozen=True):
    """A Python call, run in a slot of the worker instead of a command, or in a Pod of its own."""

    function: Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
    """The function, as `package.module:name`; the worker imports it, unless `code` is given."""
    code: str | None = None
    """Digest (`sha256:…`) of the blob that holds the function. Written by the Python library."""
    args: tuple[Any, ...] = ()
    """Arguments by position, any JSON; a call from Python has its arguments beside its spec."""
    kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    """Arguments by name, any JSON. Inputs are passed by name too."""
    environment: str | None = None
    """Digest of the files shipped with the function. Written by the Python library."""
    returns: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    """Number of results into which the returned tuple is taken apart."""
    stream: bool = False
    """True for a generator, whose values are passed on as they come."""
    accept_failures: bool = False
    """Call it even if an input failed, with the error in the place of the input."""


class PodTemplate(Wire, frozen=True):
    """A core/v1 PodTemplateSpec; what it holds is for the API server to check."""

    spec: dict[str, Any]
    """A core/v1 PodSpec. `restartPolicy` is `Never` unless it says `OnFailure`. With a `call` it
    may be empty: one container, of the worker's image unless it names another, runs the call."""
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    """Labels and annotations of the Pod."""


class ExternalTask(Wire, frozen=True):
    """Work for a program of the user's own, which claims tasks by the name of its executor."""

    executor: Name
    """Name by which programs of this namespace claim it; any number of them may share one."""
    payload: Any = None
    """What the program gets, any JSON; its texts may have variables."""


class TaskTemplate(Wire, frozen=True):
    """What a task runs, and on what input: the part of a Task's spec that a Job takes as the
    template of all its tasks."""

    cluster_name: Name = "default"
    """Name of the TaskCluster of this namespace that runs the task."""
    image: str = ""
    """Image in which the command runs: in a container added to a worker's Pod where the TaskCluster
    says `runtime: EphemeralContainers`, else in a Pod of its own if it is not that of the workers.
    A label where the workers are on a node of kilnwork."""
    command: tuple[str, ...] = ()
    """Program and its first arguments. Needed, unless there is a `call`."""
    args: tuple[str, ...] = ()
    """More arguments, after those of `command`."""
    call: Call | None = None
    """Python function to call, instead of `command`; inputs are passed by name."""
    pod: PodTemplate | None = None
    """Pod to create and wait for, instead of `command`, or Pod in which `call` runs; no TaskCluster
    is needed."""
    workflow: object_task.WorkflowTemplate | None = None
    """Workflow of Argo to create and wait for, instead of `command`."""
    custom_resource: object_task.CustomResource | None = None
    """Object of any kind to create and wait for, instead of `command`."""
    http: http_task.HttpTemplate | None = None
    """HTTP request to send, instead of `command`; it needs a `kiln executor http`."""
    function: function_task.FunctionTemplate | None = None
    """Request to a Service of Knative, instead of `command`; it needs a `kiln executor http`."""
    external: ExternalTask | None = None
    """Work for a program of your own, instead of `command`."""
    env: tuple[EnvVar, ...] = ()
    """Environment variables of the command or Python call."""
    input_object: Name | None = None
    """Name of a TaskObject to read; the task waits until it exists. As an input it is `input`."""
    inputs: tuple[TaskInput, ...] = ()
    """More inputs; the task waits for all of them."""
    output_type: Annotated[str, msgspec.Meta(pattern="^(json|bytes)$")] = "json"
    """What the result is: `json`, the output file must parse; `bytes`, it may be anything."""

    @property
    def executor(self) -> str:
        """What runs its attempts: `worker`, or the field that describes another executor."""
        if self.function is not None:
            return "http"
        for name, attribute in TEMPLATES.items():
            if getattr(self, attribute) is not None:
                return name
        return WORKER

    @property
    def template(self) -> Wire | None:
        """The value of the field that chooses its executor; None for a task of a worker."""
        given = (getattr(self, attribute) for attribute in TEMPLATES.values())
        return next((one for one in given if one is not None), None)

    @property
    def function_name(self) -> str:
        """The function of a call; for other tasks, the executor."""
        return self.executor if self.call is None else self.call.function

    @property
    def queue_name(self) -> str:
        """Name of the queue in which it waits: that of its TaskCluster, or of its executor."""
        if (
            self.pod is None
            and self.http is None
            and self.workflow is None
            and self.custom_resource is None
            and self.external is None
            and self.function is None
        ):
            return self.cluster_name  # most tasks, millions of them
        if self.external is not None:
            return executor_queue(EXTERNAL + self.external.executor)
        sent = self.sent
        return executor_queue(self.executor, sent.affinity.required if sent is not None else {})

    @property
    def sent(self) -> http_task.HttpTemplate | None:
        """The task's HTTP request, also that of a function; None for other tasks."""
        return self.http if self.function is None else self.function

    @property
    def may_repeat(self) -> bool:
        """Whether a lost attempt that has started may be repeated: not if it was a request that
        must not be sent twice."""
        sent = self.sent
        return sent is None or sent.may_repeat


class TaskSpec(TaskTemplate, frozen=True):
    """What to run and how long to try: a `command`, a Python `call`, a `pod`, a `call` in a `pod`,
    a `workflow`, a `customResource`, an `http` request, one to a `function`, or work for an
    `external` program."""

    output_object: Name | None = None
    """Name of a TaskObject to make from the result, which must be JSON."""
    priority: Annotated[int, msgspec.Meta(ge=-1_000_000, le=1_000_000)] = 0
    """Tasks with a higher priority start first; what runs is not interrupted."""
    retry: Retry = Retry()
    """When another attempt follows one that failed or was lost."""
    timeouts: Timeouts = Timeouts()
    """Deadlines in seconds; without one there is none."""
    run: Annotated[int, msgspec.Meta(ge=1, le=MAX_RUN)] = 1
    """Number of the run. It may only rise: a higher one starts the task again, with new budgets."""
    kill_timestamp: str | None = None
    """Time (RFC 3339) at which the task is stopped; at once if it is past."""
    suspend: bool = False
    """Start no attempt while this is true; one that runs goes on. No timeout counts meanwhile."""
    ttl_seconds_after_finished: Annotated[int, msgspec.Meta(ge=0, le=MAX_S)] | None = None
    """Seconds after its end when the Task is deleted; without it, never."""


class Result(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """Result of a task."""

    value: Any = msgspec.UNSET
    """The result itself, if it is JSON, at most 8 KiB, and its integers fit into 64 bits."""
    media_type: str = "application/json"
    """`application/json`, or `application/octet-stream` for bytes."""
    size_bytes: int = 0
    """Size of the result."""
    digest: str = ""
    """`sha256:` and the SHA-256 of the result in hexadecimal."""


class ChildCounts(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """How many tasks this one has spawned."""

    total: int = 0
    """All spawned tasks."""
    running: int = 0
    """Spawned tasks that are not over, whether they run or wait."""
    succeeded: int = 0
    """Spawned tasks that ended in `Success`."""
    failed: int = 0
    """Spawned tasks that ended in `Failed` or `Killed`."""


class TaskStatus(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """The state of a task in the journal, as last written by the server."""

    state: str = ""
    """`Pending`, `Staging`, `Running` or `Killing`; at the end `Success`, `Failed` or `Killed`."""
    reason: str = ""
    """Why, as one stable word; never empty while the task waits."""
    message: str = ""
    """The facts of this case, for people."""
    run: int = 0
    """Number of the run that the rest of the status is about."""
    attempts: int = 0
    """Number of the newest attempt in this run."""
    losses: int = 0
    """How many attempts of this run were lost."""
    pod_name: str = ""
    """Name of the Pod of the worker that has or had the task, or of the executor of a request."""
    node_name: str = ""
    """Name of the node of that Pod."""
    exit_code: int | None = None
    """Exit code of the newest attempt's command; 128 + N after signal N."""
    result: Result | None = None
    """What the command wrote to `$KILN_OUTPUT`; only in state `Success`."""
    output_object: str = ""
    """Name of the TaskObject that was made from the result."""
    start_time: str | None = None
    """When the first attempt of the run started."""
    finish_time: str | None = None
    """When the run was over."""
    children: ChildCounts | None = None
    """How many tasks this one has spawned."""
    observed_generation: int = 0
    """The `metadata.generation` that this status is about."""
    conditions: tuple[meta.Condition, ...] = ()
    """Milestones of the run: `Started`, `Finished`, `Stopped`; and `Suspended`, `FieldsIgnored`,
    `ImageIgnored`."""


class Task(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """One unit of work: a command or a Python call, with inputs, attempts and one result."""

    metadata: meta.ObjectMeta
    spec: TaskSpec = TaskSpec()
    status: TaskStatus = TaskStatus()
    api_version: str = "kilnwork.dev/v1alpha1"
    kind: str = "Task"
