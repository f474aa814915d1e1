"""Table for the docs: the state of an attempt for each observed state of its ephemeral container.

Written into docs/reference/executors.md; tests/unit/executors compares it with `observation`. Not
used by the manager.
"""

from kilnwork.api import reasons, task
from kilnwork.executors import state_table_types
from kilnwork.executors.state_table_types import Counts, Group

_R = reasons.Reason
_S = task.State

_GROUPS: tuple[Group, ...] = (
    (_S.PENDING, Counts.NOTHING, (
        (_R.NO_WORKER, "none: no worker of its TaskCluster is connected"),
        (_R.NO_FREE_SLOT, "none: all slots of the workers are taken"),
    )),
    (_S.STAGING, Counts.NOTHING, (
        (_R.STARTING, "none: its worker has it, and asks for it"),
        (_R.EXECUTOR_UNAVAILABLE, "none: the API server is away, or does not let the manager"),
        (_R.INTERNAL_ERROR, "none, or any: a defect of the manager, which tries again"),
        (_R.STARTING, "added to the Pod, and the kubelet has said nothing of it or starts it"),
        (_R.IMAGE_PULL, "`waiting`, and its image cannot be pulled"),
        (_R.CONTAINER_NOT_STARTED, "`waiting` for another reason"),
    )),
    (_S.RUNNING, Counts.NOTHING, (
        (_R.STARTED, "`running`"),
    )),
    (_S.SUCCESS, Counts.NOTHING, (
        (_R.SUCCEEDED, "`terminated` with 0, whatever has become of its Pod"),
    )),
    (_S.FAILED, Counts.FAILURE, (
        (_R.NON_ZERO_EXIT, "`terminated` with another code than 0"),
        (_R.RETRY_REQUESTED, "`terminated` with 75"),
        (_R.OUT_OF_MEMORY, "`OOMKilled`: it used more memory than its Pod may"),
        (_R.COMMAND_NOT_FOUND, "`StartError`: its program cannot be started"),
        (_R.INVALID_RESULT, "`terminated` with 0 and a result that is no JSON"),
        (_R.RESULT_TOO_LARGE, "`terminated` with 0 and a result of more than 64 KiB"),
    )),
    (_S.FAILED, Counts.FINAL, (
        (_R.ADMISSION_ERROR, "none: admission refuses it"),
        (_R.NAME_TAKEN, "the Pod has a container of that name that was not added for it"),
    )),
    (_S.PENDING, Counts.LOSS, (
        (_R.EVICTED, "`terminated`: its Pod was evicted"),
        (_R.PREEMPTED, "`terminated`: its Pod made room for another"),
        (_R.NODE_LOST, "`terminated`: its node shuts down, or was deleted"),
        (_R.PROCESS_KILLED, "ended by SIGKILL, and not for memory"),
        (_R.WORKER_STOPPING, "its Pod was deleted before it ended"),
        (_R.WORKER_LOST, "its worker ended, or did not renew its lease"),
    )),
    (_S.KILLING, Counts.NOTHING, (
        (_R.KILLED, "its worker was asked to end it, and it is not over"),
    )),
    (_S.KILLED, Counts.NOTHING, (
        (_R.KILLED, "`terminated` after that, or never added"),
        (_R.UNCONFIRMED, "not over after the grace and a lease"),
    )),
)  # fmt: skip

TABLE = state_table_types.Table(
    "ephemeral", "ephemeral.states_reference", "container", state_table_types.rows(_GROUPS)
)
