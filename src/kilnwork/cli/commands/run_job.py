"""`kiln run-job`: create a Job from a JobConfig with option values; --watch follows it."""

import sys
from typing import Any

import click

from kilnwork.api import job as api_job
from kilnwork.api import job_config, job_from_config, job_option_forms
from kilnwork.api import job_config_options as api_options
from kilnwork.api import kinds as api_kinds
from kilnwork.cli import (
    errors,
    exits,
    job_lookup,
    job_options,
    job_progress,
    options,
    output_formats,
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
    help="Option values by name, as JSON or YAML text or a file; @- reads standard input.",
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
    "--use-defaults", is_flag=True, help="Ask only for required options that have no default."
)
@click.option("--no-interactive", is_flag=True, help="Never ask for options, even in a terminal.")
@click.option(
    "--name",
    metavar="NAME",
    help="Name of the Job; default: the name of the JobConfig and a random suffix.",
)
@click.option(
    "--at",
    type=time_types.MOMENT,
    metavar="TIME",
    help="Start no earlier than this time: 2026-01-02T03:04, local time unless it ends with a"
    " zone such as Z.",
)
@click.option(
    "--after",
    type=options.DURATION,
    help="Start no earlier than after this time from now, for example 30m.",
)
@click.option(
    "--enqueue",
    is_flag=True,
    help="Wait while other Jobs of the JobConfig run; same as --concurrency-policy Enqueue.",
)
@click.option(
    "--concurrency-policy",
    "policy",
    type=click.Choice([policy.value for policy in api_job.ConcurrencyPolicy], case_sensitive=False),
    help="What to do while other Jobs of the JobConfig run; default: as the JobConfig says,"
    " Enqueue with --at and --after.",
)
@click.option(
    "--priority",
    type=int,
    metavar="N",
    help="Priority of the Job, higher first; default: that of the JobConfig.",
)
@click.option("--watch", is_flag=True, help="Show progress until the Job finishes.")
@click.option(
    "--options-schema",
    "schema",
    is_flag=True,
    help="Print the JSON Schema of the option values without creating a Job.",
)
@click.option("--dry-run", is_flag=True, help="Print the Job without creating it.")
@options.output("name", "json", "yaml")
def command(config: str, form: str | None, **asked: Any) -> int:
    """Create a Job from a JobConfig, to run now or later.

    \b
    kiln run-job report
    kiln run-job report --option day=2026-01-31 --option cities=Oslo,Lima --watch
    kiln run-job report -O '{"day": "2026-01-31"}' --after 30m --enqueue
    kiln run-job report -O @options.yaml --dry-run -o yaml
    kiln run-job report --options-schema

    Prints the name of the Job. In a terminal it asks for the value of every option that was not
    given; Enter accepts the default. Type lists with commas, or as JSON.

    With --watch, prints progress and failed indexes, and exits with 6 unless the Job succeeds.
    Ctrl-C leaves the Job running.
    """
    _check(asked)
    name = job_lookup.plain_name(config, api_kinds.JOB_CONFIGS)
    found = session.run(lambda s: job_lookup.get_config(s, name))
    if asked["schema"]:
        click.echo(
            output_formats.document(_schema(found), "yaml" if form == "yaml" else "json"), nl=False
        )
        return exits.Exit.OK
    body = _body(found, asked)
    if asked["dry_run"]:
        body["metadata"].pop("uid", None)
        shown = body["metadata"].get("name") or body["metadata"]["generateName"]
        named = f"{output_formats.full_name(api_kinds.JOBS, shown)}\n"
        click.echo(named if form == "name" else output_formats.document(body, form), nl=False)
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
        asked["no_interactive"] = True  # there is no terminal for prompts


def _schema(config: job_config.JobConfig) -> dict[str, Any]:
    """Return the JSON Schema of the option values of a JobConfig.

    Raises `errors.InvalidInput` for invalid options.
    """
    problems = list(api_options.problems(config.spec.option))
    if problems:
        raise errors.InvalidInput("; ".join(f"{field} {problem}" for field, problem in problems))
    return job_option_forms.json_schema(config.spec.option)


def _body(config: job_config.JobConfig, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the Job to create from a JobConfig and the options of the command line.

    Raises `errors.InvalidInput` for option values that the JobConfig does not allow.
    """
    policy = api_job.ConcurrencyPolicy.ENQUEUE if asked["enqueue"] else asked["policy"]
    try:
        values = job_options.parse_values(config.spec.option, asked["text"], asked["pairs"])
        if not asked["no_interactive"] and sys.stdin.isatty():
            needed = asked["use_defaults"]
            values = job_options.ask(config.spec.option, values, only_needed=needed)
        api_options.evaluate(config.spec.option, values, field=job_options.FIELD)
        return job_from_config.new_job(
            config,
            job_from_config.JobRequest(
                name=asked["name"] or "",
                option_values=values or None,
                start_after=_start(asked),
                concurrency_policy=None if policy is None else api_job.ConcurrencyPolicy(policy),
                priority=asked["priority"] or 0,
            ),
        )
    except api_options.InvalidOptions as error:
        raise errors.InvalidInput(str(error)) from error


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
    text = output_formats.full_name(api_kinds.JOBS, made["metadata"]["name"])
    if form in ("json", "yaml"):
        text = output_formats.document(made, form).rstrip("\n")
    elif form is None:
        text += " created"
    click.echo(text, err=watch and form is None)
    if watch:
        await job_progress.follow(s, made["metadata"]["name"])
