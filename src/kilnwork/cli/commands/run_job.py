"""`kiln run-job`: make a Job of a JobConfig, with values for its options; --watch follows it."""

import sys
from typing import Any

import click

from kilnwork.api import job as api_job
from kilnwork.api import job_config, job_expansion, option_forms
from kilnwork.api import kinds as api_kinds
from kilnwork.api import options as api_options
from kilnwork.cli import (
    errors,
    exits,
    job_names,
    job_options,
    job_progress,
    options,
    render,
    session,
    shell_completion,
    time_types,
    validation,
)
from kilnwork.kit import clock
from kilnwork.kube import errors as kube_errors


@click.command()
@click.argument(
    "config", metavar="CONFIG", shell_complete=shell_completion.of_kind(api_kinds.JOB_CONFIGS)
)
@options.target
@click.option(
    "-O",
    "--option-values",
    "text",
    metavar="JSON|YAML|@FILE",
    help="Values of options by name, as one text, or as a file; @- is standard input.",
    shell_complete=shell_completion.files,
)
@click.option(
    "--option",
    "pairs",
    multiple=True,
    metavar="NAME=VALUE",
    help="A value of one option; may be repeated.",
    shell_complete=shell_completion.job_options,
)
@click.option("--use-defaults", is_flag=True, help="Ask only for options that have no default.")
@click.option("--no-interactive", is_flag=True, help="Ask for nothing, also in a terminal.")
@click.option("--name", help="Name of the Job; default that of the JobConfig and something random.")
@click.option(
    "--at",
    type=time_types.MOMENT,
    metavar="TIME",
    help="Start no sooner: 2026-01-02T03:04, or with Z.",
)
@click.option("--after", type=options.DURATION, help="Start after this time, such as 30m.")
@click.option("--enqueue", is_flag=True, help="Wait while others of the JobConfig run.")
@click.option(
    "--concurrency-policy",
    "policy",
    type=click.Choice([policy.value for policy in api_job.ConcurrencyPolicy], case_sensitive=False),
    help="What happens while others run; default as the JobConfig says.",
)
@click.option(
    "--priority", type=int, help="Higher ones start first; default that of the JobConfig."
)
@click.option("--watch", is_flag=True, help="Follow it with a progress bar, and end as it ends.")
@click.option(
    "--options-schema",
    "schema",
    is_flag=True,
    help="Print what values its options take, as JSON Schema, and make nothing.",
)
@click.option("--dry-run", is_flag=True, help="Print the Job and make nothing.")
@options.output("name", "json", "yaml")
def command(config: str, form: str | None, **asked: Any) -> int:
    """Run a JobConfig now, or at a time: make a Job of it.

    \b
    kiln run-job report
    kiln run-job report --option day=2026-01-31 --option cities=Oslo,Lima --watch
    kiln run-job report -O '{"day": "2026-01-31"}' --after 30m --enqueue
    kiln run-job report -O @options.yaml --dry-run -o yaml
    kiln run-job report --options-schema

    In a terminal it asks for the options that were given no value; Enter takes the default. Lists
    are typed with commas, or as JSON. `kiln schedule report` shows when it runs by itself.

    With --watch it prints indexes that fail as they do, and ends with 6 unless the Job succeeds.
    Ctrl-C leaves the Job running.
    """
    _check(asked)
    name = job_names.bare(config, api_kinds.JOB_CONFIGS)
    found = session.run(lambda s: job_names.config(s, name))
    if asked["schema"]:
        click.echo(render.document(_schema(found), "yaml" if form == "yaml" else "json"), nl=False)
        return exits.Exit.OK
    body = _body(found, asked)
    if asked["dry_run"]:
        body["metadata"].pop("uid", None)
        shown = body["metadata"].get("name") or body["metadata"]["generateName"]
        named = f"{render.full_name(api_kinds.JOBS, shown)}\n"
        click.echo(named if form == "name" else render.document(body, form), nl=False)
        return exits.Exit.OK
    session.run(lambda s: _run(s, body, form=form, watch=asked["watch"]))
    return exits.Exit.OK


def _check(asked: dict[str, Any]) -> None:
    more = {name for name, value in asked.items() if value not in (None, False, "", ())}
    if asked["schema"] and more != {"schema"}:
        raise click.UsageError("--options-schema makes no Job: give nothing but -o with it")
    if asked["at"] is not None and asked["after"] is not None:
        raise click.UsageError("--at and --after exclude each other")
    if asked["enqueue"] and asked["policy"] not in (None, api_job.ConcurrencyPolicy.ENQUEUE):
        raise click.UsageError("--enqueue means --concurrency-policy Enqueue: give one of them")
    if asked["text"] == "@-" and not asked["use_defaults"]:
        asked["no_interactive"] = True  # no user is there to be asked


def _schema(config: job_config.JobConfig) -> dict[str, Any]:
    """What values the options take. Raises `errors.Unusable` for options that are not valid."""
    problems = list(api_options.problems(config.spec.option))
    if problems:
        raise errors.Unusable("; ".join(f"{field} {problem}" for field, problem in problems))
    return option_forms.json_schema(config.spec.option)


def _body(config: job_config.JobConfig, asked: dict[str, Any]) -> dict[str, Any]:
    """The Job. Raises `errors.Unusable` for values that do not suit the options."""
    policy = api_job.ConcurrencyPolicy.ENQUEUE if asked["enqueue"] else asked["policy"]
    try:
        values = job_options.given(config.spec.option, asked["text"], asked["pairs"])
        if not asked["no_interactive"] and sys.stdin.isatty():
            needed = asked["use_defaults"]
            values = job_options.ask(config.spec.option, values, only_needed=needed)
        api_options.evaluate(config.spec.option, values, field=job_options.FIELD)
        return job_expansion.new_job(
            config,
            job_expansion.JobRequest(
                name=asked["name"] or "",
                option_values=values or None,
                start_after=_start(asked),
                concurrency_policy=None if policy is None else api_job.ConcurrencyPolicy(policy),
                priority=asked["priority"] or 0,
            ),
        )
    except api_options.InvalidOptions as error:
        raise errors.Unusable(str(error)) from error


def _start(asked: dict[str, Any]) -> str | None:
    if asked["at"] is not None:
        return clock.rfc3339(asked["at"].first())
    if asked["after"] is not None:
        return clock.rfc3339(clock.SystemClock().wall() + asked["after"])
    return None


async def _run(s: session.Session, body: dict[str, Any], *, form: str | None, watch: bool) -> None:
    if (why := validation.find_refusal(api_kinds.JOBS, body)) is not None:
        raise errors.CommandError(why)
    if watch:
        await s.find_manager()  # before the Job begins: reports that the user may not follow it
    path = s.path(api_kinds.JOBS, namespace=s.one_namespace())
    try:
        made = await s.ask("POST", path, query={"fieldValidation": "Strict"}, body=body)
    except kube_errors.AlreadyExists as error:
        name = body["metadata"].get("name", "")
        raise errors.CommandError(
            f"{error}: choose another --name, or remove it with `kiln delete job {name}`"
        ) from error
    text = render.full_name(api_kinds.JOBS, made["metadata"]["name"])
    if form in ("json", "yaml"):
        text = render.document(made, form).rstrip("\n")
    elif form is None:
        text += " created"
    click.echo(text, err=watch and form is None)
    if watch:
        await job_progress.follow(s, made["metadata"]["name"])
