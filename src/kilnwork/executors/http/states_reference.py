"""Table for the docs: the state of an HTTP attempt for each observed state of its request.

Written into docs/reference/http.md. Not used by executors.
"""

from kilnwork.api import reasons, task
from kilnwork.executors import state_table_types
from kilnwork.executors.state_table_types import Counts, Group

_R = reasons.Reason
_S = task.State

_GROUPS: tuple[Group, ...] = (
    (_S.PENDING, Counts.NOTHING, (
        (_R.EXECUTOR_UNAVAILABLE, "no executor with the labels is connected"),
        (_R.NO_FREE_SLOT, "all slots of the executors are taken"),
    )),
    (_S.STAGING, Counts.NOTHING, (
        (_R.EXECUTOR_UNAVAILABLE, "function: there is no Knative"),
        (_R.SERVICE_NOT_READY, "function: the Service is missing, not ready, or has failed"),
        (_R.CONNECTING, "the name, the connection or TLS takes its time"),
    )),
    (_S.RUNNING, Counts.NOTHING, (
        (_R.STARTED, "it is being sent, also while a function starts; the response is read"),
        (_R.WAITING_FOR_RESULT, "202: polled for, or awaited by callback"),
    )),
    (_S.SUCCESS, Counts.NOTHING, (
        (_R.SUCCEEDED, "the response is whole, and a success"),
    )),
    (_S.FAILED, Counts.FAILURE, (
        (_R.RESPONSE_REJECTED, "the status or a condition says so"),
        (_R.REQUEST_FAILED, "no connection, TLS failed, or it ended early"),
        (_R.REQUEST_TIMED_OUT, "a deadline of `timeout`, `polling` or `callback` has passed"),
        (_R.RESPONSE_TOO_LARGE, "the body is larger than `maxBytes`"),
        (_R.INVALID_RESPONSE, "no HTTP, or the body is not what `format` says"),
        (_R.ADDRESS_REFUSED, "an address may not be reached"),
        (_R.SECRET_REFUSED, "a Secret is missing or not for this"),
        (_R.INVALID_SPEC, "variables have made it invalid"),
        (_R.INTERNAL_ERROR, "a defect of the executor, whose log has the traceback"),
    )),
    (_S.FAILED, Counts.FINAL, (
        (_R.EXECUTOR_LOST, "the executor was lost after it may have been sent; no URL to ask"),
    )),
    (_S.PENDING, Counts.LOSS, (
        (_R.WORKER_LOST, "the executor was lost, and it may be repeated or was not sent"),
        (_R.WORKER_STOPPING, "the executor was stopped, and the same"),
        (_R.RESULT_LOST, "its result could not be kept by the manager"),
    )),
    (_S.PENDING, Counts.NOTHING, (
        (_R.DISPATCHER_AWAY, "the manager was away for longer than the lease, and the same"),
    )),
    (_S.KILLING, Counts.NOTHING, (
        (_R.KILLED, "the executor was asked to end it"),
    )),
    (_S.KILLED, Counts.NOTHING, (
        (_R.KILLED, "the connection is gone"),
        (_R.UNCONFIRMED, "the executor is silent, or work elsewhere could not be ended"),
    )),
)  # fmt: skip

TABLE = state_table_types.Table(
    "requests", "http.states_reference", "", state_table_types.rows(_GROUPS)
)
