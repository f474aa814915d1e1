"""The state of one Task that the reconciler keeps in memory between passes.

Used only by `reconciler`. After a restart it is derived again from the object and the dispatcher.
"""

import msgspec

from kilnwork.api import reasons, task
from kilnwork.controllers.task import status
from kilnwork.kit import clock

_FRESH_S = 2.0
"""Age in seconds below which an object counts as just created: creationTimestamp has whole
seconds."""

REPORT_AFTER_S = 10.0
"""Seconds after which a wait is reported by a kube event."""

_QUIET = frozenset({reasons.Reason.SUSPENDED, reasons.Reason.RETRY_BACKOFF})


class KnownState(msgspec.Struct):
    """The remembered state of the Task object with this uid."""

    uid: str
    held: status.StatusHold | None = None
    """A status that waits to be written."""
    refused: int | None = None
    """The run that the dispatcher did not accept."""
    unfit: tuple[int, str] | None = None
    """The run that the dispatcher can never accept, and why."""
    output: tuple[int, str] | None = None
    """The run for which the creation of the TaskObject was tried, and the name of the TaskObject if
    it was created."""
    _pending: tuple[int, float] | None = None
    _wait: tuple[int, str, float] | None = None
    _reported: bool = False

    def pending_since(self, seen: task.Task, now: float) -> float:
        """Return since when the current run waits for its start (wall clock, in seconds), not
        counting suspension.
        """
        if seen.spec.suspend:
            self._pending = None
            return now
        if self._pending is None or self._pending[0] != seen.spec.run:
            self._pending = (seen.spec.run, _since(seen, now))
        return self._pending[1]

    def output_made(self, seen: task.Task, run: int) -> str | None:
        """Return the name of the TaskObject with the result of `run`: "" if it cannot be
        created, None if untried."""
        if self.output is not None and self.output[0] == run:
            return self.output[1]
        if seen.status.run == run and seen.status.output_object:
            return seen.status.output_object
        return None

    def unfit_for(self, run: int) -> str:
        """Return why the dispatcher can never accept a run; "" if it can."""
        return self.unfit[1] if self.unfit is not None and self.unfit[0] == run else ""

    def long_wait(self, shown: task.TaskStatus, now: float) -> tuple[bool, float | None]:
        """Return whether to report now that the Task waits long, and otherwise the seconds until
        that. `now` is monotonic.
        """
        if shown.state != task.State.PENDING or shown.reason in _QUIET:
            self._wait = None
            return False, None
        if self._wait is None or self._wait[:2] != (shown.run, shown.reason):
            self._wait, self._reported = (shown.run, shown.reason, now), False
        left = self._wait[2] + REPORT_AFTER_S - now
        if left > 0 or self._reported:
            return False, None if self._reported else left
        self._reported = True
        return True, None


def _since(seen: task.Task, now: float) -> float:
    suspended = seen.status.reason == reasons.Reason.SUSPENDED
    if seen.spec.run != 1 or suspended or seen.metadata.creation_timestamp is None:
        return now
    created = clock.parse_rfc3339(seen.metadata.creation_timestamp)
    return now if now - created < _FRESH_S else created
