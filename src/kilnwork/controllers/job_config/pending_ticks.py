"""What becomes of ticks that are to run and whose Jobs the engine has not taken up yet. Pure.

Used by `plan`, and by `reconciler`, which says what came of pending their Jobs. Every such tick
ends: its Job is taken up, or it is missed, for a reason that is counted.
"""

from collections.abc import Iterable, Mapping

import msgspec

from kilnwork.api import job, job_expansion, reasons
from kilnwork.jobs import index_model
from kilnwork.kit import backoff

Reason = reasons.ConfigReason

RETRIES = backoff.Backoff(base_s=1.0, max_s=30.0)
"""Between tries of a JobConfig whose Jobs are refused. A right or a policy that was forgotten is
mended by people, who watch."""

PATIENCE_S = 300.0
"""How long a Job that is refused is tried again: a quota that is full by mistake is counted anew by
Kubernetes every five minutes. After that its run is rather the next one's."""

CHECK_S = 5.0
"""How long the cache may take to hear of a Job that was made, before the API server is asked."""


class JobRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """The API server does not let Jobs be made. Times are monotonic seconds."""

    text: str
    """Which Job, and what the server says."""
    tries: int
    """How many were refused, without one that was made between them."""
    again: float
    """When it is tried again."""
    since: Mapping[int, float]
    """The ticks that wait for it, and since when."""


class PendingTicks(msgspec.Struct, frozen=True, kw_only=True):
    """What this process knows of the Jobs of ticks; nothing of it survives a restart."""

    made: frozenset[int] = frozenset()
    """They were made, or found; the cache may not have heard of them."""
    taken: frozenset[int] = frozenset()
    """Their names belong to other Jobs."""
    gone: frozenset[int] = frozenset()
    """They were made, and deleted before the engine took them up."""
    refusal: JobRefusal | None = None
    now: float = 0.0
    """Monotonic seconds."""


def refused(
    before: JobRefusal | None, ticks: Iterable[int], *, text: str, now: float
) -> JobRefusal:
    """Return what is known after the first of `ticks` was refused; the others were not tried."""
    tries = 1 if before is None else before.tries + 1
    known = {} if before is None else before.since
    return JobRefusal(
        text=text,
        tries=tries,
        again=now + RETRIES.delay_s(tries),
        since={tick: known.get(tick, now) for tick in ticks},
    )


def made_one(before: JobRefusal | None) -> JobRefusal | None:
    """Return what is known after a Job was made; since when others wait does not change."""
    return None if before is None else msgspec.structs.replace(before, tries=0)


def lost(
    row: index_model.ScheduleRow,
    pending: PendingTicks,
    *,
    jobs: Iterable[job.Job],
    within_s: float | None,
    now: float,
) -> dict[int, Reason | None]:
    """Return the ticks for which no more is done, and why; None: its Job has run.

    Such ticks would else take the room of others for ever. `within_s`: how late a tick may run;
    None: the schedule makes no Jobs any more. `now`: wall clock.
    """
    phases = {job_expansion.tick_of(one): one.status.phase for one in jobs}
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
    row: index_model.ScheduleRow, jobs: Iterable[job.Job]
) -> dict[int, Reason | None]:
    """Return the ticks whose Jobs were taken up and then refused, as by policy Forbid when what
    they waited for had come, and which are not counted yet."""
    if not row.taken:
        return {}
    return {
        tick: Reason.REFUSED
        for one in jobs
        if one.status.phase == job.Phase.ADMISSION_ERROR
        and (tick := job_expansion.tick_of(one)) is not None
        and row.taken.get(tick) == one.metadata.uid
        and tick not in row.refused
    }


def _without_job(
    tick: int, pending: PendingTicks, *, within_s: float | None, now: float
) -> Reason | None:
    """Return why no Job is made of a tick any more; None: it is."""
    if within_s is None:
        return Reason.DISABLED
    refusal = pending.refusal
    if refusal is not None and tick in refusal.since:
        waited_s = pending.now - refusal.since[tick]
        if waited_s >= min(PATIENCE_S, within_s):
            return Reason.JOB_NOT_MADE
    # Refused by every manager that was started meanwhile, or none was.
    return Reason.TOO_LATE if now - tick > max(PATIENCE_S, within_s) else None


def to_make(
    row: index_model.ScheduleRow, pending: PendingTicks
) -> tuple[tuple[int, ...], float | None]:
    """Return the ticks whose Jobs are to be made now, and seconds until others are."""
    known = pending.made | pending.taken | pending.gone
    ticks = tuple(tick for tick in row.pending if tick not in known)
    refusal = pending.refusal
    if ticks and refusal is not None and refusal.again > pending.now:
        return (), refusal.again - pending.now
    return ticks, None
