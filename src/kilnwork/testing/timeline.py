"""What happens in a flow's virtual time: steps that are to be called, their ends, and limits.

Used by `testing.inline_flows`. Time stands still but for what functions sleep and for delays of
retries. What happens at one moment happens in this order: ends, then calls, then limits.
"""

import heapq
import itertools
from enum import IntEnum
from typing import NamedTuple

from kilnwork.jobs.flows import records, step_inputs


class Kind(IntEnum):
    """What happens, in the order in which it does at one moment."""

    END = 0
    CALL = 1
    LIMIT = 2


class Event(NamedTuple):
    """Something that happens to an instance. `work`: of a call, and of the one that ends."""

    kind: Kind
    key: str
    work: step_inputs.StepWork | None = None
    end: records.JobEnd | None = None


class Timeline:
    """Events in order. `now`: seconds since the start of the flow."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = itertools.count()
        self._events: list[tuple[float, int, int, Event]] = []

    def add(self, event: Event, *, after_s: float = 0.0) -> None:
        """Let it happen in so many seconds."""
        entry = (self.now + after_s, int(event.kind), next(self._order), event)
        heapq.heappush(self._events, entry)

    def take(self) -> Event:
        """Go on to the next event. There must be one: a flow that is not over waits for some."""
        self.now, _, _, event = heapq.heappop(self._events)
        return event

    def stop(self, key: str) -> step_inputs.StepWork | None:
        """Take back the call of an instance, or its end; gives what it was to do."""
        found = [entry for entry in self._events if entry[3].key == key and entry[3].work]
        for entry in found:
            self._events.remove(entry)
        heapq.heapify(self._events)
        return found[0][3].work if found else None


def makespan_s(durations: list[float], lanes: int | None) -> float:
    """How long tasks take together, each begun as soon as a lane is free; None: a lane for each."""
    if lanes is None or lanes >= len(durations):
        return max(durations, default=0.0)
    free = [0.0] * lanes
    for duration in durations:
        heapq.heapreplace(free, free[0] + duration)
    return max(free)
