"""Which new jobs may be prepared: a few at a time. Used by the engine.

The others stay in the journal alone, since preparing a job is slower than making it, and are looked
at again when there is room.
"""

import itertools

from kilnwork.jobs import records

MAX_PREPARED = 64
"""New jobs that are prepared and have not begun."""


class PrepareQueue:
    """New jobs, in the order in which they first wanted to begin."""

    def __init__(self) -> None:
        self._prepared: set[records.Job] = set()
        self._unprepared: dict[records.Job, None] = {}

    def admits(self, job: records.Job) -> bool:
        """Return whether a job may be prepared; a new one is when its turn is near. It may have no
        need of that any more."""
        if not job.fresh:
            return True
        waits = job.started is None and job.stage is records.RUNNING
        if not waits or (job.spec.suspend and not job.tasks):
            self.forget(job)
            return not waits
        if job not in self._prepared and len(self._prepared) < MAX_PREPARED:
            self._prepared.add(job)
            self._unprepared.pop(job, None)
        elif job not in self._prepared:
            self._unprepared[job] = None
        return job in self._prepared

    def waits(self, job: records.Job) -> bool:
        """Return whether it has wanted to begin, and there was no room."""
        return job in self._unprepared

    def next(self) -> list[records.Job]:
        """Return those that may be looked at again, as others have begun."""
        free = max(MAX_PREPARED - len(self._prepared), 0)
        return list(itertools.islice(self._unprepared, free))

    def forget(self, job: records.Job) -> None:
        """The job does not wait any more."""
        self._prepared.discard(job)
        self._unprepared.pop(job, None)
