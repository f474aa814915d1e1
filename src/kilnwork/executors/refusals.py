"""What an API server that does not create an object means for its attempt. Pure.

Used by executors whose attempts are objects. What may pass by itself is waited for.
"""

from kilnwork.api import attempts, reasons
from kilnwork.executors import port
from kilnwork.kube import errors

CREATE_AGAIN_S = 5.0
"""How often an object is tried again that a ResourceQuota, or a missing account, does not let in:
nothing wakes us."""

_R = reasons.Reason


def waits(reason: str, message: str, *, check_s: float | None = None) -> port.Observation:
    """It has not been created, and is tried again after `check_s`; None: `CREATE_AGAIN_S`."""
    return port.Observation(
        phase=port.Phase.STAGING,
        reason=reason,
        message=message,
        check_s=CREATE_AGAIN_S if check_s is None else check_s,
        exists=False,
    )


def refused(reason: str, message: str) -> port.Observation:
    """It cannot be created, now or later."""
    outcome = attempts.Outcome(attempts.Ending.FAILED, reason, message, may_retry=False)
    return port.Observation(phase=port.Phase.OVER, reason=reason, message=message, outcome=outcome)


def name_taken(kind: str, name: str, attempt: port.Attempt) -> port.Observation:
    """An object has the name that the attempt needs, and was not made for it."""
    task, namespace = attempt.name, attempt.namespace
    return refused(
        _R.NAME_TAKEN,
        f"{kind} {name} in namespace {namespace} was not made for this task: delete it, then retry "
        f"the task (kiln retry {task} -n {namespace})",
    )


def refusal(error: errors.Invalid | errors.Forbidden) -> port.Observation:
    """Why an object may not be created.

    Admission names the object, and why; authorization names the user, and raises `error` again
    (apiserver pkg/endpoints/handlers/responsewriters, `pods is forbidden: User "…" cannot create
    …`).
    """
    said = str(error)
    if isinstance(error, errors.Invalid):
        return refused(_R.ADMISSION_ERROR, said)
    if any(c.get("reason") == "NamespaceTerminating" for c in error.details.get("causes") or ()):
        return refused(_R.NAMESPACE_ENDING, said)
    if "exceeded quota" in said:
        return waits(_R.QUOTA_EXCEEDED, said)
    if "error looking up service account" in said:
        return waits(_R.WAITING_FOR_SERVICE_ACCOUNT, said)
    if "is forbidden: User " in said:
        raise error
    return refused(_R.ADMISSION_ERROR, said)
