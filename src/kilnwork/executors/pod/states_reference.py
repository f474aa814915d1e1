"""Table for the docs: the state of an attempt for each observed state of its Pod.

Written into docs/reference/executors.md. A test judges a Pod for each row and compares. Not used by
the manager.
"""

from kilnwork.api import reasons, task
from kilnwork.executors import state_table_types
from kilnwork.executors.state_table_types import Counts, Group

_R = reasons.Reason
_S = task.State

_GROUPS: tuple[Group, ...] = (
    (_S.STAGING, Counts.NOTHING, (
        (_R.EXECUTOR_UNAVAILABLE, "no Pod: the API server is away, or does not let the manager"),
        (_R.INTERNAL_ERROR, "no Pod, or any: a defect of the manager, which tries again"),
        (_R.QUOTA_EXCEEDED, "no Pod: a ResourceQuota has no room"),
        (_R.WAITING_FOR_SERVICE_ACCOUNT, "no Pod: its ServiceAccount does not exist yet"),
        (_R.UNSCHEDULABLE, "`Pending`, and condition PodScheduled is False"),
        (_R.IMAGE_PULL, "`Pending`, and an image cannot be pulled"),
        (_R.CONTAINER_NOT_STARTED, "`Pending`, and a container waits for another reason"),
        (_R.STARTING, "`Pending` otherwise: it is placed, pulled, or its init containers run"),
        (_R.NODE_LOST, "its node was lost before a container started"),
    )),
    (_S.RUNNING, Counts.NOTHING, (
        (_R.STARTED, "`Running`, or a container has started while others wait"),
        (_R.STARTED, "a container waits to be started again (`restartPolicy: OnFailure`)"),
        (_R.STARTED, "it is being deleted, and is not over"),
        (_R.NODE_LOST, "its node is lost"),
    )),
    (_S.SUCCESS, Counts.NOTHING, (
        (_R.SUCCEEDED, "`Succeeded`"),
    )),
    (_S.FAILED, Counts.FAILURE, (
        (_R.NON_ZERO_EXIT, "`Failed`: a container exited with another code than 0"),
        (_R.RETRY_REQUESTED, "`Failed`: a container exited 75"),
        (_R.OUT_OF_MEMORY, "`Failed`: a container was killed because of its memory limit"),
        (_R.COMMAND_NOT_FOUND, "`Failed`: the program of a container cannot be started"),
        (_R.DEADLINE_EXCEEDED, "`Failed`: `activeDeadlineSeconds` of the Pod is over"),
        (_R.POD_FAILED, "`Failed`, and no container says why"),
        (_R.INVALID_RESULT, "`Succeeded` with a result that cannot be used"),
        (_R.RESULT_TOO_LARGE, "`Succeeded` with a result that is too large"),
    )),
    (_S.FAILED, Counts.FINAL, (
        (_R.INVALID_SPEC, "no Pod: its template cannot be read with the variables put in"),
        (_R.ADMISSION_ERROR, "no Pod: admission refuses it"),
        (_R.NAMESPACE_ENDING, "no Pod: its namespace is being deleted"),
        (_R.NAME_TAKEN, "a Pod that is not ours has its name"),
    )),
    (_S.PENDING, Counts.LOSS, (
        (_R.EVICTED, "`Failed`: evicted, or drained with its node"),
        (_R.PREEMPTED, "`Failed`: it made room for a Pod of higher priority"),
        (_R.NODE_LOST, "`Failed`: its node shuts down, or was deleted"),
        (_R.NODE_REFUSED, "`Failed`: its node did not take it"),
        (_R.PROCESS_KILLED, "`Failed`: a container was ended by SIGKILL, and not for memory"),
        (_R.POD_LOST, "deleted by another client before its end, or gone"),
        (_R.RESULT_LOST, "`Succeeded`, and its result could not be handed over"),
    )),
    (_S.KILLING, Counts.NOTHING, (
        (_R.KILLED, "its deletion is asked for, and it is not over"),
    )),
    (_S.KILLED, Counts.NOTHING, (
        (_R.KILLED, "over after that, or never created"),
        (_R.UNCONFIRMED, "removed by force or with its node, or not over after grace and a lease"),
    )),
)  # fmt: skip

TABLE = state_table_types.Table(
    "states", "pod.states_reference", "Pod", state_table_types.rows(_GROUPS)
)
