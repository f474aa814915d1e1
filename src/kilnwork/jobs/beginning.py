"""Which new jobs may begin: a few at a time are stored. Used by the engine.

The others stay in the journal alone, since storing is slower than making them, and are asked again
when there is room.
"""

import itertools

from kilnwork.jobs import records

MOST_PREPARED = 64
"""New jobs that are stored and have not begun."""


class Turns:
    """Of new jobs, in the order in which they asked."""

    def __init__(self) -> None:
        self._prepared: set[records.Job] = set()
        self._unprepared: dict[records.Job, None] = {}

    def begins(self, job: records.Job) -> bool:
        """A new job is stored when its turn is near. What it was stored for may be over by now."""
        if not job.fresh:
            return True
        waits = job.started is None and job.stage is records.Stage.MAPPING
        if not waits or (job.spec.suspend and not job.seats):
            self.forget(job)
            return not waits
        if job not in self._prepared and len(self._prepared) < MOST_PREPARED:
            self._prepared.add(job)
            self._unprepared.pop(job, None)
        elif job not in self._prepared:
            self._unprepared[job] = None
        return job in self._prepared

    def waits(self, job: records.Job) -> bool:
        """It has asked, and there was no room."""
        return job in self._unprepared

    def next(self) -> list[records.Job]:
        """Those that may ask again, as others have begun."""
        free = max(MOST_PREPARED - len(self._prepared), 0)
        return list(itertools.islice(self._unprepared, free))

    def forget(self, job: records.Job) -> None:
        """It wants nothing any more."""
        self._prepared.discard(job)
        self._unprepared.pop(job, None)
