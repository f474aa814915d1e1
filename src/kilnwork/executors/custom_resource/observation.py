"""Derivation of the state of an attempt from its Kubernetes object.

No I/O. Used by `executor`. The status of the object counts only until we asked the object to end: a
later failure may come from the clean-up. If the object is gone, or only our finalizer keeps it, all
other finalizers have done their work, which is proof that the attempt has ended.
"""

from collections.abc import Sequence

from kilnwork.api import attempts, meta, reasons
from kilnwork.executors import port
from kilnwork.executors.custom_resource import status_reader, template

_R = reasons.Reason
_E = attempts.Ending
_S = status_reader.State


def observe(
    seen: meta.JsonObject,
    reading: status_reader.Reading,
    stop: port.Stop | None,
    *,
    pods: Sequence[str] = (),
) -> port.Observation:
    """Return the observation of an attempt whose object is `seen`.

    `stop`: set if the attempt is to end. `pods`: names of Pods that have not finished, although the
    object is reported as finished.
    """
    outcome = _outcome(seen, reading, stop, pods=pods)
    if outcome is not None:
        return port.Observation(
            phase=port.Phase.OVER,
            reason=outcome.reason,
            message=outcome.message,
            started=outcome.started,
            outcome=outcome,
        )
    staging = reading.state is _S.STAGING
    return port.Observation(
        phase=port.Phase.STAGING if staging else port.Phase.RUNNING,
        reason=_R.STARTED if reading.has_ended else reading.reason,
        message=_waits_for(seen, pods) or reading.message,
        started=None if staging else reading.started,
    )


def gone(what: str, stop: port.Stop | None) -> port.Observation:
    """Return the observation of an attempt whose object does not exist any more."""
    if stop is not None:
        outcome = attempts.Outcome(_E.STOPPED, stop.reason, f"{what} is gone")
    else:
        outcome = attempts.Outcome(
            _E.LOST, _R.OBJECT_LOST, f"{what} was deleted before its end was seen"
        )
    return port.Observation(
        phase=port.Phase.OVER, reason=outcome.reason, message=outcome.message, outcome=outcome
    )


def is_asked(seen: meta.JsonObject, reading: status_reader.Reading) -> bool:
    """Return whether an object was asked to end early."""
    return template.is_terminating(seen) or reading.stopping


def _outcome(
    seen: meta.JsonObject,
    reading: status_reader.Reading,
    stop: port.Stop | None,
    *,
    pods: Sequence[str],
) -> attempts.Outcome | None:
    terminating = template.is_terminating(seen)
    cleared = terminating and not template.finalizers_of_others(seen)
    if stop is not None and is_asked(seen, reading):
        stopped = reading.has_ended and reading.stopping and not pods
        if not (cleared or stopped):
            return None
        return attempts.Outcome(
            _E.STOPPED, stop.reason, reading.message if reading.has_ended else "", reading.exit_code
        )
    if reading.state is _S.SUCCEEDED:
        return _own(_E.SUCCEEDED, reading)
    if terminating:
        if not cleared:
            return None
        text = f"{seen.get('kind')} {seen['metadata']['name']} was deleted by another client"
        return attempts.Outcome(_E.LOST, _R.OBJECT_LOST, text)
    return _own(_E.FAILED, reading) if reading.state is _S.FAILED else None


def _own(ending: attempts.Ending, reading: status_reader.Reading) -> attempts.Outcome:
    return attempts.Outcome(
        ending,
        reading.reason,
        reading.message,
        reading.exit_code,
        started=reading.started,
        finished=reading.finished,
    )


def _waits_for(seen: meta.JsonObject, pods: Sequence[str]) -> str:
    """Return a message that says what an object which is to end still waits for."""
    if pods:
        return f"waiting for the end of Pod {pods[0]}" + (
            f" and {len(pods) - 1} more" if len(pods) > 1 else ""
        )
    if not template.is_terminating(seen):
        return ""
    left = ", ".join(template.finalizers_of_others(seen))
    return f"{seen.get('kind')} {seen['metadata']['name']} is being deleted; it waits for {left}"
