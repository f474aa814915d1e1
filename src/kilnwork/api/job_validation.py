"""Checks of Jobs and JobConfigs beyond their schemas; problems are (field, text) pairs.

Used by the API server's admission, by the controllers, which report the same problems in the status
on a real Kubernetes, and by the SDK for `@kiln.job`. `job_template_validation` checks the
templates. Pure: a check reads the object itself and no other.
"""

from collections.abc import Iterable, Iterator

import msgspec

from kilnwork.api import (
    crd_jobs,
    crd_parts,
    cron,
    job,
    job_config,
    job_config_options,
    job_option_forms,
    job_template_validation,
    job_variables,
    knative_service_rendering,
    names,
    task_validation,
    time_zones,
)
from kilnwork.kit import clock

Problem = task_validation.Problem

_TEMPLATE = "spec.template"
_CONFIG_TEMPLATE = "spec.template.spec"
_TWICE = "is there twice"


def validate_job(declared: job.Job) -> list[Problem]:
    """Return the problems of a Job that conforms to its schema."""
    return [
        *_name_problems(declared.metadata.name, job.MAX_NAME),
        *_job_problems(declared),
        *_template_problems(declared),
    ]


def validate_job_update(old: job.Job, new: job.Job) -> list[Problem]:
    """Return a problem for each forbidden change of a Job."""
    return list(_update_problems(old.spec, new.spec))


def validate_job_config(declared: job_config.JobConfig) -> list[Problem]:
    """Return the problems of a JobConfig that conforms to its schema."""
    spec = declared.spec
    given = () if spec.option is None else spec.option.options
    known = {*job_variables.JOB_CONFIG, *map(job_config_options.variable_name, given)}
    return [
        *_name_problems(declared.metadata.name, job_config.MAX_NAME),
        *_metadata_problems(spec.template.metadata),
        *_schedule_problems(declared),
        *_asked_problems(spec, given),
        *_concurrency_problems(spec.concurrency),
        *_lock_problems(spec.locks),
        *_dependency_problems(
            spec.depends_on,
            kind=job.DependencyKind.JOB_CONFIG,
            own_name=declared.metadata.name,
        ),
        *job_config_options.problems(spec.option),
        *knative_service_rendering.problems(declared),
        *job_template_validation.problems(
            knative_service_rendering.with_service_name(spec.template.spec, declared.metadata.name),
            _CONFIG_TEMPLATE,
            known=known,
        ),
    ]


def _asked_problems(
    spec: job_config.JobConfigSpec, given: Iterable[job_config.Option]
) -> Iterator[Problem]:
    """Yield required options without a default, for which a schedule has no values."""
    if spec.schedule is None or spec.schedule.disabled:
        return
    for option in given:
        if job_option_forms.is_asked(option):
            yield (
                "spec.schedule",
                (
                    f"would make Jobs without option {option.name}, which is required: give it a "
                    "default, or no schedule"
                ),
            )


def _name_problems(name: str, longest: int) -> Iterator[Problem]:
    if len(name) > longest:
        yield "metadata.name", f"{crd_parts.name_rule(longest)}, not {len(name)}"


def _job_problems(declared: job.Job) -> Iterator[Problem]:
    spec = declared.spec
    if spec.template is None and spec.config_name is None:
        yield _TEMPLATE, crd_jobs.TEMPLATE_RULE
    yield from task_validation.name_problems((("spec.configName", spec.config_name),))
    yield from task_validation.time_problems(
        (
            ("spec.killTimestamp", spec.kill_timestamp),
            ("spec.startPolicy.startAfter", spec.start_policy.start_after),
        )
    )
    yield from _dependency_problems(
        spec.depends_on, kind=job.DependencyKind.JOB, own_name=declared.metadata.name
    )
    yield from _lock_problems(spec.locks)
    for name in spec.substitutions:
        if not job_variables.is_variable(name):
            yield f"spec.substitutions.{name}", "is no whole name of a variable, such as option.x"


def _template_problems(declared: job.Job) -> Iterator[Problem]:
    """Yield the problems of the template of a Job, unless it is replaced by that of its
    JobConfig."""
    spec = declared.spec
    try:
        given = job_config_options.parse_values(spec.option_values)
    except job_config_options.InvalidOptions as error:
        yield from error.problems
        return
    if spec.template is None or spec.config_name is not None:
        return
    owners = {owner.kind for owner in declared.metadata.owner_references}
    known = {
        *spec.substitutions,
        *job_variables.of_options(given),
        *(job_variables.JOB_CONFIG if job_config.JobConfig.__name__ in owners else ()),
    }
    yield from job_template_validation.problems(spec.template, _TEMPLATE, known=known)


def _dependency_problems(
    dependencies: Iterable[job.Dependency], *, kind: job.DependencyKind, own_name: str
) -> Iterator[Problem]:
    seen: set[tuple[str, str]] = set()
    for position, dependency in enumerate(dependencies):
        field = f"spec.dependsOn[{position}].name"
        yield from task_validation.name_problems(((field, dependency.name),))
        key = (dependency.kind, dependency.name)
        if key in seen:
            yield field, _TWICE
        seen.add(key)
        if key == (kind, own_name):
            yield field, f"is this {kind} itself, which would wait for ever"


def _lock_problems(locks: Iterable[job.Lock]) -> Iterator[Problem]:
    held = [lock.name for lock in locks]
    yield from task_validation.name_problems(
        (f"spec.locks[{position}].name", name) for position, name in enumerate(held)
    )
    yield from _duplicates(held, "spec.locks[{}].name")


def _duplicates(names_: Iterable[str], field: str) -> Iterator[Problem]:
    seen: set[str] = set()
    for position, name in enumerate(names_):
        if name in seen:
            yield field.format(position), _TWICE
        seen.add(name)


def _metadata_problems(metadata: job_config.TemplateMetadata) -> Iterator[Problem]:
    for key, value in metadata.labels.items():
        problem = names.qualified_problem(key) or names.label_value_problem(value)
        if problem is not None:
            yield f"spec.template.metadata.labels.{key}", problem
    for key in metadata.annotations:
        if (problem := names.qualified_problem(key.lower())) is not None:
            yield f"spec.template.metadata.annotations.{key}", problem


def _concurrency_problems(concurrency: job_config.Concurrency) -> Iterator[Problem]:
    allowed = concurrency.policy is job.ConcurrencyPolicy.ALLOW
    if allowed and concurrency.max_concurrency is not None:
        yield "spec.concurrency.maxConcurrency", crd_jobs.ALLOW_RULE


def _schedule_problems(declared: job_config.JobConfig) -> Iterator[Problem]:
    schedule = declared.spec.schedule
    if schedule is None:
        return
    field = "spec.schedule"
    if schedule.cron is None:
        yield f"{field}.cron", "is needed: it says when Jobs are made"
    else:
        hash_id = f"{declared.metadata.namespace}/{declared.metadata.name}"
        yield from _cron_problems(schedule.cron, f"{field}.cron", hash_id)
    limits = schedule.constraints or job_config.ScheduleConstraints()
    times = (
        (f"{field}.constraints.notBefore", limits.not_before),
        (f"{field}.constraints.notAfter", limits.not_after),
        (f"{field}.lastUpdated", schedule.last_updated),
    )
    found = list(task_validation.time_problems(times))
    yield from found
    if found or limits.not_before is None or limits.not_after is None:
        return
    if clock.parse_rfc3339(limits.not_after) < clock.parse_rfc3339(limits.not_before):
        yield f"{field}.constraints.notAfter", f"is before notBefore, {limits.not_before}"


def _cron_problems(given: job_config.CronSchedule, field: str, hash_id: str) -> Iterator[Problem]:
    if (given.expression != "") == bool(given.expressions):
        yield field, crd_jobs.CRON_RULE
        return
    written = {
        f"{field}.expressions[{position}]": text for position, text in enumerate(given.expressions)
    }
    for at, text in (written or {f"{field}.expression": given.expression}).items():
        problem = cron.problem(text, format=given.format, hash_id=hash_id)
        if problem is not None:
            yield at, problem
    if (problem := time_zones.timezone_problem(given.timezone)) is not None:
        yield f"{field}.timezone", problem


def _update_problems(old: job.JobSpec, new: job.JobSpec) -> Iterator[Problem]:
    if new.run < old.run:
        yield "spec.run", f"{crd_parts.RUN_RULE}, it was {old.run}"
    if new.config_name is not None and new.config_name != old.config_name:
        yield "spec.configName", f"{crd_jobs.CONFIG_NAME_RULE}, it was {old.config_name}"
    if new.type != old.type:
        yield "spec.type", crd_jobs.IMMUTABLE
    if old.config_name is not None and (old.template is None or new.config_name is None):
        return  # the template of the JobConfig is being copied, with the fields that belong to it
    for field in ("optionValues", *crd_jobs.FIXED):
        yield from _changed(old, new, "spec", (field,))
    yield from _template_changes(old.template, new.template)


def _template_changes(
    old: job.JobTemplate | None, new: job.JobTemplate | None
) -> Iterator[Problem]:
    """Yield the changes of a template, except for the number of parallel indexes."""
    if old is None or new is None:
        if old is not new:
            yield _TEMPLATE, crd_jobs.IMMUTABLE
        return
    fields = {field.encode_name for field in msgspec.structs.fields(job.JobTemplate)}
    yield from _changed(old, new, _TEMPLATE, sorted(fields - {"parallelism"}))
    field = f"{_TEMPLATE}.parallelism"
    before, after = old.parallelism, new.parallelism
    if before is None or after is None:
        if before is not after:
            yield field, crd_jobs.TEMPLATE_FIXED
        return
    fields = {field.encode_name for field in msgspec.structs.fields(job.Parallelism)}
    yield from _changed(before, after, field, sorted(fields - {crd_jobs.CHANGEABLE}))


def _changed(
    old: msgspec.Struct, new: msgspec.Struct, at: str, fields: Iterable[str]
) -> Iterator[Problem]:
    attributes = {field.encode_name: field.name for field in msgspec.structs.fields(old)}
    within = _TEMPLATE in at
    for field in fields:
        if getattr(old, attributes[field]) != getattr(new, attributes[field]):
            yield f"{at}.{field}", crd_jobs.TEMPLATE_FIXED if within else crd_jobs.IMMUTABLE
