"""`kiln schedule`: show when JobConfigs, or cron expressions, run next."""

from typing import Any

import click

from kilnwork.api import due_ticks
from kilnwork.api import kinds as api_kinds
from kilnwork.cli import (
    errors,
    job_lookup,
    options,
    output_formats,
    schedule_views,
    session,
    shell_completion,
)
from kilnwork.kit import clock

_PREVIEW = "default/preview"


@click.command()
@click.argument(
    "configs",
    nargs=-1,
    metavar="[CONFIG…]",
    shell_complete=shell_completion.of_kind(api_kinds.JOB_CONFIGS),
)
@options.list_target
@click.option(
    "--next",
    "count",
    type=click.IntRange(1, 1000),
    default=due_ticks.NEXT_RUNS,
    show_default=True,
    metavar="N",
    help="Number of future ticks to show.",
)
@click.option(
    "--cron",
    "expressions",
    multiple=True,
    metavar="EXPR",
    help="Show when this cron expression would run, without asking a server; repeatable.",
)
@click.option(
    "--timezone",
    metavar="TZ",
    help="Time zone for --cron: an IANA name, or an offset such as UTC+8; default: UTC.",
)
@click.option("--no-headers", is_flag=True, help="Omit the header line.")
@options.output("json", "yaml")
def command(
    configs: tuple[str, ...],
    expressions: tuple[str, ...],
    timezone: str | None,
    form: str | None,
    **asked: Any,
) -> None:
    """Show when JobConfigs run next, when they last ran, and which ticks they missed and why.

    \b
    kiln schedule
    kiln schedule report --next 10
    kiln schedule --cron '0 2 * * MON-FRI' --timezone Europe/Zurich
    kiln schedule --cron 'H 2 * * *'

    Without CONFIG, lists all schedules with their next tick. Times are shown in the time zone of
    the schedule and in UTC. In a cron expression, `H` stands for a number that is derived from
    namespace and name of the JobConfig; with --cron, CONFIG names that JobConfig.
    """
    count = asked["count"]
    if timezone is not None and not expressions:
        raise click.UsageError("--timezone is of --cron: a JobConfig has its own")
    if expressions:
        _preview(expressions, timezone or "", configs, count=count, form=form)
        return
    session.run(lambda s: _show(s, configs, count, form, headers=not asked["no_headers"]))


def _preview(
    expressions: tuple[str, ...],
    zone: str,
    configs: tuple[str, ...],
    *,
    count: int,
    form: str | None,
) -> None:
    if len(configs) > 1:
        raise click.UsageError("--cron takes one CONFIG at most: the one whose H is meant")
    name = _PREVIEW
    if configs:
        namespace = options.current().namespace or "default"
        name = f"{namespace}/{job_lookup.plain_name(configs[0], api_kinds.JOB_CONFIGS)}"
    now = clock.SystemClock().wall()
    view = schedule_views.view_expressions(expressions, zone, name=name, now=now, count=count)
    _print([view], form, now=now)


async def _show(
    s: session.Session, configs: tuple[str, ...], count: int, form: str | None, *, headers: bool
) -> None:
    now = s.clock.wall()
    if not configs:
        await _list(s, count, form, headers=headers)
        return
    views = []
    for word in configs:
        name = job_lookup.plain_name(word, api_kinds.JOB_CONFIGS)
        view = schedule_views.view_config(
            await job_lookup.get_config(s, name), now=now, count=count
        )
        if view is None:
            raise errors.CommandError(
                f"JobConfig {name} has no schedule: `kiln run-job {name}` runs it"
            )
        views.append(view)
    _print(views, form, now=now)


async def _list(s: session.Session, count: int, form: str | None, *, headers: bool) -> None:
    """Print all schedules; an invalid schedule is reported and does not prevent the others."""
    now, views = s.clock.wall(), []
    for item in await s.items(s.scope(api_kinds.JOB_CONFIGS)):
        try:
            view = schedule_views.view_config(job_lookup.decode_config(item), now=now, count=count)
        except errors.CommandError as error:
            click.echo(f"Warning: {error}", err=True)
            continue
        if view is not None:
            views.append(view)
    if form is not None:
        _print(views, form, now=now)
    elif not views:
        await s.say_nothing_found("no JobConfig has a schedule")
    else:
        for line in schedule_views.table(views, now=now)[0 if headers else 1 :]:
            click.echo(line)


def _print(views: list[schedule_views.ScheduleView], form: str | None, *, now: float) -> None:
    if form is not None:
        items = [schedule_views.document(view) for view in views]
        click.echo(output_formats.document({"items": items}, form), nl=False)
        return
    for number, view in enumerate(views):
        if number:
            click.echo()
        for line in schedule_views.describe(view, now=now):
            click.echo(line)
