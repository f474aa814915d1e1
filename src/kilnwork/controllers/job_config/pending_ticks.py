"""Ticks of schedules whose Jobs the engine does not have yet.

No I/O. Used by `plan`, and by `reconciler`, which records the results of creating their Jobs. Each
such tick ends in one of two ways: the engine gets its Job, or the tick is missed for a reason that
is counted.
"""

from collections.abc import Iterable, Mapping

import msgspec

from kilnwork.api import job, job_from_config, reasons
from kilnwork.jobs import index_job_types
from kilnwork.kit import backoff

Reason = reasons.ConfigReason

RETRIES = backoff.Backoff(base_s=1.0, max_s=30.0)
"""Delays between retries for a JobConfig whose Jobs are refused. Users fix a missing right or a
policy and wait for the effect."""

PATIENCE_S = 300.0
"""Maximum seconds for which a refused Job is retried: Kubernetes recounts a quota every five
minutes. Afterwards the next tick is tried."""

CHECK_S = 5.0
"""Seconds for which the cache may lack a created Job before the API server is asked."""


class JobRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal of the API server to create Jobs. Times are monotonic seconds."""

    text: str
    """Name of the Job, and the message of the server."""
    tries: int
    """Number of consecutive refused attempts."""
    again: float
    """When to try again."""
    since: Mapping[int, float]
    """Ticks that wait for the retry, and since when."""


class PendingTicks(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the creation of Jobs for ticks, in this process's memory only; lost at a
    restart.
    """

    made: frozenset[int] = frozenset()
    """Ticks whose Jobs were created or found; the cache may lack them."""
    taken: frozenset[int] = frozenset()
    """Ticks whose Jobs' names are taken by other Jobs."""
    gone: frozenset[int] = frozenset()
    """Ticks whose Jobs were deleted before the engine had them."""
    refusal: JobRefusal | None = None
    now: float = 0.0
    """Monotonic seconds."""


def note_refusal(
    before: JobRefusal | None, ticks: Iterable[int], *, text: str, now: float
) -> JobRefusal:
    """Return the refusal state after the Job of the first of `ticks` was refused; the other ticks
    were not tried.
    """
    tries = 1 if before is None else before.tries + 1
    known = {} if before is None else before.since
    return JobRefusal(
        text=text,
        tries=tries,
        again=now + RETRIES.delay_s(tries),
        since={tick: known.get(tick, now) for tick in ticks},
    )


def note_success(before: JobRefusal | None) -> JobRefusal | None:
    """Return the refusal state after a Job was created; the waiting times of the other ticks do
    not change."""
    return None if before is None else msgspec.structs.replace(before, tries=0)


def resolved_ticks(
    row: index_job_types.ScheduleRow,
    pending: PendingTicks,
    *,
    jobs: Iterable[job.Job],
    within_s: float | None,
    now: float,
) -> dict[int, Reason | None]:
    """Return the ticks that are resolved, each with the reason why it was missed, or None if its
    Job has run.

    Such ticks would otherwise count against the concurrency for ever. `within_s`: maximum delay of
    a tick; None: the schedule creates no Jobs any more. `now`: wall clock.
    """
    phases = {job_from_config.tick_of(one): one.status.phase for one in jobs}
    found: dict[int, Reason | None] = {}
    for tick in row.pending:
        phase = phases.get(tick)
        if tick in pending.taken:
            found[tick] = Reason.NAME_TAKEN
        elif phase is not None:
            if job.is_final(phase):
                found[tick] = Reason.REFUSED if phase == job.Phase.ADMISSION_ERROR else None
        elif tick in pending.gone:
            found[tick] = Reason.JOB_DELETED
        elif tick not in pending.made:
            why = _without_job(tick, pending, within_s=within_s, now=now)
            if why is not None:
                found[tick] = why
    return found


def refused_later(
    row: index_job_types.ScheduleRow, jobs: Iterable[job.Job]
) -> dict[int, Reason | None]:
    """Return the ticks, not counted as missed yet, whose Jobs the engine refused after accepting
    them, for example by policy Forbid at their start time.
    """
    if not row.taken:
        return {}
    return {
        tick: Reason.REFUSED
        for one in jobs
        if one.status.phase == job.Phase.ADMISSION_ERROR
        and (tick := job_from_config.tick_of(one)) is not None
        and row.taken.get(tick) == one.metadata.uid
        and tick not in row.refused
    }


def _without_job(
    tick: int, pending: PendingTicks, *, within_s: float | None, now: float
) -> Reason | None:
    """Return why a tick will not create a Job, or None if it still will."""
    if within_s is None:
        return Reason.DISABLED
    refusal = pending.refusal
    if refusal is not None and tick in refusal.since:
        waited_s = pending.now - refusal.since[tick]
        if waited_s >= min(PATIENCE_S, within_s):
            return Reason.JOB_NOT_MADE
    # Every manager since then was refused, or none was running.
    return Reason.TOO_LATE if now - tick > max(PATIENCE_S, within_s) else None


def ticks_to_create(
    row: index_job_types.ScheduleRow, pending: PendingTicks
) -> tuple[tuple[int, ...], float | None]:
    """Return the ticks whose Jobs must be created now, and the seconds until Jobs of other ticks
    must be.
    """
    known = pending.made | pending.taken | pending.gone
    ticks = tuple(tick for tick in row.pending if tick not in known)
    refusal = pending.refusal
    if ticks and refusal is not None and refusal.again > pending.now:
        return (), refusal.again - pending.now
    return ticks, None
