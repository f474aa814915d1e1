"""The gangs that wait for room, in order of priority: the gang of highest priority gets room
first.

Used by `pods_backend`. Kept in memory: each waiting gang is checked every second, so that a new
manager soon knows all of them. A gang that would not fit into an empty cluster does not delay
others.
"""

from typing import NamedTuple

from kilnwork.controllers.gangs import port
from kilnwork.kit import clock

FORGOTTEN_S = 10.0
"""Seconds without a check after which a gang counts as no longer waiting: it was suspended or
deleted."""

_Key = tuple[str, int]


class _Waiting(NamedTuple):
    name: str
    priority: int
    seen: float


class WaitingGangs:
    """Register of the gangs that wait for room."""

    def __init__(self, time: clock.Clock) -> None:
        self._clock = time
        self._waiting: dict[_Key, _Waiting] = {}

    def note(self, spec: port.GangSpec, *, waits: bool) -> None:
        """Record whether a gang waits for room."""
        if not waits:
            self._waiting.pop((spec.uid, spec.generation), None)
            return
        name = f"{spec.namespace}/{spec.name}"
        now = self._clock.monotonic()
        self._waiting[spec.uid, spec.generation] = _Waiting(name, spec.priority, now)

    def ahead_of(self, spec: port.GangSpec) -> str:
        """Return a message that names the waiting gang with the highest priority, if that is higher
        than the priority of `spec`; otherwise "".
        """
        since = self._clock.monotonic() - FORGOTTEN_S
        for key in [key for key, one in self._waiting.items() if one.seen < since]:
            del self._waiting[key]
        if (spec.uid, spec.generation) in self._waiting:
            self.note(spec, waits=True)  # its priority may have changed
        before = [one for one in self._waiting.values() if one.priority > spec.priority]
        if not before:
            return ""
        first = max(before, key=lambda one: one.priority)
        return (
            f"SyncSet {first.name} of priority {first.priority} waits for its turn before this one "
            f"of priority {spec.priority}"
        )
