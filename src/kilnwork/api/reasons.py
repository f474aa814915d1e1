"""All reasons that our objects can show, with the sentences that explain them.

Used by dispatch, the worker, the executors, `jobs` and the controllers, which write them; run as a
program, this module prints docs/reference/reasons.md (`make docs`). Reasons are stable CamelCase
names that programs may compare. Messages are elsewhere: they describe one case and may change.
"""

import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import Self


class _Explained(StrEnum):
    """A name with an explanation."""

    sentence: str

    def __new__(cls, name: str, sentence: str = "") -> Self:
        """Create a member whose value is the text `name`, with an explanation."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.sentence = sentence
        return member


class Reason(_Explained):
    """Why a task is in its state: `status.reason`, and the reason that a worker reports for an
    attempt."""

    # Pending: the missing resource, and its holder
    WAITING_FOR_OBJECT = (
        "WaitingForObject",
        "A TaskObject that it takes as input does not exist yet.",
    )
    WAITING_FOR_VARIABLES = (
        "WaitingForVariables",
        "A Secret or ConfigMap that its `env` names cannot be read now; the message says why.",
    )
    WAITING_FOR_TASK = (
        "WaitingForTask",
        "A Task whose result it takes as input has not succeeded yet.",
    )
    WAITING_FOR_CLUSTER = (
        "WaitingForCluster",
        "Its TaskCluster does not exist in this namespace yet.",
    )
    WAITING_FOR_SERVICE_ACCOUNT = (
        "WaitingForServiceAccount",
        "Its TaskCluster has no worker: the ServiceAccount that it names does not exist yet.",
    )
    NO_WORKER = "NoWorker", "No worker of its TaskCluster is connected."
    NO_FREE_SLOT = "NoFreeSlot", "All slots of its TaskCluster are taken by other tasks."
    SUSPENDED = "Suspended", "`spec.suspend` is true; it starts when that becomes false."
    RETRY_BACKOFF = (
        "RetryBackoff",
        "The last attempt failed or was lost; the next one waits its delay.",
    )
    TAKEN_BACK = "TakenBack", "Its worker was lost before it started; it waits for another worker."

    EXECUTOR_UNAVAILABLE = (
        "ExecutorUnavailable",
        "What would run it is not there, or does not accept it at the moment.",
    )
    INTERNAL_ERROR = (
        "InternalError",
        "A defect of the manager or an executor, whose log has the traceback, is in its way.",
    )
    WAITING_FOR_INPUT = (
        "WaitingForInput",
        "A task whose result is among its arguments is not over yet.",
    )

    # Staging, Running
    IMAGE_PULL = "ImagePull", "The image of its Pod cannot be had yet; the message says why."
    UNSCHEDULABLE = "Unschedulable", "No node takes its Pod; the message is the scheduler's."
    QUOTA_EXCEEDED = "QuotaExceeded", "A ResourceQuota of its namespace has no room for its Pod."
    CONTAINER_NOT_STARTED = (
        "ContainerNotStarted",
        "A container of its Pod cannot be started yet; the message says why.",
    )
    NODE_LOST = "NodeLost", "Kubernetes does not hear of the node on which it runs or ran."
    STARTING = "Starting", "An attempt is reserved and was sent to a worker."
    STARTED = "Started", "Its command or function is running."
    CONNECTING = "Connecting", "Its request waits for a name, a connection or TLS."
    SERVICE_NOT_READY = (
        "ServiceNotReady",
        "The Service of its function is missing or not ready; the message says what Knative says.",
    )
    WAITING_FOR_RESULT = (
        "WaitingForResult",
        "Its request was accepted (202); the result is polled for, or a callback brings it.",
    )
    WAITING_FOR_CHILD = (
        "WaitingForChild",
        "It waits for tasks that it has spawned, and holds no slot meanwhile.",
    )
    DELEGATED = (
        "Delegated",
        "It returned another task's future: that task's outcome becomes its own.",
    )

    # How attempts and tasks end
    CACHED = (
        "Cached",
        "It has not run: it has the result of an earlier call (`cache=`), which the message names.",
    )
    SUCCEEDED = (
        "Succeeded",
        "The command exited 0, or the function returned, and its result was accepted.",
    )
    RAISED = "Raised", "The task function raised an exception; the message names it."
    SLOT_DIED = (
        "SlotDied",
        "The process of the task function ended under it: a crash, or an exit without a return.",
    )
    FUNCTION_NOT_FOUND = (
        "FunctionNotFound",
        "The task function cannot be imported or loaded on the worker.",
    )
    ARGUMENTS_NOT_LOADED = (
        "ArgumentsNotLoaded",
        "The arguments of the call cannot be read on the worker, say, because a module is missing.",
    )
    RESULT_NOT_PICKLED = (
        "ResultNotPickled",
        "What the task function returned can be neither written as JSON nor pickled.",
    )
    VALUE_MISSING = (
        "ValueMissing",
        "A blob that it needs is missing or damaged.",
    )
    VARIABLE_MISSING = (
        "VariableMissing",
        "A Secret, ConfigMap or key that its `env` names does not exist, or is no text.",
    )
    NON_ZERO_EXIT = "NonZeroExit", "The command exited with a code other than 0 and 75."
    RETRY_REQUESTED = "RetryRequested", "The command exited 75 (EX_TEMPFAIL): it asks for a retry."
    COMMAND_NOT_FOUND = (
        "CommandNotFound",
        "The command does not exist on the worker or may not be executed.",
    )
    COMMAND_MISSING = "CommandMissing", "The Task names no command, and nothing else gives one."
    INVALID_RESULT = (
        "InvalidResult",
        "What it wrote as result is not JSON, and `outputType` is json.",
    )
    RESULT_TOO_LARGE = "ResultTooLarge", "Its result is larger than 64 KiB; of a Pod, than 1 GiB."
    OUT_OF_MEMORY = (
        "OutOfMemory",
        "It used more memory than its worker may; this counts as a failure of the task.",
    )
    PROCESS_KILLED = (
        "ProcessKilled",
        "Its process was killed by a signal that kilnwork did not send; this counts as a loss.",
    )
    WORKER_LOST = "WorkerLost", "The worker that ran it ended or did not renew its lease."
    DISPATCHER_AWAY = (
        "DispatcherAway",
        "No dispatcher renewed its worker's lease, so the worker ended it; this counts as no loss.",
    )
    WORKER_STOPPING = (
        "WorkerStopping",
        "The worker that ran it was asked to stop; this counts as a loss.",
    )
    EXECUTOR_LOST = (
        "ExecutorLost",
        "The executor was lost after it may have sent the request, which must not be sent twice.",
    )
    REQUEST_FAILED = (
        "RequestFailed",
        "There was no connection, or it ended before the response did.",
    )
    REQUEST_TIMED_OUT = (
        "RequestTimedOut",
        "It took longer than its `timeout`, `polling` or `callback` allows.",
    )
    ADDRESS_REFUSED = (
        "AddressRefused",
        "The request, or a redirect, would go to an address that the executor may not reach.",
    )
    SECRET_REFUSED = (
        "SecretRefused",
        "A Secret of the request is missing, or not meant for requests to this host.",
    )
    RESPONSE_REJECTED = (
        "ResponseRejected",
        "The status is not 2xx, or a condition of its `response` says that it has failed.",
    )
    RESPONSE_TOO_LARGE = (
        "ResponseTooLarge",
        "The body is larger than its `response.maxBytes`; the rest was not read.",
    )
    INVALID_RESPONSE = (
        "InvalidResponse",
        "The response is no HTTP, or its body is not what its `response.format` says.",
    )
    EVICTED = "Evicted", "Kubernetes evicted its Pod; this counts as a loss."
    PREEMPTED = "Preempted", "Its Pod made room for one of higher priority; this counts as a loss."
    NODE_REFUSED = (
        "NodeRefused",
        "The node did not take the Pod that the scheduler gave it; this counts as a loss.",
    )
    RESULT_LOST = (
        "ResultLost",
        "It has succeeded, and its result could not be kept or handed over; this counts as a loss.",
    )
    POD_LOST = "PodLost", "Its Pod was deleted before it ended; this counts as a loss."
    OBJECT_LOST = (
        "ObjectLost",
        "Its object was deleted before it was over; this counts as a loss.",
    )
    OBJECT_FAILED = "ObjectFailed", "`failureCondition` is true of its object."
    WORKFLOW_FAILED = "WorkflowFailed", "Its Workflow has failed; the message is Argo's."
    EXECUTOR_ERROR = "ExecutorError", "Its Workflow has ended with an error of Argo itself."
    POD_FAILED = "PodFailed", "Its Pod failed, and no container says why."
    DEADLINE_EXCEEDED = (
        "DeadlineExceeded",
        "It ran longer than `activeDeadlineSeconds` of its Pod allows.",
    )
    ADMISSION_ERROR = "AdmissionError", "The API server refuses what it would run, for good."
    NAMESPACE_ENDING = (
        "NamespaceEnding",
        "Its namespace is being deleted, and nothing more can be created in it.",
    )
    NAME_TAKEN = "NameTaken", "An object of another owner has the name that its attempt needs."
    LOST_TOO_OFTEN = (
        "LostTooOften",
        "Its attempts were lost more often than `retry.maxLosses` allows.",
    )
    TIMED_OUT = "TimedOut", "An attempt ran longer than `timeouts.runningSeconds`."
    PENDING_TIMED_OUT = (
        "PendingTimedOut",
        "It waited longer than `timeouts.pendingSeconds` to start.",
    )
    TOTAL_TIMED_OUT = "TotalTimedOut", "The run took longer than `timeouts.totalSeconds`."
    INPUT_FAILED = "InputFailed", "A task whose result it takes as input has failed or was killed."
    INPUT_PATH_MISSING = "InputPathMissing", "The `path` of an input matches nothing in that input."
    INPUT_TOO_LARGE = "InputTooLarge", "Its inputs together are larger than 512 KiB."
    INVALID_SPEC = "InvalidSpec", "Its spec cannot be carried out as written."
    DEADLOCK = (
        "Deadlock",
        "It waited for a task that waits for it; neither would ever have ended.",
    )
    CLUSTER_DELETED = "ClusterDeleted", "Its TaskCluster was deleted before it ended."
    KEY_TAKEN = (
        "KeyTaken",
        "Its key already names a call of another function or with other arguments.",
    )
    NON_DETERMINISTIC_RETRY = (
        "NonDeterministicRetry",
        "A repeated attempt asked for another child than before; the old child was killed.",
    )

    # Killing, Killed
    KILLED = "Killed", "It was killed on request: `killTimestamp`, or cancel."
    DELETED = "Deleted", "Its Task object was deleted before it ended."
    PARENT_KILLED = "ParentKilled", "The task that spawned it was killed."
    REPLACED = (
        "Replaced",
        "The run that spawned it no longer asks for it, or a new run took its place.",
    )
    UNCONFIRMED = (
        "Unconfirmed",
        "It was killed, unproved that nothing of it is left; condition `Stopped` tells it later.",
    )


NO_FAILURES = frozenset(Reason(name) for name in (
    "WaitingForObject", "WaitingForTask", "WaitingForCluster", "WaitingForServiceAccount",
    "WaitingForResult", "WaitingForInput", "WaitingForChild", "NoWorker", "NoFreeSlot",
    "Suspended", "RetryBackoff", "TakenBack", "Starting", "ExecutorUnavailable",
    "InternalError", "Started", "Delegated", "Succeeded", "WorkerLost", "WorkerStopping",
    "DispatcherAway", "ExecutorLost", "NodeLost", "PodLost", "ObjectLost", "ResultLost",
    "LostTooOften", "Evicted", "Preempted", "TimedOut", "PendingTimedOut", "TotalTimedOut",
    "NamespaceEnding", "ClusterDeleted", "Killed", "Deleted", "ParentKilled", "Replaced",
    "Unconfirmed",
))  # fmt: skip
"""Reasons with which the manager marks waiting, running, lost and killed tasks; user-written
programs may not report them."""


class ClusterReason(_Explained):
    """Why a condition of a TaskCluster has its status."""

    WORKERS_READY = "WorkersReady", "All workers that the spec asks for are connected."
    WORKERS_STARTING = "WorkersStarting", "Some workers are connected, others are starting."
    WORKERS_REPLACED = (
        "WorkersReplaced",
        "Workers of an older template are being replaced; the message says which is to go.",
    )
    NO_WORKERS_READY = "NoWorkersReady", "No worker is connected."
    SCALED_TO_ZERO = "ScaledToZero", "`spec.replicas` is 0: its tasks wait until that is raised."
    SERVICE_ACCOUNT_MISSING = (
        "ServiceAccountMissing",
        "The ServiceAccount that the spec names does not exist, so no worker Pod can be made.",
    )
    INVALID_SPEC = "InvalidSpec", "No worker Pod can be made of its spec; the message says why."
    POD_REFUSED = "PodRefused", "The API server refuses the worker Pods; the message says why."
    QUOTA_EXCEEDED = (
        "QuotaExceeded",
        "A ResourceQuota of the namespace has no room for more worker Pods.",
    )
    NAMESPACE_ENDING = "NamespaceEnding", "Its namespace is being deleted."
    UNSCHEDULABLE = (
        "Unschedulable",
        "No node takes the worker Pods; the message is the scheduler's.",
    )
    IMAGE_NOT_PULLED = "ImageNotPulled", "The image of the worker Pods cannot be had."
    POD_NAME_TAKEN = (
        "PodNameTaken",
        "A Pod of another owner has the name of a worker Pod.",
    )
    SECRET_NAME_TAKEN = (
        "SecretNameTaken",
        "A Secret of another owner has the name of the channel Secret.",
    )
    NOT_SERVED = (
        "NotServed",
        "The manager does not serve its namespace any more (`--only-in`); its workers are gone.",
    )
    DRAINING = (
        "Draining",
        "It is being deleted: what runs may end, what waits has failed with `ClusterDeleted`.",
    )
    NODE_NOT_READY = (
        "NodeNotReady",
        "Kubernetes takes the node of a worker for lost, and will soon put the worker elsewhere.",
    )
    WORKERS_EVICTED = (
        "WorkersEvicted",
        "Kubernetes evicts a worker Pod; another takes its place.",
    )
    WORKERS_FAILING = (
        "WorkersFailing",
        "Worker Pods end as soon as they start; the message says how.",
    )


class JobReason(_Explained):
    """Why a Job is in its phase; also the reasons of its kube events."""

    WAITING_FOR_JOB_CONFIG = (
        "WaitingForJobConfig",
        "The JobConfig that it names does not exist yet.",
    )
    NOT_YET_DUE = "NotYetDue", "`startPolicy.startAfter` has not come."
    QUEUED = "Queued", "Others of its JobConfig run or come before it; the message names them."
    WAITING_FOR_LOCK = "WaitingForLock", "Another Job holds one of its locks."
    WAITING_FOR_DEPENDENCY = (
        "WaitingForDependency",
        "Something in `dependsOn` is not over, or does not exist yet.",
    )
    WAITING_FOR_RESULT = (
        "WaitingForResult",
        "The task that returns the list of its indexes has not succeeded yet.",
    )
    FORBIDDEN = (
        "Forbidden",
        "As many Jobs of its JobConfig run as may, and its concurrency policy is `Forbid`.",
    )
    QUEUE_FULL = "QueueFull", "As many Jobs of its JobConfig wait as may (`maxQueued`)."
    TICK_NOT_DECIDED = (
        "TickNotDecided",
        "It names a tick that its schedule has not decided to run, or that another Job has run.",
    )
    DEPENDENCY_FAILED = (
        "DependencyFailed",
        "Something in `dependsOn` did not end as it must for this Job to start.",
    )
    REPLACED = "Replaced", "A newer Job of its JobConfig took its place (policy `Replace`)."
    JOB_TIMED_OUT = "JobTimedOut", "It took longer than `timeouts.jobSeconds` from its start."
    INDEXES_FAILED = (
        "IndexesFailed",
        "More indexes failed for good than its completion strategy allows.",
    )
    FINALIZER_FAILED = "FinalizerFailed", "Its finalizer failed."
    FIELDS_REPLACED = (
        "FieldsReplaced",
        "Fields of the Job were replaced by those of its JobConfig (a kube event).",
    )


class ConfigReason(_Explained):
    """Why a tick of a JobConfig created no Job; also the reasons of its kube events."""

    FORBIDDEN = "Forbidden", "As many Jobs run as may, and the concurrency policy is `Forbid`."
    QUEUE_FULL = "QueueFull", "As many Jobs wait as may (`maxQueued`)."
    TOO_LATE = "TooLate", "It was missed for longer than `missedRuns.withinSeconds`."
    MISSED_RUNS_POLICY = (
        "MissedRunsPolicy",
        "It was missed, and `missedRuns.policy` drops it, or a later one runs in its place.",
    )
    NAME_TAKEN = "NameTaken", "A Job of another owner has the name that its Job needs."
    REFUSED = "Refused", "Its Job was made and is `AdmissionError`: its status says why."
    JOB_NOT_MADE = (
        "JobNotMade",
        "The API server does not let its Job be made: tried for five minutes, then missed.",
    )
    JOB_DELETED = "JobDeleted", "A client deleted its Job before it was taken up."
    DISABLED = "Disabled", "Its schedule was disabled or removed before its Job was made."


class SetReason(_Explained):
    """Why a SyncSet is in its phase; also the reasons of its conditions and kube events."""

    INVALID_SPEC = "InvalidSpec", "The spec cannot be carried out; the message names the field."
    SUSPENDED = "Suspended", "`spec.suspend` is true; it goes on when that becomes false."
    NO_DATA = "NoData", "It has no snapshots, so nothing has to be fetched."
    WAITING_FOR_POND = (
        "WaitingForPond",
        "Its DataPond does not exist in this namespace yet, or has no agent that is connected.",
    )
    PINNING = "Pinning", "Sources are read to find the digests of its snapshots."
    PINNED = "Pinned", "Its snapshots are pinned by their digests."
    PIN_FAILED = "PinFailed", "A source cannot be read; the message says which, and why."
    SOURCE_CHANGED = (
        "SourceChanged",
        "The data of a digest is on no node, and its source has other data now.",
    )
    NO_GENERATION = (
        "NoGeneration",
        "The generation that it is to repeat is not kept any more, or never was.",
    )
    FETCHING = "Fetching", "Nodes fetch what they need of the snapshots; the message says which."
    DATA_CORRUPT = (
        "DataCorrupt",
        "Data differs from its digest, and was fetched once more in vain.",
    )
    FETCH_FAILED = (
        "FetchFailed",
        "A node cannot have the data, and will not by waiting; the message says why.",
    )
    DATA_READY = "DataReady", "Every node of its workers holds what it needs at the digest."
    DATA_TIMED_OUT = (
        "DataTimedOut",
        "Pinning or fetching took longer than `data.pond.timeoutSeconds`.",
    )
    WAITING_FOR_DATA = "WaitingForData", "Workers wait at their gate for data on their nodes."
    WAITING_FOR_ROOM = (
        "WaitingForRoom",
        (
            "There is no room for all workers at once; nothing is held. The message says who lacks "
            "what."
        ),
    )
    WAITING_FOR_WORKERS = (
        "WaitingForWorkers",
        "Not as many workers are connected as every group needs.",
    )
    OBJECT_REFUSED = (
        "ObjectRefused",
        (
            "An object of the set cannot be made; the message says which, and why. After 60 s the "
            "set fails."
        ),
    )
    GANG_READY = "GangReady", "As many workers are connected as every group needs."
    GANG_TIMED_OUT = (
        "GangTimedOut",
        "The workers did not start together within `gang.waitSeconds`.",
    )
    WORKER_ENDED = "WorkerEnded", "A worker ended whose group says `onPodFailed: fail`."
    FLOW_RUNNING = "FlowRunning", "The flow runs."
    FLOW_SUCCEEDED = "FlowSucceeded", "All steps of the flow succeeded, or were skipped."
    FLOW_FAILED = "FlowFailed", "A step of the flow failed."
    RETRYING = (
        "Retrying",
        "What failed is to run again, when data and workers are there as before.",
    )
    KEEPING_OUTPUTS = (
        "KeepingOutputs",
        "The flow succeeded; files that its steps have written become snapshots of the pond.",
    )
    OUTPUT_FAILED = (
        "OutputFailed",
        "The flow succeeded, but an output of it cannot be kept; the message says which, and why.",
    )
    DEADLINE_EXCEEDED = (
        "DeadlineExceeded",
        "The generation took longer than `deadlineSeconds` from its admission.",
    )
    KILLED = "Killed", "It was killed."
    SUPERSEDED = "Superseded", "A higher `spec.generation` was asked for while it ran."


class PondReason(_Explained):
    """Why a DataPond is ready or full, or not; also the reasons of its kube events."""

    AGENTS_READY = "AgentsReady", "Every node that is selected has an agent that reports."
    AGENTS_STARTING = "AgentsStarting", "Agents have not reported yet."
    AGENT_SILENT = "AgentSilent", "An agent does not report any more."
    AGENTS_FAILING = "AgentsFailing", "Pods of agents fail; the message has their last words."
    NO_NODES = "NoNodes", "`spec.nodeSelector` selects no node that takes Pods."
    POND_UNUSABLE = (
        "PondUnusable",
        "A node's directory cannot be used: another pond has it, or it holds something else.",
    )
    POND_FULL = "PondFull", "A node has no room for what is wanted beside what is leased."
    ROOM_LEFT = "RoomLeft", "What is wanted has room."
    INVALID_SPEC = "InvalidSpec", "The spec cannot be carried out; the message names the field."
    NOT_INSTALLED = "NotInstalled", "The manager was installed without `--ponds`."
    POD_REFUSED = "PodRefused", "The API server does not let an agent's Pod or the Secret be made."
    NAME_TAKEN = "NameTaken", "An object of another owner has the name of a Pod or of the Secret."
    LEASES_HELD = "LeasesHeld", "It is deleted, and SyncSets still need what it holds."
    REMOVING_DATA = "RemovingData", "It is deleted, and agents remove what it has on their nodes."
    DATA_LEFT = "DataLeft", "It is gone, and its directory stays on the nodes that were away."


class FlowReason(_Explained):
    """Why a flow or one of its steps is in its state, in addition to the reasons of the step's
    task."""

    SHARDS_FAILED = "ShardsFailed", "More items of an `each` failed for good than `allow.failed`."
    BRANCHES_SKIPPED = "BranchesSkipped", "Too many branches of a fork were skipped for `wait`."
    MAX_ROUNDS_REACHED = "MaxRoundsReached", "`until` was still false after `max` rounds."
    EXPRESSION_FAILED = "ExpressionFailed", "An expression has no value; the message says why."
    RESULT_TOO_LARGE = "ResultTooLarge", "Another step reads its result, which it cannot be given."
    INPUT_TOO_LARGE = "InputTooLarge", "Its inputs and items together are larger than 16 MiB."
    INVALID_SPEC = "InvalidSpec", "It names a group or shards that the run has not got."
    STEP_TIMED_OUT = "StepTimedOut", "It took longer than its `timeoutSeconds`."
    FLOW_TIMED_OUT = "FlowTimedOut", "The steps of `do` took longer than `flow.timeoutSeconds`."
    FINALLY_TIMED_OUT = "FinallyTimedOut", "The steps of `finally` took longer than 600 s."
    JOB_LOST = "JobLost", "The journal has lost what it had of the step."
    CONDITION_FALSE = "ConditionFalse", "Its `if` is false, and it has no `else`."
    INPUT_SKIPPED = "InputSkipped", "It reads the value of a step that was skipped."
    STOPPED = "Stopped", "It was not needed any more, or something around it has ended."
    KILLED = "Killed", "A user asked for the end of the run."
    DELETED = "Deleted", "The generation was deleted while it ran."


Family = (
    type[Reason]
    | type[ClusterReason]
    | type[JobReason]
    | type[ConfigReason]
    | type[SetReason]
    | type[FlowReason]
    | type[PondReason]
)

ALL: tuple[Family, ...] = (
    Reason,
    ClusterReason,
    JobReason,
    ConfigReason,
    SetReason,
    FlowReason,
    PondReason,
)
"""All enumerations of reasons, in the order of the docs."""

_INTRODUCTION = """\
# Reasons

<!-- Written by `make docs` from kilnwork.api.reasons. -->

A reason is one stable word: a program may compare it. The message beside it names the facts of the
case, for people, and may change. `kiln why NAME` makes a sentence of both.
"""

_HEADINGS: dict[Family, str] = {
    Reason: "## Task\n\nIn `status.reason`, in its conditions and in its kube events.",
    ClusterReason: "## TaskCluster\n\nIn its conditions and in its kube events.",
    JobReason: "## Job\n\nIn `status.reason`, in its conditions and in its kube events.",
    PondReason: "## DataPond\n\nIn its conditions and in its kube events.",
    ConfigReason: "## JobConfig\n\nIn `status.missed` and in its kube events.",
    SetReason: "## SyncSet\n\nIn `status.reason`, in its conditions and in its kube events.",
    FlowReason: "## Steps of flows\n\nIn `status.flow` of a SyncSet, beside the reasons of tasks.",
}


def page() -> str:
    """Return the text of docs/reference/reasons.md."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    for family in ALL:
        yield _HEADINGS[family]
        yield "\n| reason | means |\n|---|---|"
        yield from (f"| `{reason}` | {reason.sentence} |" for reason in family)
        yield ""


if __name__ == "__main__":
    sys.stdout.write(page())
