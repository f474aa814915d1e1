"""The choice of the Job that a dependency on a JobConfig refers to.

No I/O. Used by `dependency_states`. The choice depends only on times that do not change, so that a
waiting Job keeps its dependency when newer Jobs are created. It is made when all ticks of the
JobConfig up to the time of the waiting Job are decided.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kilnwork.api import due_ticks, job, job_config, job_from_config
from kilnwork.jobs import index_job_types
from kilnwork.kit import clock


class Choice(NamedTuple):
    """The Job that was chosen for a dependency, or what must happen before a Job can be chosen."""

    found: job.Job | None = None
    waits: str = ""


def choose(
    seen: job.Job,
    config: job_config.JobConfig,
    *,
    jobs: Iterable[job.Job],
    row: index_job_types.ScheduleRow | None,
) -> Choice:
    """Choose the newest Job of a JobConfig that is not later than the Job `seen`, otherwise the
    first later one.

    `jobs`: the Jobs of the JobConfig. `row`: the decisions of its schedule.
    """
    until, name = time_of(seen), config.metadata.name
    others = [one for one in jobs if one.metadata.uid != seen.metadata.uid]
    ticks = {job_from_config.scheduled_time_of(one) for one in others}
    try:
        undecided = _find_undecided(config, row, until, ticks)
    except due_ticks.InvalidSchedule as error:
        return Choice(waits=f"JobConfig {name} cannot be used: {error}")
    if undecided is not None:
        text = f"JobConfig {name} has not made its Job of {clock.rfc3339(undecided)} yet"
        if config.status.state == job_config.ConfigState.INVALID:
            text += ", and cannot be used"
        return Choice(waits=text)
    before = [one for one in others if time_of(one) <= until]
    if before:
        return Choice(max(before, key=_sort_key))
    made = _created(seen)
    after = [one for one in others if _created(one) >= made]
    if after:
        return Choice(min(after, key=_sort_key))
    text = f"JobConfig {name} has no Job until {clock.rfc3339(until)}, and has made none since"
    return Choice(waits=f"{text}: `kiln run-job {name}` or `kiln backfill {name}` makes one")


def time_of(one: job.Job) -> float:
    """Return the scheduled time of a scheduled or backfilled Job, otherwise the Job's creation
    time; in seconds.
    """
    tick = job_from_config.scheduled_time_of(one)
    return _created(one) if tick is None else float(tick)


def _find_undecided(
    config: job_config.JobConfig,
    row: index_job_types.ScheduleRow | None,
    until: float,
    made: set[int | None],
) -> int | None:
    """Return a tick up to `until` that is undecided or whose Job does not exist yet; None if
    there is none."""
    metadata, spec = config.metadata, config.spec.schedule
    if spec is None or spec.disabled or spec.cron is None:
        return None
    pending = [] if row is None else [t for t in row.pending if t <= until and t not in made]
    if pending:
        return max(pending)
    schedule = due_ticks.CompiledSchedule.of(spec, namespace=metadata.namespace, name=metadata.name)
    decided = max(int(due_ticks.initial_epoch(config)), 0 if row is None else row.tick)
    following = schedule.next_after(decided)
    return following if following is not None and following <= until else None


def _created(one: job.Job) -> float:
    made = one.metadata.creation_timestamp
    return 0.0 if made is None else clock.parse_rfc3339(made)


def _sort_key(one: job.Job) -> tuple[float, bool, str]:
    """Return a sort key by time; of two Jobs with the same time, the scheduled one is the later."""
    is_of_tick = job_from_config.scheduled_time_of(one) is not None
    return time_of(one), is_of_tick, one.metadata.name
