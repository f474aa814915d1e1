"""For how long a SyncSet has waited for the same thing: when that is told, and when it is given up.

Pure. Used by `plan` and `reconciler`. Known since this manager looks: another one counts anew.
"""

import msgspec

from kilnwork.api import reasons, sync_set

TOLD_S = 10.0
"""What is waited for so long is worth a kube event; what passes sooner is not."""

REFUSED_S = 60.0
"""How long an object that the API server refuses is tried again: a right or a kind that it lacks
may be on its way, and a name may become free."""

_P = sync_set.Phase
_WAITING = frozenset({_P.PENDING, _P.FETCHING, _P.PLACING, _P.KILLING})


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """What is waited for. `since`: monotonic seconds; `told`: there was a kube event."""

    generation: int
    phase: str
    reason: str
    since: float
    told: bool = False

    @property
    def subject(self) -> tuple[int, str, str]:
        """What makes it the same wait; the message may change."""
        return self.generation, self.phase, self.reason


def follow(before: Wait | None, shown: sync_set.SyncSetStatus, *, now: float) -> Wait | None:
    """Return the wait that a status tells of, None if it waits for nothing but time."""
    phase = _P(shown.phase or _P.PENDING)
    keeps = shown.reason == reasons.SetReason.KEEPING_OUTPUTS
    if phase not in _WAITING and not keeps:
        return None
    found = Wait(generation=shown.generation, phase=str(phase), reason=str(shown.reason), since=now)
    return before if before is not None and before.subject == found.subject else found


def untold_s(wait: Wait | None, *, now: float) -> float | None:
    """Return seconds until a wait is worth a kube event, None if there is none to come."""
    if wait is None or wait.told:
        return None
    return max(0.0, wait.since + TOLD_S - now)


def refused_s(wait: Wait | None, *, now: float) -> float:
    """For how many seconds an object was refused, 0 if none is."""
    if wait is None or wait.reason != reasons.SetReason.OBJECT_REFUSED:
        return 0.0
    return now - wait.since
