"""Which gang takes room first: one of lower priority waits behind one of higher that waits too.

Used by backend `pods_backend`. Kept in memory: each gang that waits is looked at every second, so a
new manager knows in a moment. A gang that would not fit even if nothing else ran holds nobody up.
"""

from typing import NamedTuple

from kilnwork.controllers.gangs import port
from kilnwork.kit import clock

FORGOTTEN_S = 10.0
"""A gang that nobody has asked for for so long waits no more: it was suspended, or is gone."""

_Key = tuple[str, int]


class _Waiting(NamedTuple):
    name: str
    priority: int
    seen: float


class WaitingGangs:
    """The gangs that wait at their gates."""

    def __init__(self, time: clock.Clock) -> None:
        self._clock = time
        self._waiting: dict[_Key, _Waiting] = {}

    def note(self, spec: port.GangSpec, *, waits: bool) -> None:
        """Say whether a gang waits for its turn, at this moment."""
        if not waits:
            self._waiting.pop((spec.uid, spec.generation), None)
            return
        name = f"{spec.namespace}/{spec.name}"
        now = self._clock.monotonic()
        self._waiting[spec.uid, spec.generation] = _Waiting(name, spec.priority, now)

    def ahead_of(self, spec: port.GangSpec) -> str:
        """Return what a gang waits for: the one of the highest priority before it, "" if none."""
        since = self._clock.monotonic() - FORGOTTEN_S
        for key in [key for key, one in self._waiting.items() if one.seen < since]:
            del self._waiting[key]
        if (spec.uid, spec.generation) in self._waiting:
            self.note(spec, waits=True)  # its priority may be another one by now
        before = [one for one in self._waiting.values() if one.priority > spec.priority]
        if not before:
            return ""
        first = max(before, key=lambda one: one.priority)
        return (
            f"SyncSet {first.name} of priority {first.priority} waits for its turn before this one "
            f"of priority {spec.priority}"
        )
