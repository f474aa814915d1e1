"""Table for the docs: the state of an attempt for each report of its external executor.

The executor is a program of a user or the holder of a TaskClaim. Written into
docs/reference/executors.md. Not used by the manager.
"""

from kilnwork.api import reasons, task
from kilnwork.executors import state_table_types
from kilnwork.executors.state_table_types import Counts, Group

_R = reasons.Reason
_S = task.State

_GROUPS: tuple[Group, ...] = (
    (_S.PENDING, Counts.NOTHING, (
        (_R.EXECUTOR_UNAVAILABLE, "no program claims tasks of that executor in its namespace"),
        (_R.NO_FREE_SLOT, "all slots of those that do are taken"),
    )),
    (_S.STAGING, Counts.NOTHING, (
        (_R.STARTING, "it was given to one, which has not said that it has begun"),
    )),
    (_S.RUNNING, Counts.NOTHING, (
        (_R.STARTED, "the function was called; the claim is `Claimed`"),
    )),
    (_S.SUCCESS, Counts.NOTHING, (
        (_R.SUCCEEDED, "the function has returned; the outcome is `Succeeded`"),
    )),
    (_S.FAILED, Counts.FAILURE, (
        (_R.RAISED, "the function has raised, or `Failed` without a reason of its own"),
        (_R.INVALID_SPEC, "`payload` cannot be read with the variables put in"),
        (_R.INTERNAL_ERROR, "a defect of `kilnwork.executor`, whose log has the traceback"),
    )),
    (_S.FAILED, Counts.FINAL, (
        (_R.INVALID_RESULT, "what it has returned, or reported, is not what `outputType` says"),
        (_R.INVALID_SPEC, "the task does not fit into its claim"),
    )),
    (_S.PENDING, Counts.LOSS, (
        (_R.WORKER_LOST, "the program ended or did not renew its lease; the claim was deleted"),
        (_R.WORKER_STOPPING, "the program was asked to stop, and ended it"),
        (_R.RESULT_LOST, "its result could not be kept by the manager"),
    )),
    (_S.PENDING, Counts.NOTHING, (
        (_R.DISPATCHER_AWAY, "the manager was away for longer than the lease, so it was ended"),
    )),
    (_S.KILLING, Counts.NOTHING, (
        (_R.KILLED, "the function is cancelled; the claim is `Killing`"),
    )),
    (_S.KILLED, Counts.NOTHING, (
        (_R.KILLED, "the function has ended; the outcome is `Killed`; no executor had it"),
        (_R.UNCONFIRMED, "nothing is heard of it after the grace and a lease"),
    )),
)  # fmt: skip

TABLE = state_table_types.Table(
    "external", "external_states_reference", "", state_table_types.rows(_GROUPS)
)
