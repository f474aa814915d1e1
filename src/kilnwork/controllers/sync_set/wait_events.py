"""The waits of a SyncSet: when a wait gets a kube event, and when a refused object is not retried
any more.

No I/O. Used by `plan` and `reconciler`. The length of a wait is measured in memory, so that it
starts at zero after a restart of the manager.
"""

import msgspec

from kilnwork.api import reasons, sync_set

ANNOUNCE_S = 10.0
"""Minimum length in seconds of a wait that gets a kube event."""

REFUSED_S = 60.0
"""Seconds for which an object that the API server refuses is retried: a missing right or kind
may be added, and a name may become free."""

_P = sync_set.Phase
_WAITING = frozenset({_P.PENDING, _P.FETCHING, _P.PLACING, _P.KILLING})


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """One wait of a SyncSet. `since`: monotonic seconds; `announced`: whether a kube event was
    emitted.
    """

    generation: int
    phase: str
    reason: str
    since: float
    announced: bool = False

    @property
    def subject(self) -> tuple[int, str, str]:
        """The identity of the wait. A wait stays the same when only its message changes."""
        return self.generation, self.phase, self.reason


def follow(before: Wait | None, shown: sync_set.SyncSetStatus, *, now: float) -> Wait | None:
    """Return the wait that a status shows, or None if it shows none. A suspended SyncSet does not
    wait.
    """
    phase = _P(shown.phase or _P.PENDING)
    keeps = shown.reason == reasons.SetReason.KEEPING_OUTPUTS
    if phase not in _WAITING and not keeps:
        return None
    found = Wait(generation=shown.generation, phase=str(phase), reason=str(shown.reason), since=now)
    return before if before is not None and before.subject == found.subject else found


def seconds_to_announcement(wait: Wait | None, *, now: float) -> float | None:
    """Return the seconds until a wait gets a kube event, or None if it will not get one."""
    if wait is None or wait.announced:
        return None
    return max(0.0, wait.since + ANNOUNCE_S - now)


def refusal_duration_s(wait: Wait | None, *, now: float) -> float:
    """Return for how many seconds the creation of an object has been refused; 0 if it is not."""
    if wait is None or wait.reason != reasons.SetReason.OBJECT_REFUSED:
        return 0.0
    return now - wait.since
