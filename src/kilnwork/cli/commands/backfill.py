"""`kiln backfill`: create Jobs for past ticks of a schedule."""

from collections.abc import Sequence
from typing import Any

import click

from kilnwork.api import due_ticks, job_config, job_from_config
from kilnwork.api import job as api_job
from kilnwork.api import job_config_options as api_options
from kilnwork.api import kinds as api_kinds
from kilnwork.cli import (
    errors,
    job_lookup,
    job_options,
    options,
    output_formats,
    schedule_views,
    session,
    shell_completion,
    time_types,
)
from kilnwork.kit import clock
from kilnwork.kube import errors as kube_errors

_LIMIT = 100


@click.command()
@click.argument(
    "config", metavar="CONFIG", shell_complete=shell_completion.of_kind(api_kinds.JOB_CONFIGS)
)
@options.target
@click.option(
    "--from",
    "start",
    type=time_types.MOMENT,
    required=True,
    metavar="TIME",
    help="Time of the first tick (inclusive).",
)
@click.option(
    "--to",
    "end",
    type=time_types.MOMENT,
    required=True,
    metavar="TIME",
    help="Time of the last tick (inclusive), not in the future.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=_LIMIT,
    show_default=True,
    metavar="N",
    help="Fail if this would create more than N Jobs.",
)
@click.option(
    "-O",
    "--option-values",
    "text",
    metavar="JSON|YAML|@FILE",
    help="Option values by name, as JSON or YAML text or a file, for all Jobs; @- reads"
    " standard input.",
    shell_complete=shell_completion.files,
)
@click.option(
    "--option",
    "pairs",
    multiple=True,
    metavar="NAME=VALUE",
    help="Value of one option, overrides -O; repeatable.",
    shell_complete=shell_completion.job_options,
)
@click.option(
    "--concurrency-policy",
    "policy",
    type=click.Choice([policy.value for policy in api_job.ConcurrencyPolicy], case_sensitive=False),
    default=api_job.ConcurrencyPolicy.ENQUEUE.value,
    show_default=True,
    help="What to do while other Jobs of the JobConfig run.",
)
@click.option("--dry-run", is_flag=True, help="Print the Jobs without creating them.")
@options.output("name")
def command(config: str, form: str | None, **asked: Any) -> None:
    """Create Jobs for the past ticks of a schedule between two times.

    \b
    kiln backfill report --from 2026-01-01 --to 2026-01-07 --dry-run
    kiln backfill report --from 2026-01-01T02:00 --to 2026-01-01T14:00Z --limit 12

    Prints each Job with created or exists. Jobs get the same names as those of the schedule,
    CONFIG-TICK, so a tick that already has a Job gets no second one. A time without a zone is in
    the time zone of the schedule; a date stands for the whole day. In templates,
    ${job.scheduled_time} is the time of the tick. Jobs wait for each other up to the maxConcurrency
    of the JobConfig, unless --concurrency-policy says otherwise.
    """
    name = job_lookup.plain_name(config, api_kinds.JOB_CONFIGS)
    session.run(lambda s: _backfill(s, name, form, asked))


async def _backfill(s: session.Session, name: str, form: str | None, asked: dict[str, Any]) -> None:
    config = await job_lookup.get_config(s, name)
    view = schedule_views.view_config(config, now=s.clock.wall(), count=1)
    if view is None:
        raise errors.CommandError(
            f"JobConfig {name} has no schedule, and so no ticks: `kiln run-job {name}` runs it"
        )
    ticks = _ticks(view.schedule, asked, now=s.clock.wall())
    existing = await _existing(s)
    missing = [tick for tick in ticks if job_from_config.scheduled_name(name, tick) not in existing]
    policy = api_job.ConcurrencyPolicy(asked["policy"])
    _check_room(config, policy, len(missing))
    try:
        values = job_options.parse_values(config.spec.option, asked["text"], asked["pairs"])
        request = job_from_config.JobRequest(
            option_values=values or None, concurrency_policy=policy
        )
        bodies = {
            tick: job_from_config.backfill_job(config, request, tick=tick) for tick in missing
        }
    except api_options.InvalidOptions as error:
        raise errors.InvalidInput(str(error)) from error
    made = 0
    for tick in ticks:
        what = "exists"
        if tick in bodies:
            what = "would be created" if asked["dry_run"] else await _create(s, bodies[tick])
        made += what.endswith("created")
        _say(job_from_config.scheduled_name(name, tick), what, view, tick, form=form)
    would = "would be " if asked["dry_run"] else ""
    text = f"{made:,} of {len(ticks):,} ticks: Jobs {would}created"
    click.echo(text if made == len(ticks) else f"{text}; the others exist already", err=True)


def _ticks(
    schedule: due_ticks.CompiledSchedule, asked: dict[str, Any], *, now: float
) -> Sequence[int]:
    """Return the ticks in the requested range.

    Raises `errors.InvalidInput` if the range is not in the past, is empty or has too many ticks.
    """
    start, end = asked["start"].first(schedule.zone), asked["end"].last(schedule.zone)
    if asked["end"].whole_day and asked["end"].first(schedule.zone) <= now:
        end = min(end, now)
    if end > now:
        raise errors.InvalidInput(
            f"--to {clock.rfc3339(end)} is in the future: the schedule creates those Jobs itself"
        )
    if end < start:
        raise errors.InvalidInput(
            f"--to {clock.rfc3339(end)} is before --from {clock.rfc3339(start)}"
        )
    limit = asked["limit"]
    first = int(start) if start == int(start) else int(start) + 1
    ticks = due_ticks.ticks_between(schedule, first, int(end), limit=limit + 1)
    if len(ticks) > limit:
        more = f"{clock.rfc3339(ticks[limit - 1])} is tick {limit}"
        raise errors.InvalidInput(
            f"there are more than {limit} ticks in that time, {more}: shorten it, or say --limit"
        )
    if not ticks:
        raise errors.CommandError(
            f"the schedule has no tick from {clock.rfc3339(start)} to {clock.rfc3339(end)}"
        )
    return ticks


def _check_room(
    config: job_config.JobConfig, policy: api_job.ConcurrencyPolicy, count: int
) -> None:
    """Refuse to create more Jobs than fit into the queue of the JobConfig.

    Otherwise the server would refuse the surplus Jobs one by one.
    """
    room = config.spec.concurrency.max_queued + (config.spec.concurrency.max_concurrency or 1)
    if policy is api_job.ConcurrencyPolicy.ENQUEUE and count > room:
        raise errors.CommandError(
            f"JobConfig {config.metadata.name} lets {room} Jobs run and wait, and {count} are to "
            "be made: take a shorter time, raise spec.concurrency.maxQueued, or say "
            "--concurrency-policy Allow"
        )


async def _existing(s: session.Session) -> set[str]:
    path = s.path(api_kinds.JOBS, namespace=s.one_namespace())
    return {str(item["metadata"]["name"]) for item in await s.items(path)}


async def _create(s: session.Session, body: dict[str, Any]) -> str:
    path = s.path(api_kinds.JOBS, namespace=s.one_namespace())
    try:
        await s.ask("POST", path, query={"fieldValidation": "Strict"}, body=body)
    except kube_errors.AlreadyExists:
        return "exists"
    return "created"


def _say(
    name: str, what: str, view: schedule_views.ScheduleView, tick: int, *, form: str | None
) -> None:
    if form == "name":
        click.echo(output_formats.full_name(api_kinds.JOBS, name))
        return
    click.echo(f"{name}   {schedule_views.local(tick, view.schedule.zone)}   {what}")
