"""Prepare queue: limits how many new jobs are prepared at a time. Used by the engine.

Preparing a job is slower than creating it. The other new jobs stay in the journal only, and are
considered again when there is room.
"""

import itertools

from kilnwork.jobs import live_job_state

MAX_PREPARED = 64
"""Maximum number of new jobs that are prepared and have not begun."""


class PrepareQueue:
    """Queue of new jobs that are to be prepared, in the order in which they were first
    considered.
    """

    def __init__(self) -> None:
        self._prepared: set[live_job_state.Job] = set()
        self._unprepared: dict[live_job_state.Job, None] = {}

    def admits(self, job: live_job_state.Job) -> bool:
        """Return whether a job may be prepared now.

        This also enters a new job into the queue, or removes it if it has begun, is ending or is
        paused.
        """
        if not job.fresh:
            return True
        waits = job.started is None and job.stage is live_job_state.RUNNING
        if not waits or (job.spec.suspend and not job.tasks):
            self.remove(job)
            return not waits
        if job not in self._prepared and len(self._prepared) < MAX_PREPARED:
            self._prepared.add(job)
            self._unprepared.pop(job, None)
        elif job not in self._prepared:
            self._unprepared[job] = None
        return job in self._prepared

    def is_waiting(self, job: live_job_state.Job) -> bool:
        """Return whether a job is waiting in the queue for room."""
        return job in self._unprepared

    def list_admissible(self) -> list[live_job_state.Job]:
        """Return the waiting jobs that may be prepared now."""
        free = max(MAX_PREPARED - len(self._prepared), 0)
        return list(itertools.islice(self._unprepared, free))

    def remove(self, job: live_job_state.Job) -> None:
        """Remove a job from the queue."""
        self._prepared.discard(job)
        self._unprepared.pop(job, None)
