"""What to do about one JobConfig: which ticks are decided, which Jobs are made and deleted. Pure.

Used by `reconciler`, which gathers `Facts` and carries the `Plan` out, in two steps: a decision is
durable before the Jobs that it names are made.
"""

import hashlib
from collections.abc import Iterator

import msgspec

from kilnwork.api import job, job_config, job_validation, reasons, schedules
from kilnwork.controllers.job_config import status
from kilnwork.jobs import index_model
from kilnwork.kit import clock

Reason = reasons.Reason

MAX_WAIT_S = 3600.0
"""Longest time between two looks at a schedule: clocks may be set meanwhile."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known about one JobConfig. `now`: wall clock, seconds.

    `jobs`: those that it owns. `group`: which of them have started or wait, says the engine.
    `row`: what was decided of its schedule; None before anything was.
    """

    config: job_config.JobConfig
    jobs: tuple[job.Job, ...]
    group: index_model.GroupView
    row: index_model.ScheduleRow | None
    now: float


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What should happen; repeating it changes nothing.

    `decision`: to be made durable first; the JobConfig is then looked at again. `make`: ticks whose
    Jobs are to be there. `delete`: Jobs that are over and more than are kept.
    """

    decision: index_model.Decision | None = None
    make: tuple[int, ...] = ()
    delete: tuple[job.Job, ...] = ()
    status: job_config.JobConfigStatus
    again_s: float | None = None


def decide(facts: Facts) -> Plan:
    """Return what should happen now."""
    config = facts.config
    problems = list(job_validation.validate_job_config(config))
    surplus = tuple(_surplus(facts))
    if problems:
        text = "; ".join(f"{field} {why}" for field, why in problems)
        return Plan(delete=surplus, status=status.invalid(config, facts.row, text, now=facts.now))
    schedule = _schedule(config)
    decision = _decision(facts, schedule)
    make = () if decision is not None or facts.row is None else facts.row.pending
    upcoming = () if schedule is None else tuple(_upcoming(facts, schedule))
    shown = status.of(
        config, jobs=facts.jobs, group=facts.group, row=facts.row, upcoming=upcoming, now=facts.now
    )
    again_s = None
    if upcoming:
        again_s = min(max(upcoming[0] - facts.now, 0.0), MAX_WAIT_S)
    return Plan(decision=decision, make=make, delete=surplus, status=shown, again_s=again_s)


def fingerprint(config: job_config.JobConfig) -> str:
    """Return what changes when a schedule does: what passed before is then over."""
    encoded = msgspec.json.encode(config.spec.schedule)
    return hashlib.sha256(encoded).hexdigest()[:16]


def _schedule(config: job_config.JobConfig) -> schedules.Schedule | None:
    spec, metadata = config.spec.schedule, config.metadata
    if spec is None or spec.disabled or spec.cron is None:
        return None
    return schedules.Schedule.of(spec, namespace=metadata.namespace, name=metadata.name)


def _decision(facts: Facts, schedule: schedules.Schedule | None) -> index_model.Decision | None:
    """Return what is to be decided now, None if nothing is."""
    config, row = facts.config, facts.row
    mark = fingerprint(config)
    if row is None:
        return None if schedule is None else _begin(config, mark)
    if row.fingerprint != mark:
        # What passed before an edit, or while it was disabled, is over.
        return _moved(config, mark, max(int(facts.now), row.tick))
    if schedule is None:
        return None
    found = schedules.plan(schedule, schedules.Facts(last=row.tick, now=facts.now))
    if found.last == row.tick:
        return None
    run, dropped = _admitted(facts, found.run)
    counts = dict(found.dropped)
    if dropped:
        reason, ticks = dropped
        counts[reason] = counts.get(reason, 0) + len(ticks)
    latest = max(found.latest_dropped or 0, *(dropped[1] if dropped else ()), 0) or None
    latest_reason = dropped[0] if dropped and latest in dropped[1] else found.latest_reason
    return index_model.Decision(
        config=config.metadata.uid,
        namespace=config.metadata.namespace,
        name=config.metadata.name,
        fingerprint=mark,
        tick=found.last,
        run=run,
        dropped=counts,
        latest_dropped=latest,
        latest_reason=latest_reason if latest else "",
    )


def _begin(config: job_config.JobConfig, mark: str) -> index_model.Decision:
    """A schedule begins with its JobConfig: what passed before is no tick of it."""
    created = clock.parse_rfc3339(config.metadata.creation_timestamp or "")
    return _moved(config, mark, int(created))


def _moved(config: job_config.JobConfig, mark: str, to: int) -> index_model.Decision:
    schedule = config.spec.schedule
    if schedule is not None and schedule.last_updated is not None:
        to = max(to, int(clock.parse_rfc3339(schedule.last_updated)))
    return index_model.Decision(
        config=config.metadata.uid,
        namespace=config.metadata.namespace,
        name=config.metadata.name,
        fingerprint=mark,
        tick=to,
    )


def _admitted(
    facts: Facts, ticks: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[str, tuple[int, ...]] | None]:
    """Return the ticks that make Jobs, and those that the JobConfig's concurrency drops, with the
    reason."""
    concurrency, group = facts.config.spec.concurrency, facts.group
    pending = len(facts.row.pending) if facts.row is not None else 0
    if concurrency.policy is job.ConcurrencyPolicy.FORBID:
        room = (concurrency.max_concurrency or 1) - len(group.active) - pending
        reason = Reason.FORBIDDEN
    elif concurrency.policy is job.ConcurrencyPolicy.ENQUEUE:
        active = (concurrency.max_concurrency or 1) - len(group.active)
        room = max(active, 0) + concurrency.max_queued - len(group.queued) - pending
        reason = Reason.QUEUE_FULL
    else:
        return ticks, None
    room = max(room, 0)
    if len(ticks) <= room:
        return ticks, None
    return ticks[:room], (str(reason), ticks[room:])


def _upcoming(facts: Facts, schedule: schedules.Schedule) -> Iterator[int]:
    """The next ticks, from what was decided last or from now."""
    after = int(facts.now) if facts.row is None else max(facts.row.tick, int(facts.now) - 1)
    yield from schedules.upcoming(schedule, after, status.NEXT_RUNS)


def _surplus(facts: Facts) -> Iterator[job.Job]:
    """Jobs that are over and older than as many as are kept."""
    spec = facts.config.spec
    for limit, wanted in (
        (spec.successful_jobs_history_limit, True),
        (spec.failed_jobs_history_limit, False),
    ):
        if limit is None:
            continue
        over = [
            one
            for one in facts.jobs
            if one.status.phase
            and job.Phase(one.status.phase).final
            and (one.status.phase == job.Phase.SUCCEEDED) is wanted
            and one.metadata.deletion_timestamp is None
        ]
        over.sort(key=lambda one: (one.status.finish_time or "", one.metadata.name))
        yield from over[: max(len(over) - limit, 0)]
