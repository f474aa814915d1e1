"""Kind Task: one unit of work on a TaskCluster, with inputs, attempts and one result.

The journal stores the same spec, and the channel carries it for spawned tasks: there is one model.
The names and meanings of clusterName, image, command, args and inputObject follow the dynamic
batch prototype; the others are the usual vocabulary of Kubernetes.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from kilnwork.api import base_struct, http_task, knative_task, meta, object_task

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
MAX_S = 1_000_000_000
"""Maximum of every duration field, in seconds: start time plus duration still fits into timestamps
and SQL."""

MAX_RUN = 2**31 - 1
"""Highest number of a run, which fits into frames and SQL."""

FORCE_ANNOTATION = "kilnwork.dev/force-run"
"""Annotation of a Task: the number of a run that may start although the run before it succeeded."""

RESUME_ANNOTATION = "kilnwork.dev/resume-run"
"""Annotation of a Task: the number of a run that keeps the finished children of the run before it
and runs only the failed ones again."""

EnvName = Annotated[str, msgspec.Meta(min_length=1, pattern=r"^[^=\x00]+$")]


WORKER = "worker"
"""The default executor: a slot of a warm worker."""

TEMPLATES = {
    "pod": "pod",
    "workflow": "workflow",
    "customResource": "custom_resource",
    "http": "http",
    "external": "external",
    "function": "function",
}
"""Attributes of a spec that choose and describe an executor, by their names in JSON, which are also
the names of the executors. Requests to functions are carried out by executor `http`."""

OUTSIDE = frozenset({"http", "external"})
"""Executors whose processes run outside the manager, any number of each."""

EXTERNAL = "external/"
"""Prefix of the names of user-written executors, each of which serves one namespace."""

WITHOUT_PROGRAM = frozenset(TEMPLATES) - {"pod"}
"""Executors whose tasks run no program of ours: inputs are variables of the template, and the
Python library submits these tasks as it submits calls."""

REQUESTS = frozenset({"http", "function"})
"""Fields of the spec that make a task an HTTP request."""

_EXECUTOR_QUEUE = "executor/"
_PORTION = "#"


def executor_queue(executor: str, required: Mapping[str, str] = {}) -> str:
    """Return the name of the queue of an executor, or of those of its processes that have all
    `required` labels. No TaskCluster can have this name."""
    labels = ",".join(f"{key}={value}" for key, value in sorted(required.items()))
    return f"{_EXECUTOR_QUEUE}{executor}{'?' if labels else ''}{labels}"


def queue_labels(name: str) -> tuple[str, dict[str, str]]:
    """Return the executor's main queue and the labels that a process must have to serve the queue
    `name`."""
    everybody, _, labels = name.partition("?")
    pairs = (label.partition("=") for label in labels.split(",") if label)
    return everybody, {key: value for key, _, value in pairs}


def portion_queue(cluster: str, portion: int) -> str:
    """Return the name of the queue of tasks that need a portion of a SyncSet's data.

    It is served by the workers of the TaskCluster whose nodes hold the portion. No TaskCluster can
    have this name.
    """
    return f"{cluster}{_PORTION}{portion}"


def queue_portion(name: str) -> tuple[str, int] | None:
    """Return the TaskCluster and the portion of a queue, or None if it is no portion queue."""
    cluster, mark, portion = name.partition(_PORTION)
    return (cluster, int(portion)) if mark and portion.isdecimal() else None


def queue_cluster(name: str) -> str:
    """Return the name of the TaskCluster whose workers serve a queue."""
    return name.partition(_PORTION)[0]


def is_external_queue(name: str) -> bool:
    """Return whether a queue belongs to a user-written executor, which serves one namespace."""
    return name.startswith(_EXECUTOR_QUEUE + EXTERNAL)


def is_executor_queue(name: str) -> bool:
    """Return whether a queue belongs to an executor; otherwise it belongs to a TaskCluster."""
    return name.startswith(_EXECUTOR_QUEUE)


class State(StrEnum):
    """The state of a task. Success, Failed and Killed are final for the run."""

    PENDING = "Pending"
    STAGING = "Staging"
    RUNNING = "Running"
    SUCCESS = "Success"
    FAILED = "Failed"
    KILLING = "Killing"
    KILLED = "Killed"

    @property
    def final(self) -> bool:
        """Whether the state is final for this run."""
        return self in _FINAL


_FINAL = frozenset({State.SUCCESS, State.FAILED, State.KILLED})


Wire = base_struct.Wire


class KeyRef(Wire, frozen=True):
    """A key of an object in the task's namespace, whose value is text."""

    name: Name
    """Name of the Secret or ConfigMap."""
    key: Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
    """Key in the `data` of the object."""
    optional: bool = False
    """Whether the variable is left out if the object or the key does not exist, instead of failing
    the attempt."""


class EnvSource(Wire, frozen=True):
    """Source of a variable's value. Exactly one field must be set."""

    secret_key_ref: KeyRef | None = None
    """Key of a Secret in the task's namespace."""
    config_map_key_ref: KeyRef | None = None
    """Key of a ConfigMap in the task's namespace."""


class EnvVar(Wire, frozen=True):
    """An environment variable of a command or Python call."""

    name: EnvName
    """Name of the variable. It must not contain `=`."""
    value: str = ""
    """Value of the variable, used literally: `$(NAME)` is not expanded."""
    value_from: EnvSource | None = None
    """Source from which the value is read when an attempt starts, instead of `value`."""


class TaskInput(Wire, frozen=True):
    """A named input: a TaskObject, or the result of another Task in this namespace."""

    name: Name
    """Name of the input in the file `$KILN_INPUT`. A call gets the input as the argument of this
    name."""
    object: Name | None = None
    """Name of a TaskObject. Exactly one of `object` and `task` must be set."""
    task: Name | None = None
    """Name of a Task whose result is the input. If that Task fails, this one fails with
    `InputFailed`."""
    path: str | None = None
    """JSONPath (RFC 9535) to a part of the input; the first match is used. Empty: the whole
    input."""


class Retry(Wire, frozen=True):
    """Rules for retrying failed and lost attempts.

    Exit code 75 (EX_TEMPFAIL, sysexits.h) always requests a retry.
    """

    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    """Maximum number of attempts, counting failures but not losses. Tasks are not retried by
    default."""
    max_losses: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 3
    """Maximum number of lost attempts that are repeated. An attempt is lost if it ended through no
    fault of the command, such as the end of the worker or the node, or a SIGKILL from elsewhere."""
    delay_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 1.0
    """Delay before the second attempt, in seconds. The first loss is repeated without a delay."""
    factor: Annotated[float, msgspec.Meta(ge=1, le=100)] = 2.0
    """Factor by which each delay is longer than the previous one."""
    max_delay_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 60.0
    """Maximum delay, in seconds."""
    jitter: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.2
    """Fraction by which each delay is randomly shortened or lengthened."""
    on: tuple[Annotated[str, msgspec.Meta(pattern=r"^(exit:[0-9]{1,3}|timeout)$")], ...] = ()
    """Failures that are retried: `exit:N` for an exit code, `timeout`. Empty: all failures. In
    YAML for kubectl, write the key as `"on"`: without quotes YAML 1.1 reads it as true."""


class Timeouts(Wire, frozen=True):
    """Deadlines in seconds, up to 31 years. An unset deadline is unlimited."""

    pending_seconds: Annotated[float, msgspec.Meta(gt=0, le=MAX_S)] | None = None
    """Maximum time from becoming pending to the first start. When it is exceeded, the task fails
    with `PendingTimedOut`."""
    running_seconds: Annotated[float, msgspec.Meta(gt=0, le=MAX_S)] | None = None
    """Maximum duration of one attempt. When it is exceeded, the attempt fails with `TimedOut`. A
    call that never reports its start, because it stopped itself or holds the interpreter lock,
    gets up to twice this time."""
    total_seconds: Annotated[float, msgspec.Meta(gt=0, le=MAX_S)] | None = None
    """Maximum duration of the whole run, waiting included. When it is exceeded, the task fails with
    `TotalTimedOut`."""
    kill_grace_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 30.0
    """Time between SIGTERM and SIGKILL, like `terminationGracePeriodSeconds` of a Pod."""


class Call(Wire, frozen=True):
    """A Python call that runs in a slot of a worker instead of a command, or in a Pod of its
    own."""

    function: Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
    """Function to call, as `package.module:name`. The worker imports it, unless `code` is set."""
    code: str | None = None
    """Digest (`sha256:…`) of the blob that contains the function. Set by the Python library."""
    args: tuple[Any, ...] = ()
    """Positional arguments, any JSON. Calls submitted from Python carry their arguments outside
    the spec."""
    kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    """Keyword arguments, any JSON. Inputs are passed by name too."""
    environment: str | None = None
    """Digest of the files shipped with the function. Set by the Python library."""
    returns: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    """Number of results that the returned tuple is split into."""
    stream: bool = False
    """Whether the function is a generator whose values are passed on as it yields them."""
    accept_failures: bool = False
    """Whether the function is called even if an input failed; the argument is then the error of
    the input."""


class PodTemplate(Wire, frozen=True):
    """A core/v1 PodTemplateSpec. Its content is validated by the API server."""

    spec: dict[str, Any]
    """A core/v1 PodSpec. `restartPolicy` defaults to `Never`; `OnFailure` is the other choice.
    With a `call` it may be empty: the call runs in one container, with the worker's image by
    default."""
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    """Labels and annotations of the Pod."""


class ExternalTask(Wire, frozen=True):
    """Work for a user-written program, which claims tasks by the name of its executor."""

    executor: Name
    """Name of the executor, by which programs in this namespace claim the task. Any number of
    programs may share one name."""
    payload: Any = None
    """Data for the program, any JSON. Strings in it may contain variables."""


class TaskTemplate(Wire, frozen=True):
    """The work of a task and its inputs: the part of a Task's spec that a Job uses as the template
    of its tasks."""

    cluster_name: Name = "default"
    """Name of the TaskCluster in this namespace that runs the task."""
    image: str = ""
    """Image in which the command runs. With `runtime: EphemeralContainers` of the TaskCluster, the
    command runs in a container added to a worker's Pod; otherwise in a Pod of its own if the image
    differs from that of the workers. On nodes of kilnwork, the image is only a label. Refused with
    `call`, whose image is that of the worker or of its `pod`."""
    command: tuple[str, ...] = ()
    """Program and its first arguments. Required unless another field says what to run, such as
    `call` or `pod`."""
    args: tuple[str, ...] = ()
    """Further arguments, appended to `command`."""
    call: Call | None = None
    """Python function to call, instead of `command`. Inputs are passed by name."""
    pod: PodTemplate | None = None
    """Pod to create and wait for, instead of `command`; with `call`, the Pod in which the call
    runs. `clusterName` has no effect then, and `image` and `env` are refused: its containers have
    their own."""
    workflow: object_task.WorkflowTemplate | None = None
    """Argo Workflow to create and wait for, instead of `command`."""
    custom_resource: object_task.CustomResource | None = None
    """Object of any kind to create and wait for, instead of `command`."""
    http: http_task.HttpTemplate | None = None
    """HTTP request to send, instead of `command`. It requires a running `kiln executor http`;
    `clusterName` has no effect then."""
    function: knative_task.FunctionTemplate | None = None
    """Request to a Knative Service, instead of `command`. It requires a running `kiln executor
    http`; `clusterName` has no effect then."""
    external: ExternalTask | None = None
    """Work for a user-written program, instead of `command`. `clusterName` has no effect then."""
    env: tuple[EnvVar, ...] = ()
    """Environment variables of the command or Python call."""
    input_object: Name | None = None
    """Name of a TaskObject that the task reads as the input `input`. The task waits until the
    object exists."""
    inputs: tuple[TaskInput, ...] = ()
    """Further inputs. The task waits for all of them."""
    output_type: Annotated[str, msgspec.Meta(pattern="^(json|bytes)$")] = "json"
    """Type of the result. `json`: the output file must contain valid JSON; `bytes`: it may contain
    anything."""

    @property
    def executor(self) -> str:
        """Name of the executor that runs the attempts: `worker`, or the field that describes
        another executor."""
        if self.function is not None:
            return "http"
        for name, attribute in TEMPLATES.items():
            if getattr(self, attribute) is not None:
                return name
        return WORKER

    @property
    def template(self) -> Wire | None:
        """Value of the field that chooses the executor, or None for a task of a worker."""
        given = (getattr(self, attribute) for attribute in TEMPLATES.values())
        return next((one for one in given if one is not None), None)

    @property
    def function_name(self) -> str:
        """Name of the called function; for other tasks, the name of the executor."""
        return self.executor if self.call is None else self.call.function

    @property
    def queue_name(self) -> str:
        """Name of the queue in which the task waits: that of its TaskCluster or of its executor."""
        if (
            self.pod is None
            and self.http is None
            and self.workflow is None
            and self.custom_resource is None
            and self.external is None
            and self.function is None
        ):
            return self.cluster_name  # the common case, for millions of tasks
        if self.external is not None:
            return executor_queue(EXTERNAL + self.external.executor)
        sent = self.sent
        return executor_queue(self.executor, sent.affinity.required if sent is not None else {})

    @property
    def sent(self) -> http_task.HttpTemplate | None:
        """The HTTP request of the task, including a request to a function; None for other tasks."""
        return self.http if self.function is None else self.function

    @property
    def may_repeat(self) -> bool:
        """Whether a lost attempt that has started may be repeated. False for a request that must
        not be sent twice."""
        sent = self.sent
        return sent is None or sent.may_repeat


class TaskSpec(TaskTemplate, frozen=True):
    """The work of a task, and the limits on its attempts and time. The work is a `command`, a
    Python `call`, a `pod`, a `call` in a `pod`, a `workflow`, a `customResource`, an `http`
    request, a request to a `function`, or work for an `external` program."""

    output_object: Name | None = None
    """Name of a TaskObject to create from the result, which must be JSON of at most 64 KiB;
    otherwise the Task has a warning event `OutputObjectNotMade`."""
    priority: Annotated[int, msgspec.Meta(ge=-1_000_000, le=1_000_000)] = 0
    """Priority of the task. Tasks with a higher priority start first; running tasks are not
    interrupted."""
    retry: Retry = Retry()
    """Rules for retrying failed and lost attempts."""
    timeouts: Timeouts = Timeouts()
    """Deadlines in seconds. An unset deadline is unlimited."""
    run: Annotated[int, msgspec.Meta(ge=1, le=MAX_RUN)] = 1
    """Number of the run. It may only be increased: a higher number starts the task again, with new
    budgets of attempts and losses."""
    kill_timestamp: str | None = None
    """Time (RFC 3339) at which the task is stopped; a time in the past stops it immediately. `kiln
    cancel` sets it to now."""
    suspend: bool = False
    """Whether the start of attempts is suspended. A running attempt continues. Timeouts do not
    count meanwhile and start again when it becomes false."""
    ttl_seconds_after_finished: Annotated[int, msgspec.Meta(ge=0, le=MAX_S)] | None = None
    """Number of seconds after which the finished Task is deleted. Unset: it is never deleted."""


class Result(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """The result of a task."""

    value: Any = msgspec.UNSET
    """The result itself, if it is JSON of at most 8 KiB, its integers fit into 64 bits, and its
    nesting is at most 64 levels deep. `kiln result` always shows it."""
    media_type: str = "application/json"
    """Media type of the result: `application/json`, or `application/octet-stream` for bytes."""
    size_bytes: int = 0
    """Size of the result in bytes."""
    digest: str = ""
    """SHA-256 of the result, as `sha256:` and hexadecimal digits."""


class ChildCounts(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """Number of tasks that this task has spawned."""

    total: int = 0
    """Number of all spawned tasks."""
    running: int = 0
    """Number of spawned tasks that are not finished, whether they run or wait."""
    succeeded: int = 0
    """Number of spawned tasks that ended in `Success`."""
    failed: int = 0
    """Number of spawned tasks that ended in `Failed` or `Killed`."""


class TaskStatus(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """The state of a task in the journal, as last written by the server."""

    state: str = ""
    """State of the task: `Pending`, `Staging`, `Running` or `Killing`; finally `Success`, `Failed`
    or `Killed`."""
    reason: str = ""
    """Reason for the state, as one stable CamelCase word. Never empty while the task waits."""
    message: str = ""
    """Details about the state, for people."""
    run: int = 0
    """Number of the run that the rest of the status describes."""
    attempts: int = 0
    """Number of the newest attempt in this run that has started or is about to; attempts that were
    withdrawn before their start do not count."""
    losses: int = 0
    """Number of attempts in this run that were lost after they had started. Losses caused by the
    dispatcher do not count against `retry.maxLosses`."""
    pod_name: str = ""
    """Name of the Pod of the worker that runs or ran the task, or of the executor of a request."""
    node_name: str = ""
    """Name of the node of that Pod."""
    exit_code: int | None = None
    """Exit code of the newest attempt's command; 128 + N after signal N."""
    result: Result | None = None
    """Result that the command wrote to `$KILN_OUTPUT`. Only set in state `Success`."""
    output_object: str = ""
    """Name of the TaskObject that was created from the result."""
    start_time: str | None = None
    """Time at which the first attempt of the run started."""
    finish_time: str | None = None
    """Time at which the run finished."""
    children: ChildCounts | None = None
    """Number of tasks that this task has spawned."""
    observed_generation: int = 0
    """The `metadata.generation` that this status describes."""
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
