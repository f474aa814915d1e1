"""The time limits of a SyncSet: killTimestamp, deadline, and the time for data.

Pure. Used by `plan`. `now`: wall clock, in seconds.
"""

from kilnwork.api import reasons, sync_set
from kilnwork.controllers.sync_set import status
from kilnwork.kit import clock

Reason = reasons.SetReason


def end_asked(seen: sync_set.SyncSet, now: float) -> status.Explanation | None:
    """Return why the SyncSet must end now, or None if no limit has passed."""
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


def next_end_s(seen: sync_set.SyncSet, now: float) -> float | None:
    """Return the seconds until the next of these limits, or None if there is none."""
    return first_s(seconds_until(seen.spec.kill_timestamp, now), _deadline_s(seen, now))


def _deadline_s(seen: sync_set.SyncSet, now: float) -> float | None:
    if seen.spec.deadline_seconds is None or not seen.status.admission_time:
        return None
    admitted = clock.parse_rfc3339(seen.status.admission_time)
    return admitted + seen.spec.deadline_seconds - now


def late_s(seen: sync_set.SyncSet, since: float | None, *, now: float) -> float | None:
    """Return the seconds until the time for data ends, which started at `since` (wall clock)."""
    return None if since is None else since + seen.spec.data.pond.timeout_seconds - now


def time_of(text: str | None) -> float | None:
    """Return a time of the status in seconds, or None."""
    return clock.parse_rfc3339(text) if text else None


def too_late(seen: sync_set.SyncSet, what: str, why: status.Explanation) -> status.Explanation:
    """Return the explanation that `what` has taken too long. `why`: what it waited for."""
    limit = seen.spec.data.pond.timeout_seconds
    text = f"{what} took longer than data.pond.timeoutSeconds, {limit}: {why.message}"
    return status.Explanation(Reason.DATA_TIMED_OUT, text)


def first_s(*waits: float | None) -> float | None:
    """Return the shortest of several waits, or None if all are None."""
    return min((max(0.0, one) for one in waits if one is not None), default=None)


def seconds_until(time: str | None, now: float) -> float | None:
    """Return the seconds until a time (RFC 3339), or None without a time."""
    return None if time is None else clock.parse_rfc3339(time) - now
