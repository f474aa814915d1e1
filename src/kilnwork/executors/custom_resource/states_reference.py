"""Tables for the docs: the state of an attempt for each observed state of its object or Workflow.

Written into docs/reference/executors.md; tests/unit/executors compares them with the code. Not used
by the manager.
"""

from kilnwork.api import reasons, task
from kilnwork.executors import state_table_types
from kilnwork.executors.state_table_types import Counts, Group

_R = reasons.Reason
_S = task.State

_BEFORE: tuple[Group, ...] = (
    (_S.STAGING, Counts.NOTHING, (
        (_R.EXECUTOR_UNAVAILABLE, "none: its kind is not there; the API server is away or refuses"),
        (_R.INTERNAL_ERROR, "none, or any: a defect of the manager, which tries again"),
        (_R.WAITING_FOR_SERVICE_ACCOUNT, "none: `serviceAccountName` does not exist yet"),
        (_R.QUOTA_EXCEEDED, "none: a ResourceQuota has no room"),
    )),
    (_S.FAILED, Counts.FINAL, (
        (_R.INVALID_SPEC, "none: its manifest cannot be read with the variables put in"),
        (_R.ADMISSION_ERROR, "none: admission refuses it, or tasks may not make such an object"),
        (_R.NAMESPACE_ENDING, "none: its namespace is being deleted"),
        (_R.NAME_TAKEN, "an object that is not ours has its name"),
    )),
)  # fmt: skip

_OBJECTS: tuple[Group, ...] = (
    *_BEFORE,
    (_S.STAGING, Counts.NOTHING, (
        (_R.STARTING, "`runningCondition` is not true yet"),
        (_R.STARTING, "`status.observedGeneration` is not `metadata.generation`"),
    )),
    (_S.RUNNING, Counts.NOTHING, (
        (_R.STARTED, "`runningCondition` is true, or there is none"),
        (_R.STARTED, "it is being deleted, and its finalizers have not run"),
    )),
    (_S.SUCCESS, Counts.NOTHING, (
        (_R.SUCCEEDED, "`successCondition` is true, and `failureCondition` is not"),
    )),
    (_S.FAILED, Counts.FAILURE, (
        (_R.OBJECT_FAILED, "`failureCondition` is true"),
        (_R.INVALID_RESULT, "it has succeeded, and nothing is at `result.jsonPath`"),
        (_R.RESULT_TOO_LARGE, "it has succeeded with a result that is too large"),
    )),
    (_S.PENDING, Counts.LOSS, (
        (_R.OBJECT_LOST, "it was deleted before it had succeeded; its finalizers have run"),
        (_R.RESULT_LOST, "it had succeeded, and was gone before its result was read"),
    )),
    (_S.KILLING, Counts.NOTHING, (
        (_R.KILLED, "we are deleting it, and its finalizers have not run"),
    )),
    (_S.KILLED, Counts.NOTHING, (
        (_R.KILLED, "gone after that, or never created"),
        (_R.UNCONFIRMED, "not gone after the grace and a lease"),
    )),
)  # fmt: skip

_WORKFLOWS: tuple[Group, ...] = (
    *_BEFORE,
    (_S.STAGING, Counts.NOTHING, (
        (_R.STARTING, "no phase: no workflow-controller has seen it yet"),
        (_R.STARTING, "`Pending`: it waits for a lock, or for others"),
    )),
    (_S.RUNNING, Counts.NOTHING, (
        (_R.STARTED, "`Running`"),
        (_R.SUSPENDED, "`Running`, and `spec.suspend` is true or a step waits to be resumed"),
        (_R.STARTED, "it is being deleted, and its finalizers have not run"),
    )),
    (_S.SUCCESS, Counts.NOTHING, (
        (_R.SUCCEEDED, "`Succeeded`"),
    )),
    (_S.FAILED, Counts.FAILURE, (
        (_R.WORKFLOW_FAILED, "`Failed`, also because another client has stopped it"),
        (_R.EXECUTOR_ERROR, "`Error`"),
        (_R.RESULT_TOO_LARGE, "`Succeeded` with outputs that are too large"),
        (_R.INVALID_RESULT, "`Succeeded` with outputs that cannot be used"),
    )),
    (_S.PENDING, Counts.LOSS, (
        (_R.OBJECT_LOST, "it was deleted before it had succeeded; its finalizers have run"),
        (_R.RESULT_LOST, "it had succeeded, and was gone before its result was read"),
    )),
    (_S.KILLING, Counts.NOTHING, (
        (_R.KILLED, "we have stopped it, and it or one of its Pods is not over"),
    )),
    (_S.KILLED, Counts.NOTHING, (
        (_R.KILLED, "over after that with all its Pods, in whatever phase; gone; never created"),
        (_R.UNCONFIRMED, "not over after the grace and a lease"),
    )),
)  # fmt: skip

_MODULE = "custom_resource.states_reference"
OBJECTS = state_table_types.Table("objects", _MODULE, "object", state_table_types.rows(_OBJECTS))
WORKFLOWS = state_table_types.Table(
    "workflows", _MODULE, "Workflow", state_table_types.rows(_WORKFLOWS)
)
