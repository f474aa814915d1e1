"""The plan for one JobConfig: ticks to decide, and Jobs to create and delete.

No I/O. Used by `reconciler`, which gathers `Facts` and carries out the `Plan`, in two steps: a
decision is durable before the Jobs that it names are created.
"""

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from kilnwork.api import (
    due_ticks,
    job,
    job_config,
    job_validation,
    knative_service_rendering,
    meta,
    reasons,
)
from kilnwork.controllers.job import plan as job_plan
from kilnwork.controllers.job_config import pending_ticks, status
from kilnwork.jobs import index_job_types
from kilnwork.kit import clock

Reason = reasons.ConfigReason

MAX_WAIT_S = 3600.0
"""Maximum time between two passes over a schedule, in seconds. `clock_watch` notices a step of
the wall clock within a second."""


class Upcoming(msgspec.Struct, frozen=True, gc=False):
    """The next ticks of a schedule after a given second, up to `status.NEXT_RUNS` of them."""

    after: int
    ticks: tuple[int, ...]


class ParsedConfig(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A parsed JobConfig; parsing is done once for each object generation."""

    generation: int
    problem: str
    """Why the JobConfig cannot be used; "" if it can."""
    schedule: due_ticks.CompiledSchedule | None
    fingerprint: str
    """Digest of the schedule: when it changes, earlier ticks are ignored."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All known facts about one JobConfig."""

    config: job_config.JobConfig
    reading: ParsedConfig
    jobs: tuple[job.Job, ...]
    """The Jobs that the JobConfig owns."""
    group: index_job_types.GroupView
    """The engine's view of the started and the waiting Jobs of the JobConfig."""
    row: index_job_types.ScheduleRow | None
    """The decisions about the ticks of the schedule; None before the first decision."""
    pending: pending_ticks.PendingTicks = pending_ticks.PendingTicks()
    """Results of creating the Jobs of ticks."""
    upcoming: Upcoming | None = None
    """The next ticks found by the last plan with this reading."""
    cycle: tuple[str, ...] = ()
    """Names of JobConfigs that depend on each other in a cycle, from this one to itself."""
    now: float
    """Wall clock, in seconds."""

    @property
    def problem(self) -> str:
        """Why the JobConfig cannot be used; "" if it can."""
        if self.reading.problem or not self.cycle:
            return self.reading.problem
        return f"spec.dependsOn: JobConfigs wait for each other: {' -> '.join(self.cycle)}"


class Announcement(NamedTuple):
    """A kube event about ticks that create no Job."""

    reason: str
    message: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The actions to take for one JobConfig; repeating them changes nothing."""

    decision: index_job_types.TickDecision | None = None
    """Decision to make durable first. Then `warnings` are emitted, and a new plan is made in the
    same pass."""
    warnings: tuple[Announcement, ...] = ()
    make: tuple[int, ...] = ()
    """Ticks whose Jobs must exist."""
    delete: tuple[job.Job, ...] = ()
    """Finished Jobs beyond the history limits."""
    service: meta.JsonObject | None = None
    """The Knative Service that the JobConfig owns."""
    upcoming: Upcoming | None = None
    status: job_config.JobConfigStatus
    again_s: float | None = None
    """Seconds until the next pass, even without a change."""


def decide(facts: Facts) -> Plan:
    """Decide the actions to take now for a JobConfig."""
    config, reading = facts.config, facts.reading
    surplus = tuple(_expired_jobs(facts))
    if facts.problem:
        return Plan(delete=surplus, status=status.invalid(config, facts.problem, now=facts.now))
    schedule, found = reading.schedule, due_ticks.SchedulePlan()
    if schedule is not None:
        found = due_ticks.plan(schedule, _schedule_facts(facts))
    lost = _resolved_ticks(facts, schedule)
    decision = _decide_ticks(facts, schedule, found, lost=lost)
    make: tuple[int, ...] = ()
    waits: list[float] = []
    if decision is None and facts.row is not None:
        make, again_s = pending_ticks.ticks_to_create(facts.row, facts.pending)
        waits += [] if again_s is None else [again_s]
    upcoming: Upcoming | None = None
    if schedule is not None and not schedule.disabled:
        decided = 0 if facts.row is None else facts.row.tick
        after = max(int(facts.now), int(due_ticks.initial_epoch(config)), decided)
        upcoming = extend_upcoming(schedule, after, facts.upcoming)
    shown = status.make(
        config,
        jobs=facts.jobs,
        group=facts.group,
        row=facts.row,
        ticks=status.Ticks(upcoming.ticks if upcoming else (), found, facts.pending.refusal),
        now=facts.now,
    )
    if found.next_tick is not None:
        waits.append(min(max(found.next_tick - facts.now, 0.0), MAX_WAIT_S))
    return Plan(
        decision=decision,
        warnings=tuple(_announcements(lost)),
        make=make,
        delete=surplus,
        service=knative_service_rendering.service(config),
        upcoming=upcoming,
        status=shown,
        again_s=min(waits, default=None),
    )


def extend_upcoming(
    schedule: due_ticks.CompiledSchedule, after: int, known: Upcoming | None
) -> Upcoming:
    """Return the next ticks of a schedule.

    `known`: ticks found earlier, which are reused if they are still in the future: finding each
    one takes as long as the rest of a pass.
    """
    left: tuple[int, ...] = ()
    if known is not None and known.after <= after:
        left = tuple(tick for tick in known.ticks if tick > after)
    lacking = status.NEXT_RUNS - len(left)
    if not lacking:
        return Upcoming(after, left)
    last = left[-1] if left else after
    return Upcoming(after, (*left, *due_ticks.upcoming_ticks(schedule, last, lacking)))


def parse(config: job_config.JobConfig) -> ParsedConfig:
    """Parse a JobConfig; this takes as long as the rest of a pass."""
    problems = job_validation.validate_job_config(config)
    encoded = msgspec.json.encode(config.spec.schedule)
    return ParsedConfig(
        generation=config.metadata.generation,
        problem="; ".join(f"{field} {why}" for field, why in problems),
        schedule=None if problems else _schedule(config),
        fingerprint=hashlib.sha256(encoded).hexdigest()[:16],
    )


def depends_on(config: job_config.JobConfig) -> Iterator[str]:
    """Yield the names of the JobConfigs on which the Jobs of `config` depend."""
    for one in job_plan.all_dependencies(config.spec.depends_on, config.spec.template.spec):
        if one.kind is job.DependencyKind.JOB_CONFIG:
            yield one.name


def _schedule(config: job_config.JobConfig) -> due_ticks.CompiledSchedule | None:
    spec, metadata = config.spec.schedule, config.metadata
    if spec is None or spec.cron is None:
        return None
    return due_ticks.CompiledSchedule.of(spec, namespace=metadata.namespace, name=metadata.name)


def _schedule_facts(facts: Facts) -> due_ticks.ScheduleFacts:
    row = facts.row
    return due_ticks.ScheduleFacts(
        now=facts.now,
        epoch=due_ticks.initial_epoch(facts.config),
        decided=None if row is None else row.tick,
    )


def _resolved_ticks(
    facts: Facts, schedule: due_ticks.CompiledSchedule | None
) -> dict[int, reasons.ConfigReason | None]:
    """Return the ticks that need no Job any more: those that are resolved
    (`pending_ticks.resolved_ticks`), and those whose Jobs the engine has refused.
    """
    if facts.row is None:
        return {}
    refused = pending_ticks.refused_later(facts.row, facts.jobs)
    if not facts.row.pending:
        return refused
    stopped = schedule is None or schedule.disabled
    within_s = None if stopped or schedule is None else schedule.missed_runs.within_seconds
    found = pending_ticks.resolved_ticks(
        facts.row, facts.pending, jobs=facts.jobs, within_s=within_s, now=facts.now
    )
    return refused | found


def _announcements(lost: dict[int, reasons.ConfigReason | None]) -> Iterator[Announcement]:
    """Yield the announcements of ticks that create no Job, except for those already announced."""
    for why in (Reason.JOB_NOT_MADE, Reason.JOB_DELETED, Reason.DISABLED, Reason.TOO_LATE):
        ticks = [tick for tick, found in lost.items() if found is why]
        if ticks:
            latest = clock.rfc3339(max(ticks))
            more = f", and {len(ticks) - 1} before it" if len(ticks) > 1 else ""
            yield Announcement(str(why), f"The tick of {latest} makes no Job{more}: {why.sentence}")


def _decide_ticks(
    facts: Facts,
    schedule: due_ticks.CompiledSchedule | None,
    found: due_ticks.SchedulePlan,
    *,
    lost: dict[int, reasons.ConfigReason | None],
) -> index_job_types.TickDecision | None:
    """Return the decision about ticks to make now, or None if there is none to make."""
    config, row, now = facts.config, facts.row, int(facts.now)
    made = index_job_types.TickDecision(
        config=config.metadata.uid,
        namespace=config.metadata.namespace,
        name=config.metadata.name,
        fingerprint=facts.reading.fingerprint,
        # A time in the future is not a decided tick: an edit of lastUpdated may revert it.
        tick=min(int(due_ticks.initial_epoch(config)), now),
    )
    if row is None:
        return None if schedule is None else made
    counts = {str(why): list(lost.values()).count(why) for why in lost.values() if why}
    latest, why = max(((tick, str(why)) for tick, why in lost.items() if why), default=(0, ""))
    run: tuple[int, ...] = ()
    tick = row.tick
    if row.fingerprint != made.fingerprint:
        # Ticks before an edit, or while the schedule was disabled, are ignored.
        tick = max(now, row.tick)
    elif found.decided is not None and found.decided > row.tick:
        tick = found.decided
        run, ended, reason = _apply_concurrency(
            facts, found.run, waiting=len(set(row.pending) - set(lost))
        )
        for one in found.dropped:
            counts[str(one.reason)] = counts.get(str(one.reason), 0) + one.count
            latest, why = max((latest, why), (one.latest, str(one.reason)))
        if ended:
            counts[reason] = counts.get(reason, 0) + len(ended)
            latest, why = max((latest, why), (ended[-1], reason))
    elif not lost:
        return None
    return msgspec.structs.replace(
        made,
        tick=tick,
        run=run,
        abandon=tuple(lost),
        dropped=counts,
        latest_dropped=latest or None,
        latest_reason=why,
    )


def _apply_concurrency(
    facts: Facts, ticks: tuple[int, ...], *, waiting: int
) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """Return the ticks that create Jobs, the ticks dropped by the concurrency policy, and the
    reason.

    `waiting`: number of ticks that wait for their Jobs.
    """
    concurrency, group = facts.config.spec.concurrency, facts.group
    room = (concurrency.max_concurrency or 1) - len(group.active) - waiting
    if concurrency.policy is job.ConcurrencyPolicy.FORBID:
        reason = Reason.FORBIDDEN
    elif concurrency.policy is job.ConcurrencyPolicy.ENQUEUE:
        room = max(room, 0) + concurrency.max_queued - len(group.queued)
        reason = Reason.QUEUE_FULL
    else:
        return ticks, (), ""
    room = max(room, 0)
    return ticks[:room], ticks[room:], str(reason)


def _expired_jobs(facts: Facts) -> Iterator[job.Job]:
    """Yield the finished Jobs to delete: the oldest ones, beyond the history limits."""
    spec = facts.config.spec
    for limit, wanted in (
        (spec.successful_jobs_history_limit, True),
        (spec.failed_jobs_history_limit, False),
    ):
        if limit is None:
            continue
        finished = [
            one
            for one in facts.jobs
            if job.is_final(one.status.phase)
            and (one.status.phase == job.Phase.SUCCEEDED) is wanted
            and one.metadata.deletion_timestamp is None
        ]
        finished.sort(key=lambda one: (one.status.finish_time or "", one.metadata.name))
        yield from finished[: max(len(finished) - limit, 0)]
