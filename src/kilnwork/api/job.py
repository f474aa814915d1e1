"""Kind Job: a set of tasks made from one template, numbered by an index set, with one outcome.

It has the fields of Furiko's Job (execution.furiko.io/v1alpha1) under the same names, and further
ones: time limits, retries by cause, dependencies, locks, hooks, a finalizer. It is not a batch Job.
Its tasks are rows of the journal, never API objects. `job_validation` has the rules beyond the
schema; `job_config` has the kind that creates Jobs.
"""

from enum import StrEnum
from typing import Annotated, Any

import msgspec

from kilnwork.api import base_struct, meta
from kilnwork.api import task as api_task

Wire = base_struct.Wire
Name = api_task.Name

Seconds = Annotated[float, msgspec.Meta(gt=0, le=api_task.MAX_S)]
WholeSeconds = Annotated[int, msgspec.Meta(ge=0, le=api_task.MAX_S)]
Priority = Annotated[int, msgspec.Meta(ge=-1_000_000, le=1_000_000)]

MAX_NAME = 63
"""Maximum length of a Job's name: that of a label value, since its Pods carry the name as a
label."""

MAX_INDEXES = 1_000_000
"""Maximum number of indexes of one Job; each takes five bytes of memory."""

MAX_ATTEMPTS = 50
"""Maximum number of attempts of an index, as in Furiko."""

DEFAULT_PENDING_S = 900.0
"""Default time in seconds that an index may wait for its start, as in Furiko."""

DEFAULT_TTL_S = 3600
"""Default number of seconds for which a finished Job is kept, as in Furiko."""


class Phase(StrEnum):
    """The phase of a Job. The last five phases are final until `spec.run` is raised, except that
    `AdmissionError` is always final: create another Job instead."""

    QUEUED = "Queued"
    STARTING = "Starting"
    PENDING = "Pending"
    RUNNING = "Running"
    TERMINATING = "Terminating"
    RETRY_BACKOFF = "RetryBackoff"
    RETRYING = "Retrying"
    KILLING = "Killing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    KILLED = "Killed"
    ADMISSION_ERROR = "AdmissionError"
    FINISHED_UNKNOWN = "FinishedUnknown"

    @property
    def final(self) -> bool:
        """Whether the run of the Job has finished."""
        return self in _FINAL


_FINAL = frozenset(
    {
        Phase.SUCCEEDED,
        Phase.FAILED,
        Phase.KILLED,
        Phase.ADMISSION_ERROR,
        Phase.FINISHED_UNKNOWN,
    }
)


def is_final(phase: str) -> bool:
    """Return whether a phase read from a status is final. Unknown texts are not: any client with
    the right to write statuses may write anything."""
    return phase in _FINAL


class ConcurrencyPolicy(StrEnum):
    """The policy for a Job while other Jobs of its JobConfig run."""

    ALLOW = "Allow"
    """The Job starts."""
    FORBID = "Forbid"
    """The Job is refused with AdmissionError; a tick of the schedule is dropped."""
    ENQUEUE = "Enqueue"
    """The Job waits for its turn."""
    REPLACE = "Replace"
    """The other Jobs are killed; this Job starts when their end is confirmed."""


class TaskHolder(Wire, frozen=True):
    """`taskTemplate` in the form of the executor proposal, `task.template`."""

    template: api_task.TaskTemplate
    """Definition of each task, as `taskTemplate`."""


class ResultSource(Wire, frozen=True):
    """A list returned by a task or by another Job, whose end the Job waits for. Exactly one of
    `task`, `job` and `jobConfig` must be set."""

    task: Name | None = None
    """Name of a Task in this namespace. Exactly one of `task`, `job` and `jobConfig` must be
    set."""
    job: Name | None = None
    """Name of a Job. Its result is that of its finalizer, or of its only task."""
    job_config: Name | None = None
    """Name of a JobConfig; one of its Jobs is chosen as in `dependsOn`."""
    path: str | None = None
    """JSONPath (RFC 9535) to the list within the result. Empty: the result is the list."""


class Parallelism(Wire, frozen=True):
    """The index set. Exactly one of the four `with` fields must be set."""

    with_count: Annotated[int, msgspec.Meta(ge=1, le=MAX_INDEXES)] | None = None
    """Number of indexes, numbered from 0. `${task.index_num}` is the number."""
    with_keys: tuple[Annotated[str, msgspec.Meta(min_length=1)], ...] | None = None
    """Keys, with one index for each. `${task.index_key}` is the key."""
    with_matrix: dict[str, tuple[Annotated[str, msgspec.Meta(min_length=1)], ...]] | None = None
    """Values by key, with one index for each combination. Keys are in alphabetical order and the
    last one varies fastest. `${task.index_matrix.KEY}` is the value of a key."""
    with_result_of: ResultSource | None = None
    """A list returned by a task or by another Job, with one index for each item.
    `${task.index_item}` is the item."""
    max_in_flight: Annotated[int, msgspec.Meta(ge=1, le=MAX_INDEXES)] | None = None
    """Maximum number of indexes that may have a task at the same time. Unset: as many as keep the
    workers busy. It may be changed while the Job runs."""
    completion_strategy: Any = "AllSuccessful"
    """When the Job succeeds or fails. `AllSuccessful`: it fails with the first index that fails for
    good. `AnySuccessful`: it succeeds with the first index that succeeds. `{minSuccessful: N}`: it
    succeeds with N successful indexes. `{maxFailed: N}` or `{maxFailed: "P%"}`: it fails when more
    than N indexes, or P percent, have failed for good."""


class JobTimeouts(Wire, frozen=True):
    """Deadlines of a Job and its indexes, in seconds."""

    pending_seconds: Annotated[float, msgspec.Meta(ge=0, le=api_task.MAX_S)] | None = None
    """Maximum time of an index from its submission to its first start. Unset: 900; 0: unlimited."""
    running_seconds: Seconds | None = None
    """Maximum duration of one attempt of an index. Unset: unlimited."""
    job_seconds: Seconds | None = None
    """Maximum duration of the whole Job from its start. When it is exceeded, the Job fails with
    `JobTimedOut`. Unset: unlimited."""
    kill_grace_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 30.0
    """Time between SIGTERM and SIGKILL of an index that is stopped."""


class HookEvent(StrEnum):
    """A change of phase after which a hook runs."""

    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    KILLED = "Killed"


class Hook(Wire, frozen=True):
    """A task that runs after a change of the Job's phase. It does not affect the outcome of the
    Job."""

    task_template: api_task.TaskTemplate
    """Task of the hook. `${job.phase}` is the phase."""
    phases: Annotated[tuple[HookEvent, ...], msgspec.Meta(min_length=1)] | None = None
    """Phases after which the hook runs, once each in a run. Exactly one of `phases` and `on` must
    be set."""
    on: Annotated[tuple[HookEvent, ...], msgspec.Meta(min_length=1)] | None = None
    """Another form of `phases`. In YAML for kubectl, write the key as `"on"`: without quotes YAML
    1.1 reads it as true."""

    @property
    def events(self) -> tuple[HookEvent, ...]:
        """Phases after which the hook runs, in whichever form they are given."""
        return self.phases or self.on or ()


class Finalizer(Wire, frozen=True):
    """A task that runs when enough indexes have succeeded, before the Job succeeds."""

    task_template: api_task.TaskTemplate
    """Task of the finalizer. Its input `results` is the list of all results in the order of the
    indexes, with null for indexes without a result. Together the results may have 64 MiB if the
    finalizer is a Python call, otherwise 512 KiB. The result of the finalizer is the result of the
    Job."""


class JobTemplate(Wire, frozen=True):
    """The tasks of a Job, and the limits on their number, attempts and time."""

    task_template: api_task.TaskTemplate | None = None
    """Definition of each task: the fields of a Task's spec, for any executor."""
    task: TaskHolder | None = None
    """Another form of `taskTemplate`. Exactly one of `taskTemplate` and `task` must be set."""
    parallelism: Parallelism | None = None
    """The index set. Unset: the Job has one task."""
    retry: api_task.Retry | None = None
    """Rules for retrying attempts of an index. Unset: `maxAttempts` and `retryDelaySeconds`
    apply."""
    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=MAX_ATTEMPTS)] | None = None
    """Maximum number of attempts of an index, a short form of `retry.maxAttempts`. Unset: 1."""
    retry_delay_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] | None = None
    """Constant time between attempts of an index, in seconds; a short form of the delays of
    `retry`."""
    task_pending_timeout_seconds: Annotated[float, msgspec.Meta(ge=0, le=api_task.MAX_S)] | None = (
        None
    )
    """Another form of `timeouts.pendingSeconds`. At most one of the two may be set."""
    forbid_task_force_deletion: bool = False
    """Accepted for manifests of Furiko, without effect: tasks are never removed by force."""
    timeouts: JobTimeouts | None = None
    """Deadlines in seconds."""
    hooks: Annotated[tuple[Hook, ...], msgspec.Meta(max_length=16)] = ()
    """Tasks that run after changes of the Job's phase."""
    finalizer: Finalizer | None = None
    """A task that gets the results of all indexes."""

    @property
    def effective_task(self) -> api_task.TaskTemplate | None:
        """Definition of each task, in whichever form it is given."""
        if self.task_template is None and self.task is not None:
            return self.task.template
        return self.task_template


class StartPolicy(Wire, frozen=True):
    """When a Job may start."""

    concurrency_policy: ConcurrencyPolicy | None = None
    """Policy for the Job while other Jobs of the JobConfig run. Unset: the policy of the
    JobConfig."""
    start_after: str | None = None
    """Time (RFC 3339) before which the Job does not start."""


class DependencyOutcome(StrEnum):
    """How a dependency must end before a Job starts."""

    SUCCESS = "Success"
    FINISHED = "Finished"


class DependencyKind(StrEnum):
    """The kind of object that a Job may depend on."""

    JOB = "Job"
    TASK = "Task"
    JOB_CONFIG = "JobConfig"


class Dependency(Wire, frozen=True):
    """An object whose end a Job waits for."""

    name: Name
    """Name of the object in this namespace. The object need not exist yet."""
    kind: DependencyKind = DependencyKind.JOB
    """Kind of the object: `Job`, `Task` or `JobConfig`. `JobConfig` means one of its Jobs: the Job
    of the same tick; otherwise the newest Job that is not later than this one; otherwise the next
    Job. The time of a Job is its tick, or else the time of its creation. The Job also waits for
    earlier ticks that have not been decided yet."""
    outcome: DependencyOutcome = DependencyOutcome.SUCCESS
    """How the object must end. `Success`: if it ends otherwise, this Job fails with
    `DependencyFailed`. `Finished`: any end."""


class LockMode(StrEnum):
    """Whether other Jobs may hold a lock at the same time."""

    EXCLUSIVE = "Exclusive"
    SHARED = "Shared"


class Lock(Wire, frozen=True):
    """A named lock that Jobs in this namespace hold while they run, whatever their JobConfig."""

    name: Name
    """Name of the lock. No object of this name is needed."""
    mode: LockMode = LockMode.EXCLUSIVE
    """`Exclusive`: no other Job holds the lock at the same time. `Shared`: other Jobs may hold it
    in the same mode."""


class JobType(StrEnum):
    """How a Job was created."""

    ADHOC = "Adhoc"
    SCHEDULED = "Scheduled"


class JobSpec(Wire, frozen=True):
    """A set of tasks: the template of a JobConfig with values for its options, or a template of
    its own."""

    config_name: Name | None = None
    """Name of a JobConfig in this namespace, whose template is copied into the Job when it is
    created."""
    type: JobType = JobType.ADHOC
    """How the Job was created. `Scheduled`: by the schedule of its JobConfig."""
    start_policy: StartPolicy = StartPolicy()
    """When the Job may start."""
    template: JobTemplate | None = None
    """Template of the Job's tasks. With `configName` it is replaced by the template of the
    JobConfig."""
    option_values: Any = None
    """Values of the JobConfig's options by name: an object, or a string that contains it as JSON
    or YAML."""
    substitutions: dict[str, str] = msgspec.field(default_factory=dict)
    """Values of variables by their full names, such as `option.x`. They take precedence over all
    other values."""
    priority: Priority = 0
    """Priority of the Job. Jobs with a higher priority start first, and so do their tasks. Running
    tasks are not interrupted."""
    depends_on: Annotated[tuple[Dependency, ...], msgspec.Meta(max_length=64)] = ()
    """Objects whose end the Job waits for before it starts."""
    locks: Annotated[tuple[Lock, ...], msgspec.Meta(max_length=16)] = ()
    """Locks that the Job holds from its start to its end. It acquires all of them at once, so that
    Jobs cannot deadlock."""
    suspend: bool = False
    """Whether the start of attempts is suspended. Running attempts continue."""
    kill_timestamp: str | None = None
    """Time (RFC 3339) at which the Job is killed; a time in the past kills it immediately."""
    run: Annotated[int, msgspec.Meta(ge=1, le=api_task.MAX_RUN)] = 1
    """Number of the run. It may only be increased: a higher number runs again all indexes that
    have not succeeded."""
    ttl_seconds_after_finished: WholeSeconds | None = None
    """Number of seconds after which the finished Job is deleted. Unset: 3600."""
    ttl_seconds_after_failed: WholeSeconds | None = None
    """Number of seconds after which a Job that did not succeed is deleted. Unset:
    `ttlSecondsAfterFinished` applies."""


class Indexes(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """Numbers of indexes by state."""

    total: int = 0
    """Number of all indexes; 0 while the index set is not known yet."""
    succeeded: int = 0
    """Number of indexes that succeeded."""
    failed: int = 0
    """Number of indexes that failed for good."""
    running: int = 0
    """Number of indexes whose task is running."""
    failed_indexes: str = ""
    """Numbers of the failed indexes as ranges, such as `3,17-19`, at most 4,096 characters."""


class QueueingCondition(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """State of a Job that has not started."""

    reason: str = ""
    """Reason for waiting: `NotYetDue`, `Queued` or another reason."""
    message: str = ""
    """Details about the state, for people."""


class WaitingCondition(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """State of a Job that has started while none of its tasks is running."""

    reason: str = ""
    """Reason for waiting: `PendingCreation`, `RetryBackoff`, `WaitingForTasks` or
    `DeletingTasks`."""
    message: str = ""
    """Details about the state, for people."""


class RunningCondition(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """State of a Job that has a running task."""

    latest_task_creation_timestamp: str | None = None
    """Time at which the newest task was created."""
    latest_running_timestamp: str | None = None
    """Time at which the newest attempt started."""
    terminating_tasks: int = 0
    """Number of tasks that are being stopped."""


class FinishedCondition(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """State of a finished Job."""

    latest_creation_timestamp: str | None = None
    """Time at which the newest task was created."""
    latest_running_timestamp: str | None = None
    """Time at which the newest attempt started."""
    finish_time: str = ""
    """Time at which the Job finished."""
    result: str = ""
    """Outcome of the Job: `Success`, `Failed`, `AdmissionError`, `Killed` or
    `FinalStateUnknown`."""
    reason: str = ""
    """Reason for the outcome, as one stable CamelCase word."""
    message: str = ""
    """Details about the outcome, for people."""


class JobCondition(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """State of a Job, in one of four forms."""

    queueing: QueueingCondition | None = None
    """Set while the Job has not started."""
    waiting: WaitingCondition | None = None
    """Set while the Job has started and none of its tasks is running."""
    running: RunningCondition | None = None
    """Set while a task of the Job is running."""
    finished: FinishedCondition | None = None
    """Set when the Job has finished."""


class TaskRefStatus(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """State of a task of the Job."""

    state: str = ""
    """State of the task: `Starting`, `Running`, `Killing` or `Terminated`."""
    result: str = ""
    """Result of a terminated task: `Succeeded`, `Failed` or `Killed`."""
    reason: str = ""
    """Reason for the state, as one stable CamelCase word."""
    message: str = ""
    """Details about the state, for people."""


class ParallelIndex(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """Index that a task works on."""

    index_number: int | None = None
    """Number of an index of `withCount` or `withResultOf`, from 0."""
    index_key: str | None = None
    """Key of an index of `withKeys`."""
    matrix_values: dict[str, str] | None = None
    """Values of an index of `withMatrix`."""


class TaskRef(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """One attempt of an index."""

    name: str
    """Name of the task, as `kiln logs` accepts it."""
    parallel_index: ParallelIndex | None = None
    """Index that the task works on."""
    retry_index: int = 0
    """Number of earlier attempts of the index."""
    creation_timestamp: str | None = None
    """Time at which the task was created."""
    running_timestamp: str | None = None
    """Time at which the attempt started."""
    finish_timestamp: str | None = None
    """Time at which the attempt finished."""
    node_name: str = ""
    """Name of the node on which the attempt ran."""
    status: TaskRefStatus = TaskRefStatus()
    """State of the task."""


class ParallelStatus(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """Progress of the index set as a whole."""

    complete: bool = False
    """Whether all indexes have finished."""
    successful: bool | None = None
    """Whether the completion strategy is satisfied. Only set when `complete` is true."""


class JobStatus(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """The state of a Job in the journal, as last written by the server."""

    phase: str = ""
    """Phase of the Job: `Queued`, `Starting`, `Pending`, `Running`, `Terminating`, `RetryBackoff`,
    `Retrying` or `Killing`; finally `Succeeded`, `Failed`, `Killed`, `AdmissionError` or
    `FinishedUnknown`."""
    state: str = ""
    """State of the Job: `Queued`, `Waiting`, `Running` or `Finished`."""
    reason: str = ""
    """Reason for the phase, as one stable CamelCase word. Never empty while the Job waits."""
    message: str = ""
    """Details about the phase, for people."""
    run: int = 0
    """Number of the run that the rest of the status describes."""
    condition: JobCondition | None = None
    """State of the Job with the facts of that state."""
    start_time: str | None = None
    """Time at which the Job started. From then on it counts towards the concurrency limit and
    holds its locks."""
    finish_time: str | None = None
    """Time at which the Job finished."""
    created_tasks: int = 0
    """Number of tasks created: one for each index that got a task, and one for each further
    attempt."""
    running_tasks: int = 0
    """Number of tasks that are running."""
    tasks: tuple[TaskRef, ...] = ()
    """Newest attempts of indexes, at most 20: failed ones first, then running ones. `kiln get job
    NAME --indexes` lists all of them."""
    parallel_status: ParallelStatus | None = None
    """Progress of the index set as a whole. Absent without `parallelism`."""
    indexes: Indexes | None = None
    """Numbers of indexes by state."""
    result: api_task.Result | None = None
    """Result of the finalizer, or of the only task of a Job without an index set. Only set in phase
    `Succeeded`."""
    observed_generation: int = 0
    """The `metadata.generation` that this status describes."""
    conditions: tuple[meta.Condition, ...] = ()
    """Milestones of the run: `Valid`, `Started`, `Finished`, `Stopped`; and `FieldsIgnored`."""


class Job(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """A set of tasks on one template: by count, by keys, by a matrix or by a list, with one common
    end."""

    metadata: meta.ObjectMeta
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()
    api_version: str = "kilnwork.dev/v1alpha1"
    kind: str = "Job"
