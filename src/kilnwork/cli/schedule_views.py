"""Views of schedules for printing: future ticks in local time and UTC, the last tick, missed ticks.

Used by `kiln schedule` and `kiln backfill`. No I/O: takes JobConfigs and the time.
"""

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from kilnwork.api import due_ticks, job_config
from kilnwork.cli import errors, output_formats
from kilnwork.kit import clock


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    """View of one schedule, ready to be printed."""

    name: str
    spec: job_config.Schedule
    schedule: due_ticks.CompiledSchedule
    ticks: tuple[int, ...]
    """The next ticks, also if the schedule is disabled."""
    status: job_config.JobConfigStatus = job_config.JobConfigStatus()


def view_config(found: job_config.JobConfig, *, now: float, count: int) -> ScheduleView | None:
    """Return a view of the schedule of a JobConfig, or None if it has no schedule.

    Raises `errors.CommandError` for an invalid schedule.
    """
    spec, metadata = found.spec.schedule, found.metadata
    if spec is None:
        return None
    try:
        schedule = due_ticks.CompiledSchedule.of(
            spec, namespace=metadata.namespace, name=metadata.name
        )
    except due_ticks.InvalidSchedule as error:
        raise errors.CommandError(f"JobConfig {metadata.name}: {error}") from error
    last = found.status.last_scheduled
    after = max(int(now), int(clock.parse_rfc3339(last)) if last else 0)
    return ScheduleView(
        name=metadata.name,
        spec=spec,
        schedule=schedule,
        ticks=due_ticks.upcoming_ticks(schedule, after, count),
        status=found.status,
    )


def view_expressions(
    expressions: Sequence[str], zone: str, *, name: str, now: float, count: int
) -> ScheduleView:
    """Return a view of cron expressions that belong to no JobConfig.

    `name`: NAMESPACE/NAME, from which the numbers for `H` are derived. Raises
    `errors.InvalidInput`.
    """
    cron = job_config.CronSchedule(expressions=tuple(expressions), timezone=zone)
    spec = job_config.Schedule(cron=cron)
    namespace, _, bare = name.rpartition("/")
    try:
        schedule = due_ticks.CompiledSchedule.of(spec, namespace=namespace or "default", name=bare)
    except due_ticks.InvalidSchedule as error:
        options = {"cron.timezone": "--timezone"}
        raise errors.InvalidInput(f"{options.get(error.path, '--cron')}: {error.detail}") from error
    ticks = due_ticks.upcoming_ticks(schedule, int(now), count)
    return ScheduleView(name=bare, spec=spec, schedule=schedule, ticks=ticks)


def expressions(spec: job_config.Schedule) -> str:
    """Return the cron expressions of a schedule as one text, separated by semicolons."""
    if spec.cron is None:
        return ""
    return "; ".join(spec.cron.expressions or (spec.cron.expression,))


def zone_name(spec: job_config.Schedule) -> str:
    return (spec.cron.timezone if spec.cron is not None else "") or "UTC"


def local(tick: float, zone: dt.tzinfo) -> str:
    """Return the time of a tick as text in a time zone, such as `Fri 2026-01-02 02:13:00 +0100`."""
    return dt.datetime.fromtimestamp(tick, zone).strftime("%a %Y-%m-%d %H:%M:%S %z")


def describe(view: ScheduleView, *, now: float) -> Iterator[str]:
    """Yield the lines that describe one schedule."""
    state = ", disabled" if view.spec.disabled else ""
    yield f"{view.name}: {expressions(view.spec)} in {zone_name(view.spec)}{state}"
    status, zone = view.status, view.schedule.zone
    if status.last_scheduled:
        last = clock.parse_rfc3339(status.last_scheduled)
        yield f"  last    {local(last, zone)}   {status.last_scheduled}"
    if (missed := missed_text(status)) is not None:
        yield f"  missed  {missed}"
    if view.spec.disabled:
        yield f"  none of these makes a Job: `kiln enable {view.name}` lets them"
    if not view.ticks:
        yield "  no future ticks"
        return
    rows = [
        (local(tick, zone), clock.rfc3339(tick), output_formats.short_time(tick - now))
        for tick in view.ticks
    ]
    yield from (f"  {line}" for line in output_formats.columns(("LOCAL", "UTC", "IN"), rows))


def missed_text(status: job_config.JobConfigStatus) -> str | None:
    """Return a text about the missed ticks of a JobConfig, or None if there are none.

    For example `3 (TooLate 2, Forbidden 1), the latest 2026-…, Forbidden`.
    """
    missed = status.missed
    if missed is None or not missed.total:
        return None
    reasons = ", ".join(f"{name} {count:,}" for name, count in sorted(missed.reasons.items()))
    text = f"{missed.total:,} ({reasons})"
    if missed.latest:
        text += f", the latest {missed.latest}, {missed.latest_reason}"
    return text


_COLUMNS = ("NAME", "CRON", "TIMEZONE", "NEXT", "IN", "LAST", "MISSED")


def table(views: Sequence[ScheduleView], *, now: float) -> list[str]:
    """Return the lines of a table with one schedule per line."""
    return output_formats.columns(_COLUMNS, [_row(view, now=now) for view in views])


def _row(view: ScheduleView, *, now: float) -> tuple[object, ...]:
    following = view.ticks[0] if view.ticks and not view.spec.disabled else None
    missed, last = view.status.missed, view.status.last_scheduled
    next_text = "disabled" if view.spec.disabled else None
    return (
        view.name,
        expressions(view.spec) or None,
        zone_name(view.spec),
        next_text if following is None else local(following, view.schedule.zone)[4:20],
        None if following is None else output_formats.short_time(following - now),
        None if not last else local(clock.parse_rfc3339(last), view.schedule.zone)[4:20],
        0 if missed is None else missed.total,
    )


def document(view: ScheduleView) -> dict[str, Any]:
    """Return one schedule as a JSON document."""
    zone = view.schedule.zone
    return {
        "name": view.name,
        "expressions": expressions(view.spec).split("; "),
        "timezone": zone_name(view.spec),
        "disabled": view.spec.disabled,
        "lastScheduled": view.status.last_scheduled,
        "missed": msgspec.to_builtins(view.status.missed),
        "nextRuns": [
            {
                "utc": clock.rfc3339(tick),
                "local": dt.datetime.fromtimestamp(tick, zone).isoformat(),
            }
            for tick in view.ticks
        ],
    }
