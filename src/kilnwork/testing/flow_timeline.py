"""The timeline of a flow's virtual time: the calls of steps, their ends, and time limits.

Used by `testing.inline_flows`. Time advances only when functions sleep, and by delays of retries.
Events at the same moment happen in this order: ends, then calls, then limits.
"""

import heapq
import itertools
from enum import IntEnum
from typing import NamedTuple

from kilnwork.jobs.flows import live_run_state, step_inputs


class Kind(IntEnum):
    """The kind of an event; events at the same moment happen in the order of their kinds."""

    END = 0
    CALL = 1
    LIMIT = 2


class Event(NamedTuple):
    """An event of a step instance.

    `work`: the work of a call or an end.
    """

    kind: Kind
    key: str
    work: step_inputs.StepWork | None = None
    end: live_run_state.JobEnd | None = None


class Timeline:
    """The future events of a flow, in order.

    `now`: seconds since the start of the flow.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._order = itertools.count()
        self._events: list[tuple[float, int, int, Event]] = []

    def add(self, event: Event, *, after_s: float = 0.0) -> None:
        """Schedule an event after `after_s` seconds."""
        entry = (self.now + after_s, int(event.kind), next(self._order), event)
        heapq.heappush(self._events, entry)

    def take(self) -> Event:
        """Advance the time to the next event, remove it and return it.

        There must be an event: an unfinished flow always has one.
        """
        self.now, _, _, event = heapq.heappop(self._events)
        return event

    def stop(self, key: str) -> step_inputs.StepWork | None:
        """Remove the scheduled call or end of a step instance; return its work."""
        found = [entry for entry in self._events if entry[3].key == key and entry[3].work]
        for entry in found:
            self._events.remove(entry)
        heapq.heapify(self._events)
        return found[0][3].work if found else None


def makespan_s(durations: list[float], lanes: int | None) -> float:
    """Return how long a list of tasks takes, if each starts in order as soon as a lane is free.

    `lanes`: how many tasks can run at once; None for any number.
    """
    if lanes is None or lanes >= len(durations):
        return max(durations, default=0.0)
    free = [0.0] * lanes
    for duration in durations:
        heapq.heapreplace(free, free[0] + duration)
    return max(free)
