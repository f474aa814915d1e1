"""Observations of attempts whose objects the API server did not create.

No I/O. Used by executors whose attempts are objects. After an error that may be temporary, the
attempt waits and its creation is tried again.
"""

from kilnwork.api import attempts, reasons
from kilnwork.executors import port
from kilnwork.kube import errors

CREATE_AGAIN_S = 5.0
"""Interval in seconds at which we retry to create an object that a ResourceQuota or a missing
ServiceAccount prevented, since no watch reports when that changes."""

_R = reasons.Reason


def waits(reason: str, message: str, *, check_s: float | None = None) -> port.Observation:
    """Return the observation of an attempt whose creation is tried again later.

    It is tried again after `check_s`; None: `CREATE_AGAIN_S`.
    """
    return port.Observation(
        phase=port.Phase.STAGING,
        reason=reason,
        message=message,
        check_s=CREATE_AGAIN_S if check_s is None else check_s,
        exists=False,
    )


def refused(reason: str, message: str) -> port.Observation:
    """Return the observation of an attempt that can never be created."""
    outcome = attempts.Outcome(attempts.Ending.FAILED, reason, message, may_retry=False)
    return port.Observation(phase=port.Phase.OVER, reason=reason, message=message, outcome=outcome)


def name_taken(kind: str, name: str, attempt: port.Attempt) -> port.Observation:
    """Return the observation of an attempt whose name belongs to an object that was not created for
    it.
    """
    task, namespace = attempt.name, attempt.namespace
    return refused(
        _R.NAME_TAKEN,
        f"{kind} {name} in namespace {namespace} was not made for this task: delete it, then retry "
        f"the task (kiln retry {task} -n {namespace})",
    )


def refusal(error: errors.Invalid | errors.Forbidden) -> port.Observation:
    """Return the observation of an attempt whose object may not be created.

    An error of admission names the object and the reason; an error of authorization names the user,
    and is raised again (apiserver pkg/endpoints/handlers/responsewriters, `pods is forbidden: User
    "…" cannot create …`).
    """
    message = str(error)
    if isinstance(error, errors.Invalid):
        return refused(_R.ADMISSION_ERROR, message)
    if any(c.get("reason") == "NamespaceTerminating" for c in error.details.get("causes") or ()):
        return refused(_R.NAMESPACE_ENDING, message)
    if "exceeded quota" in message:
        return waits(_R.QUOTA_EXCEEDED, message)
    if "error looking up service account" in message:
        return waits(_R.WAITING_FOR_SERVICE_ACCOUNT, message)
    if "is forbidden: User " in message:
        raise error
    return refused(_R.ADMISSION_ERROR, message)
