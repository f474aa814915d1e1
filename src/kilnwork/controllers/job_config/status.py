"""The status of a JobConfig: counts of its Jobs, its next ticks and its missed ticks.

No I/O. Used by `plan` and `reconciler`. The engine knows which Jobs have started and which wait;
names come from the cache.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from kilnwork.api import due_ticks, job, job_config, kind_field_effects, kinds, meta, reasons
from kilnwork.controllers.job_config import pending_ticks
from kilnwork.jobs import index_job_types
from kilnwork.kit import clock

NEXT_RUNS = 5
"""Number of next ticks shown."""

MAX_REFERENCES = 20
"""Maximum number of Jobs in each list."""

HOLD_S = 0.5
"""Seconds between writes of counts and ticks, which change with each Job. Not a whole second, so
that writes do not coincide with the next ticks."""

_S = job_config.ConfigState


class Ticks(NamedTuple):
    """The next ticks of a schedule, and the obstacle to creating Jobs for them."""

    upcoming: tuple[int, ...]
    """The next ticks; empty without a schedule."""
    planned: due_ticks.SchedulePlan
    """The plan of the schedule: due ticks, and what it waits for."""
    refusal: pending_ticks.JobRefusal | None = None
    """Why Jobs of due ticks cannot be created."""


def invalid(config: job_config.JobConfig, text: str, *, now: float) -> job_config.JobConfigStatus:
    """Return the status of an unusable JobConfig. `text`: why it is unusable."""
    before = config.status
    return msgspec.structs.replace(
        before,
        state=_S.INVALID,
        next_runs=(),
        observed_generation=config.metadata.generation,
        conditions=_conditions(config, text, None, now=now),
    )


def make(
    config: job_config.JobConfig,
    *,
    jobs: Iterable[job.Job],
    group: index_job_types.GroupView,
    row: index_job_types.ScheduleRow | None,
    ticks: Ticks,
    now: float,
) -> job_config.JobConfigStatus:
    """Return the status of a usable JobConfig."""
    by_uid = {one.metadata.uid: one for one in jobs}
    started = [one.status.start_time for one in by_uid.values() if one.status.start_time]
    before = config.status.last_executed
    executed = max([*started, *([before] if before else [])], default=None)
    return job_config.JobConfigStatus(
        state=_state(config, group),
        queued=len(group.queued),
        queued_jobs=_references(group.queued, by_uid),
        active=len(group.active),
        active_jobs=_references(group.active, by_uid),
        last_scheduled=_last_scheduled(config, row),
        last_executed=executed,
        next_runs=tuple(clock.rfc3339(tick) for tick in ticks.upcoming),
        missed=_missed(row),
        observed_generation=config.metadata.generation,
        conditions=_conditions(config, "", ticks, now=now),
    )


def _state(
    config: job_config.JobConfig, group: index_job_types.GroupView
) -> job_config.ConfigState:
    if group.active:
        return _S.EXECUTING
    if group.queued:
        return _S.JOB_QUEUED
    schedule = config.spec.schedule
    if schedule is None:
        return _S.READY
    return _S.READY_DISABLED if schedule.disabled else _S.READY_ENABLED


def _references(
    uids: tuple[str, ...], by_uid: dict[str, job.Job]
) -> tuple[job_config.JobReference, ...]:
    found = (by_uid[uid] for uid in uids if uid in by_uid)
    return tuple(
        job_config.JobReference(
            uid=one.metadata.uid,
            name=one.metadata.name,
            creation_timestamp=one.metadata.creation_timestamp,
            phase=one.status.phase,
            start_time=one.status.start_time,
        )
        for one, _ in zip(found, range(MAX_REFERENCES), strict=False)
    )


def _last_scheduled(
    config: job_config.JobConfig, row: index_job_types.ScheduleRow | None
) -> str | None:
    """Return the latest decided tick, or None before the first one."""
    latest = (
        0 if row is None else max([*row.taken, *row.pending, row.latest_dropped or 0], default=0)
    )
    return clock.rfc3339(latest) if latest else config.status.last_scheduled


def _missed(row: index_job_types.ScheduleRow | None) -> job_config.MissedTicks | None:
    if row is None or not row.dropped:
        return None
    latest = row.latest_dropped
    return job_config.MissedTicks(
        total=sum(row.dropped.values()),
        reasons=row.dropped,
        latest=None if latest is None else clock.rfc3339(latest),
        latest_reason=row.latest_reason,
    )


def _conditions(
    config: job_config.JobConfig, text: str, ticks: Ticks | None, *, now: float
) -> tuple[meta.Condition, ...]:
    """Return the conditions: `Valid`; `Scheduled` if there is a schedule, False while something
    prevents its Jobs; and `FieldsIgnored`.
    """
    valid = meta.Condition(
        type="Valid",
        status="False" if text else "True",
        reason=str(reasons.Reason.INVALID_SPEC) if text else "Valid",
        message=text,
        observed_generation=config.metadata.generation,
    )
    new = [valid]
    if ticks is not None and config.spec.schedule is not None:
        reason, message = _blocked(ticks)
        scheduled = meta.Condition(
            type="Scheduled",
            status="False" if reason else "True",
            reason=reason or "Scheduled",
            message=message,
            observed_generation=config.metadata.generation,
        )
        new.append(scheduled)
    if config.spec.template.spec.forbid_task_force_deletion:  # the only field without effect
        generation = config.metadata.generation
        ignored = kind_field_effects.ignored(
            kinds.JOB_CONFIGS.kind, config.spec, generation=generation
        )
        new += [] if ignored is None else [ignored]
    types = {condition.type for condition in new}
    kept = tuple(c for c in config.status.conditions if c.type in types)
    return meta.merge_conditions(kept, tuple(new), now=clock.rfc3339(now))


def _blocked(ticks: Ticks) -> tuple[str, str]:
    """Return the reason and message why no Job is created; both "" if the schedule only waits for
    its next tick.
    """
    if ticks.refusal is not None:
        waiting = len(ticks.refusal.since)
        more = f"; {waiting - 1} more wait" if waiting > 1 else ""
        return str(reasons.ConfigReason.JOB_NOT_MADE), f"{ticks.refusal.text}{more}"
    if ticks.planned.waiting in (None, due_ticks.WaitReason.NOT_YET_DUE):
        return "", ""
    return str(ticks.planned.waiting), ticks.planned.message


def delay_s(
    current: job_config.JobConfigStatus, wanted: job_config.JobConfigStatus
) -> float | None:
    """Return for how many seconds a changed status may be held back; None if nothing has
    changed.
    """
    if current == wanted:
        return None
    at_once = (current.observed_generation, current.state == _S.INVALID) != (
        wanted.observed_generation,
        wanted.state == _S.INVALID,
    )
    return 0.0 if at_once else HOLD_S
