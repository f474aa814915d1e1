"""Kind Job: a set of tasks on one template, numbered by an index set, with one end.

The fields of Furiko's Job (execution.furiko.io/v1alpha1) under the same names, and what it lacks:
time limits, retries by cause, dependencies, locks, hooks, a finalizer. A Job is no batch Job. Its
tasks are rows of the journal, never objects. `job_validation` has the rules beyond the schema,
`job_config` what makes Jobs.
"""

from enum import StrEnum
from typing import Annotated, Any

import msgspec

from kilnwork.api import meta, wire
from kilnwork.api import task as api_task

Wire = wire.Wire
Name = api_task.Name

Seconds = Annotated[float, msgspec.Meta(gt=0, le=api_task.MAX_S)]
WholeSeconds = Annotated[int, msgspec.Meta(ge=0, le=api_task.MAX_S)]
Priority = Annotated[int, msgspec.Meta(ge=-1_000_000, le=1_000_000)]

MAX_NAME = 63
"""Longest name of a Job: that of a label, since its Pods carry it."""

MAX_INDEXES = 1_000_000
"""Most indexes of one Job: five bytes each in memory."""

MAX_ATTEMPTS = 50
"""Most attempts of an index, as in Furiko."""

DEFAULT_PENDING_S = 900.0
"""Time that an index may wait for its start, as in Furiko."""

DEFAULT_TTL_S = 3600
"""Time that a Job is kept after its end, as in Furiko."""


class Phase(StrEnum):
    """The phase of a Job. The last five change only by a higher `spec.run`, `AdmissionError` never:
    make another Job."""

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
        """Whether the run of the Job is over."""
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
    """Return whether a phase in a status says that the run is over. Any other text does not: a
    client with the right to write statuses may write anything."""
    return phase in _FINAL


class ConcurrencyPolicy(StrEnum):
    """What happens to a Job while others of its JobConfig run."""

    ALLOW = "Allow"
    """The Job starts."""
    FORBID = "Forbid"
    """The Job is refused with AdmissionError; a tick of the schedule is dropped."""
    ENQUEUE = "Enqueue"
    """The Job waits for its turn."""
    REPLACE = "Replace"
    """The others are killed; it starts when that is proved."""


class TaskHolder(Wire, frozen=True):
    """The form of the executor proposal, `task.template` instead of `taskTemplate`."""

    template: api_task.TaskTemplate
    """What each task runs, as `taskTemplate`."""


class ResultSource(Wire, frozen=True):
    """A list that a task or another Job has returned; the Job waits for its end."""

    task: Name | None = None
    """Name of a Task of this namespace. Give one of `task`, `job` and `jobConfig`."""
    job: Name | None = None
    """Name of a Job: its result is that of its finalizer, or of its only task."""
    job_config: Name | None = None
    """Name of a JobConfig: the result of one of its Jobs, chosen as in `dependsOn`."""
    path: str | None = None
    """JSONPath (RFC 9535) to the list within the result; empty: the result is the list."""


class Parallelism(Wire, frozen=True):
    """The index set: exactly one of the four `with` fields."""

    with_count: Annotated[int, msgspec.Meta(ge=1, le=MAX_INDEXES)] | None = None
    """Number of indexes, counted from 0; `${task.index_num}` is the number."""
    with_keys: tuple[Annotated[str, msgspec.Meta(min_length=1)], ...] | None = None
    """An index for each key; `${task.index_key}` is the key."""
    with_matrix: dict[str, tuple[Annotated[str, msgspec.Meta(min_length=1)], ...]] | None = None
    """An index for each combination of values, keys in alphabetical order and the last varying
    fastest; `${task.index_matrix.KEY}` is the value of that key."""
    with_result_of: ResultSource | None = None
    """An index for each item of a list that another has returned; `${task.index_item}` is the
    item."""
    max_in_flight: Annotated[int, msgspec.Meta(ge=1, le=MAX_INDEXES)] | None = None
    """How many indexes may have a task at once; without it, as many as keep the workers busy. May
    be changed while the Job runs."""
    completion_strategy: Any = "AllSuccessful"
    """`AllSuccessful`: the first index that fails for good ends the Job. `AnySuccessful`: the first
    that succeeds does. `{minSuccessful: N}`: it succeeds with N of them. `{maxFailed: N}` or
    `{maxFailed: "P%"}`: it goes on while no more have failed."""


class JobTimeouts(Wire, frozen=True):
    """Deadlines in seconds."""

    pending_seconds: Annotated[float, msgspec.Meta(ge=0, le=api_task.MAX_S)] | None = None
    """Time of an index from its submission to its first start, 900 unless given; 0: no limit."""
    running_seconds: Seconds | None = None
    """Time for one attempt of an index; without it, no limit."""
    job_seconds: Seconds | None = None
    """Time for the whole Job from its start; then it fails with `JobTimedOut`. Without it, no
    limit."""
    kill_grace_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 30.0
    """Time between SIGTERM and SIGKILL of an index that is stopped."""


class HookEvent(StrEnum):
    """What a hook may follow."""

    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    KILLED = "Killed"


class Hook(Wire, frozen=True):
    """A task that follows a change of the Job's phase. It changes nothing about the Job's end."""

    task_template: api_task.TaskTemplate
    """What it runs; `${job.phase}` is the phase."""
    phases: Annotated[tuple[HookEvent, ...], msgspec.Meta(min_length=1)] | None = None
    """Phases that it follows, each once in a run. Give this or `on`."""
    on: Annotated[tuple[HookEvent, ...], msgspec.Meta(min_length=1)] | None = None
    """Another form of `phases`. For kubectl the name needs quotes, `"on"`: without them it reads
    true."""

    @property
    def events(self) -> tuple[HookEvent, ...]:
        """Phases that it follows, in whichever form they are given."""
        return self.phases or self.on or ()


class Finalizer(Wire, frozen=True):
    """A task that runs when enough indexes have succeeded, before the Job has."""

    task_template: api_task.TaskTemplate
    """What it runs. Its input `results` is the list of the results in the order of the indexes,
    null for those that have none: up to 64 MiB together if it is a call, else up to 512 KiB. Its
    result is the Job's."""


class JobTemplate(Wire, frozen=True):
    """What a Job runs, and how long it tries."""

    task_template: api_task.TaskTemplate | None = None
    """What each task runs: fields of a Task's spec, any executor."""
    task: TaskHolder | None = None
    """Another form of `taskTemplate`; give one of them."""
    parallelism: Parallelism | None = None
    """The index set; without it, the Job has one task."""
    retry: api_task.Retry | None = None
    """When an attempt of an index is followed by another. Without it, as `maxAttempts` and
    `retryDelaySeconds` say."""
    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=MAX_ATTEMPTS)] | None = None
    """How often an index is tried, 1 unless given; a short form of `retry.maxAttempts`."""
    retry_delay_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] | None = None
    """Time between attempts of an index, always the same; a short form of fields of `retry`."""
    task_pending_timeout_seconds: Annotated[float, msgspec.Meta(ge=0, le=api_task.MAX_S)] | None = (
        None
    )
    """Another form of `timeouts.pendingSeconds`; give one of them."""
    forbid_task_force_deletion: bool = False
    """Without effect, accepted for manifests of Furiko: no task is ever removed by force."""
    timeouts: JobTimeouts | None = None
    """Deadlines in seconds."""
    hooks: Annotated[tuple[Hook, ...], msgspec.Meta(max_length=16)] = ()
    """Tasks that follow changes of the Job's phase."""
    finalizer: Finalizer | None = None
    """A task that gets the results of all indexes."""

    @property
    def what(self) -> api_task.TaskTemplate | None:
        """What each task runs, in whichever form it is given."""
        if self.task_template is None and self.task is not None:
            return self.task.template
        return self.task_template


class StartPolicy(Wire, frozen=True):
    """When a Job may start."""

    concurrency_policy: ConcurrencyPolicy | None = None
    """What happens while other Jobs of the JobConfig run; without it, as the JobConfig says."""
    start_after: str | None = None
    """Time (RFC 3339) before which it does not start."""


class DependencyOutcome(StrEnum):
    """How what a Job depends on must end."""

    SUCCESS = "Success"
    FINISHED = "Finished"


class DependencyKind(StrEnum):
    """What a Job may depend on."""

    JOB = "Job"
    TASK = "Task"
    JOB_CONFIG = "JobConfig"


class Dependency(Wire, frozen=True):
    """Something whose end a Job waits for."""

    name: Name
    """Its name, in this namespace; it need not exist yet."""
    kind: DependencyKind = DependencyKind.JOB
    """`Job`, `Task`, or `JobConfig`, which is one of its Jobs: that of the same tick; without one,
    the newest that is not after this Job; without any, the next. A Job's time is that of its tick,
    else of its creation. Ticks until then that are not decided yet are waited for."""
    outcome: DependencyOutcome = DependencyOutcome.SUCCESS
    """`Success`: if it ends otherwise, the Job fails with `DependencyFailed`. `Finished`: any end
    will do."""


class LockMode(StrEnum):
    """Who else may hold a lock meanwhile."""

    EXCLUSIVE = "Exclusive"
    SHARED = "Shared"


class Lock(Wire, frozen=True):
    """A name that Jobs of this namespace hold while they run, whatever their JobConfig."""

    name: Name
    """Name of the lock; it needs no object."""
    mode: LockMode = LockMode.EXCLUSIVE
    """`Exclusive`: no other Job holds it meanwhile. `Shared`: other Jobs may hold it as shared,
    too."""


class JobType(StrEnum):
    """Who made a Job."""

    ADHOC = "Adhoc"
    SCHEDULED = "Scheduled"


class JobSpec(Wire, frozen=True):
    """A set of tasks: the template of a JobConfig with values for its options, or one of its
    own."""

    config_name: Name | None = None
    """Name of a JobConfig of this namespace, whose template is copied into the Job at its
    creation."""
    type: JobType = JobType.ADHOC
    """`Scheduled` if the schedule of its JobConfig made it."""
    start_policy: StartPolicy = StartPolicy()
    """When it may start."""
    template: JobTemplate | None = None
    """What it runs; with `configName`, that of the JobConfig replaces it."""
    option_values: Any = None
    """Values of the JobConfig's options by name: an object, or its text in JSON or YAML."""
    substitutions: dict[str, str] = msgspec.field(default_factory=dict)
    """Values of variables by their whole names, such as `option.x`; they go before all others."""
    priority: Priority = 0
    """Jobs with a higher priority start first, and so do their tasks; what runs goes on."""
    depends_on: Annotated[tuple[Dependency, ...], msgspec.Meta(max_length=64)] = ()
    """What must end before it starts."""
    locks: Annotated[tuple[Lock, ...], msgspec.Meta(max_length=16)] = ()
    """Names that it holds from its start to its end; all at once, so that nothing deadlocks."""
    suspend: bool = False
    """Start no attempt while this is true; what runs goes on."""
    kill_timestamp: str | None = None
    """Time (RFC 3339) at which it is killed; at once if it is past."""
    run: Annotated[int, msgspec.Meta(ge=1, le=api_task.MAX_RUN)] = 1
    """Number of the run. It may only rise: a higher one runs again what has not succeeded."""
    ttl_seconds_after_finished: WholeSeconds | None = None
    """Seconds after its end when the Job is deleted, 3600 unless given."""
    ttl_seconds_after_failed: WholeSeconds | None = None
    """The same for a Job that did not succeed; without it, as `ttlSecondsAfterFinished`."""


class Indexes(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """How many indexes are in which state."""

    total: int = 0
    """All indexes; 0 while the set is not known yet."""
    succeeded: int = 0
    """Indexes that succeeded."""
    failed: int = 0
    """Indexes that failed for good."""
    running: int = 0
    """Indexes whose task runs now."""
    failed_indexes: str = ""
    """Numbers of those that failed, as ranges, at most 4,096 characters: `3,17-19`."""


class QueueingCondition(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """The state of a Job that has not started."""

    reason: str = ""
    """`NotYetDue`, `Queued`, or what else it waits for."""
    message: str = ""
    """The facts of this case, for people."""


class WaitingCondition(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """The state of a Job that has started and none of whose tasks runs."""

    reason: str = ""
    """`PendingCreation`, `RetryBackoff`, `WaitingForTasks` or `DeletingTasks`."""
    message: str = ""
    """The facts of this case, for people."""


class RunningCondition(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """The state of a Job of which a task runs."""

    latest_task_creation_timestamp: str | None = None
    """When its newest task was made."""
    latest_running_timestamp: str | None = None
    """When its newest attempt started."""
    terminating_tasks: int = 0
    """How many of its tasks are being stopped."""


class FinishedCondition(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """The state of a Job that is over."""

    latest_creation_timestamp: str | None = None
    """When its newest task was made."""
    latest_running_timestamp: str | None = None
    """When its newest attempt started."""
    finish_time: str = ""
    """When it was over."""
    result: str = ""
    """`Success`, `Failed`, `AdmissionError`, `Killed` or `FinalStateUnknown`."""
    reason: str = ""
    """Why, as one stable word."""
    message: str = ""
    """The facts of this case, for people."""


class JobCondition(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """The state of a Job, in one of four forms."""

    queueing: QueueingCondition | None = None
    """While it has not started."""
    waiting: WaitingCondition | None = None
    """While it has started and nothing of it runs."""
    running: RunningCondition | None = None
    """While a task of it runs."""
    finished: FinishedCondition | None = None
    """When it is over."""


class TaskRefStatus(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """Where a task of the Job is."""

    state: str = ""
    """`Starting`, `Running`, `Killing` or `Terminated`."""
    result: str = ""
    """`Succeeded`, `Failed` or `Killed`, once it has terminated."""
    reason: str = ""
    """Why, as one stable word."""
    message: str = ""
    """The facts of this case, for people."""


class ParallelIndex(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """Which index a task works on."""

    index_number: int | None = None
    """Number of an index of `withCount` or `withResultOf`, from 0."""
    index_key: str | None = None
    """Key of an index of `withKeys`."""
    matrix_values: dict[str, str] | None = None
    """Values of an index of `withMatrix`."""


class TaskRef(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """One attempt at an index."""

    name: str
    """Name of its task, as `kiln logs` takes it."""
    parallel_index: ParallelIndex | None = None
    """Which index."""
    retry_index: int = 0
    """How many attempts there were before, from 0."""
    creation_timestamp: str | None = None
    """When its task was made."""
    running_timestamp: str | None = None
    """When the attempt started."""
    finish_timestamp: str | None = None
    """When it was over."""
    node_name: str = ""
    """Node on which it ran."""
    status: TaskRefStatus = TaskRefStatus()
    """Where it is."""


class ParallelStatus(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """Whether the index set is done."""

    complete: bool = False
    """Whether no index will run any more."""
    successful: bool | None = None
    """Whether the completion strategy is met; only when it is complete."""


class JobStatus(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """The state of a Job in the journal, as last written by the server."""

    phase: str = ""
    """`Queued`, `Starting`, `Pending`, `Running`, `Terminating`, `RetryBackoff`, `Retrying` or
    `Killing`; at the end `Succeeded`, `Failed`, `Killed`, `AdmissionError` or `FinishedUnknown`."""
    state: str = ""
    """`Queued`, `Waiting`, `Running` or `Finished`."""
    reason: str = ""
    """Why, as one stable word; never empty while it waits."""
    message: str = ""
    """The facts of this case, for people."""
    run: int = 0
    """Number of the run that the rest of the status is about."""
    condition: JobCondition | None = None
    """Where it is, with the facts of that state."""
    start_time: str | None = None
    """When it was started: it is counted and holds its locks from then on."""
    finish_time: str | None = None
    """When it was over."""
    created_tasks: int = 0
    """Indexes that got a task, and attempts after the first."""
    running_tasks: int = 0
    """Tasks that run now."""
    tasks: tuple[TaskRef, ...] = ()
    """Newest attempts of indexes, at most 20: those that failed first, then those that run; all of
    them by `kiln get job NAME --indexes`."""
    parallel_status: ParallelStatus | None = None
    """Whether the index set is done; absent without `parallelism`."""
    indexes: Indexes | None = None
    """How many indexes are in which state."""
    result: api_task.Result | None = None
    """What the finalizer returned, or the task of a Job that has one; only in phase `Succeeded`."""
    observed_generation: int = 0
    """The `metadata.generation` that this status is about."""
    conditions: tuple[meta.Condition, ...] = ()
    """Milestones of the run: `Valid`, `Started`, `Finished`, `Stopped`; and `FieldsIgnored`."""


class Job(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """A set of tasks on one template: by count, keys, a matrix or a list, with one end."""

    metadata: meta.ObjectMeta
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()
    api_version: str = "kilnwork.dev/v1alpha1"
    kind: str = "Job"
