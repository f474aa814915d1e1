"""The time limits of a SyncSet: killTimestamp, deadline, and the limit for pinning, fetching and
keeping data.

No I/O. Used by `plan`. `now`: wall clock, in seconds.
"""

from kilnwork.api import reasons, sync_set
from kilnwork.controllers.sync_set import status
from kilnwork.kit import clock

Reason = reasons.SetReason


def requested_end(seen: sync_set.SyncSet, now: float) -> status.Explanation | None:
    """Return why the SyncSet must end now, or None if neither killTimestamp nor deadline has
    passed.
    """
    kill_in = seconds_until(seen.spec.kill_timestamp, now)
    if kill_in is not None and kill_in <= 0:
        return status.Explanation(
            Reason.KILLED, f"killTimestamp {seen.spec.kill_timestamp} has come"
        )
    left_s = _deadline_s(seen, now)
    if left_s is not None and left_s <= 0:
        text = f"it took longer than spec.deadlineSeconds, {seen.spec.deadline_seconds}"
        return status.Explanation(Reason.DEADLINE_EXCEEDED, text)
    return None


def seconds_to_next_end(seen: sync_set.SyncSet, now: float) -> float | None:
    """Return the seconds until killTimestamp or deadline, whichever is first; None if there is
    neither.
    """
    return shortest(seconds_until(seen.spec.kill_timestamp, now), _deadline_s(seen, now))


def _deadline_s(seen: sync_set.SyncSet, now: float) -> float | None:
    if seen.spec.deadline_seconds is None or not seen.status.admission_time:
        return None
    admitted = clock.parse_rfc3339(seen.status.admission_time)
    return admitted + seen.spec.deadline_seconds - now


def seconds_to_data_timeout(
    seen: sync_set.SyncSet, since: float | None, *, now: float
) -> float | None:
    """Return the seconds until the limit for pinning, fetching or keeping data, counted from
    `since` (wall clock); None if `since` is None.
    """
    return None if since is None else since + seen.spec.data.pond.timeout_seconds - now


def time_of(text: str | None) -> float | None:
    """Return a time of the status in seconds, or None if it is missing."""
    return clock.parse_rfc3339(text) if text else None


def timeout_explanation(
    seen: sync_set.SyncSet, what: str, why: status.Explanation
) -> status.Explanation:
    """Return the reason and message that `what` has taken too long. `why`: what it waited for."""
    limit = seen.spec.data.pond.timeout_seconds
    text = f"{what} took longer than data.pond.timeoutSeconds, {limit}: {why.message}"
    return status.Explanation(Reason.DATA_TIMED_OUT, text)


def shortest(*waits: float | None) -> float | None:
    """Return the shortest of several waits, or None if all are None."""
    return min((max(0.0, one) for one in waits if one is not None), default=None)


def seconds_until(time: str | None, now: float) -> float | None:
    """Return the seconds until a time (RFC 3339), or None if there is no time. Raises ValueError
    for an invalid time.
    """
    return None if time is None else clock.parse_rfc3339(time) - now
