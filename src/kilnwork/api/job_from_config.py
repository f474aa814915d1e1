"""Expansion of a Job from its JobConfig: template, metadata, defaults and evaluated options.

Used by the Job controller for Jobs with `configName`, and by everything that creates Jobs of a
JobConfig: its schedule, backfills, `kiln run-job`, the Python library. Later changes of the
JobConfig do not affect an expanded Job. No I/O.
"""

from typing import Any

import msgspec

from kilnwork.api import (
    job,
    job_config,
    job_config_options,
    job_variables,
    knative_service_rendering,
    meta,
    option_values,
    resolved_job_settings,
)
from kilnwork.kit import clock

SCHEDULE_TIME = "kilnwork.dev/schedule-time"
"""Annotation with the tick for which a schedule created the Job, in seconds since the epoch."""

BACKFILL = "kilnwork.dev/backfill"
"""Annotation with the value `true` of a Job that a user created for a past tick. The Job has the
scheduled time of that tick, but needs no decision of the schedule."""

CONFIG_UID = "kilnwork.dev/job-config-uid"
"""Label with the uid of the JobConfig."""

MAX_TICK = 253_402_300_799
"""Latest tick: the last second of the year 9999."""


class Expansion(msgspec.Struct, frozen=True, kw_only=True):
    """A Job combined with the settings of its JobConfig."""

    metadata: meta.ObjectMeta
    """Metadata of the Job, with labels, annotations and the owner."""
    spec: job.JobSpec
    """Spec of the Job, without `configName`: option values that are strings are in
    `substitutions`, other ones in `optionValues`."""
    warnings: tuple[str, ...] = ()
    """Warnings about values without effect, as sentences."""

    @property
    def patch(self) -> list[meta.JsonObject]:
        """The JSON patch (RFC 6902) that expands the Job, unless it has changed meanwhile.

        It is not a merge patch, which would remove null values from a template.
        """
        made = _json_metadata(self.metadata)
        fields = ("labels", "annotations", "ownerReferences")
        return [
            _operation("replace", "/metadata/resourceVersion", self.metadata.resource_version),
            *(_operation("add", f"/metadata/{name}", made[name]) for name in fields),
            _operation("replace", "/spec", _json(self.spec)),
        ]


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a Job to be created from a JobConfig."""

    name: str = ""
    """Name of the Job; if empty, it is generated from `generate_name`."""
    generate_name: str = ""
    """Prefix of a generated name; if empty, the name of the JobConfig and a dash."""
    option_values: Any = None
    """`spec.optionValues` of the Job."""
    substitutions: dict[str, str] = msgspec.field(default_factory=dict)
    """`spec.substitutions` of the Job."""
    start_after: str | None = None
    """Time (RFC 3339) before which the Job does not start."""
    concurrency_policy: job.ConcurrencyPolicy | None = None
    """`spec.startPolicy.concurrencyPolicy` of the Job. None: `Enqueue` if `start_after` is set,
    since it is unknown which Jobs will run then; otherwise the policy of the JobConfig."""
    priority: int = 0
    """`spec.priority` of the Job."""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """Labels, which take precedence over those of the JobConfig."""
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    """Annotations, which take precedence over those of the JobConfig."""


def expand(config: job_config.JobConfig, given: job.Job) -> Expansion:
    """Return a Job of a valid JobConfig with the settings of both; those of the Job take
    precedence.

    A priority of 0, no locks and no dependencies count as unset. Raises
    `job_config_options.InvalidOptions`.
    """
    made, metadata = config.spec.template, given.metadata
    warnings = []
    if given.spec.template is not None:
        warnings.append(
            f"spec.template was replaced by that of JobConfig {config.metadata.name}: give either "
            "configName or template"
        )
    owned = msgspec.structs.replace(
        metadata,
        labels={**made.metadata.labels, **metadata.labels, CONFIG_UID: config.metadata.uid},
        annotations={**made.metadata.annotations, **metadata.annotations},
        owner_references=_owners(config, metadata.owner_references),
    )
    return Expansion(metadata=owned, spec=_spec(config, given.spec), warnings=tuple(warnings))


def new_job(
    config: job_config.JobConfig,
    request: JobRequest = JobRequest(),  # noqa: B008 - frozen
    *,
    tick: int | None = None,
) -> meta.JsonObject:
    """Return the object of a new Job of a JobConfig, expanded.

    `tick`: the second of the schedule for which the Job is created. Its name is then derived from
    the JobConfig and the tick, whatever the request says. Raises
    `job_config_options.InvalidOptions`.
    """
    policy = request.concurrency_policy
    if policy is None and request.start_after is not None:
        policy = job.ConcurrencyPolicy.ENQUEUE
    name, annotations = request.name, request.annotations
    if tick is not None:
        name = scheduled_name(config.metadata.name, tick)
        annotations = {**annotations, SCHEDULE_TIME: str(tick)}
    metadata = meta.ObjectMeta(
        name=name,
        namespace=config.metadata.namespace,
        labels=request.labels,
        annotations=annotations,
    )
    spec = job.JobSpec(
        type=job.JobType.ADHOC if tick is None else job.JobType.SCHEDULED,
        start_policy=job.StartPolicy(concurrency_policy=policy, start_after=request.start_after),
        option_values=request.option_values,
        substitutions=request.substitutions,
        priority=request.priority,
    )
    expansion = expand(config, job.Job(metadata=metadata, spec=spec))
    made = _json_metadata(expansion.metadata)
    if not name:
        made["generateName"] = request.generate_name or f"{config.metadata.name}-"
    return {
        "apiVersion": config.api_version,
        "kind": job.Job.__name__,
        "metadata": made,
        "spec": _json(expansion.spec),
    }


def scheduled_name(config_name: str, tick: int) -> str:
    """Return the name of the Job of a tick, so that only one Job can exist for the tick."""
    return f"{config_name}-{tick}"


def backfill_job(
    config: job_config.JobConfig, request: JobRequest, *, tick: int
) -> meta.JsonObject:
    """Return the object of a new Job for a past tick of a JobConfig's schedule, expanded.

    It has the same name as the schedule's Job, so that a tick does not run twice while the Job
    exists; the name in the request is ignored. Raises `job_config_options.InvalidOptions`.
    """
    marked = {**request.annotations, SCHEDULE_TIME: str(tick), BACKFILL: "true"}
    name = scheduled_name(config.metadata.name, tick)
    return new_job(config, msgspec.structs.replace(request, name=name, annotations=marked))


def tick_of(given: job.Job) -> int | None:
    """Return the tick for which the schedule created a Job; None for any other Job, including
    backfills."""
    if given.metadata.annotations.get(BACKFILL) == "true":
        return None
    return scheduled_time_of(given)


def scheduled_time_of(given: job.Job) -> int | None:
    """Return the scheduled time of a scheduled or backfilled Job; None for any other Job."""
    text = given.metadata.annotations.get(SCHEDULE_TIME, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_TICK))):
        return None
    return int(text) if int(text) <= MAX_TICK else None


def config_of(given: job.Job) -> meta.OwnerReference | None:
    """Return the JobConfig from which a Job was expanded; None for a Job with its own template."""
    kind = job_config.JobConfig.__name__
    return next((one for one in given.metadata.owner_references if one.kind == kind), None)


def variables(given: job.Job) -> dict[str, Any]:
    """Return the variables that all tasks of a Job share, if it is expanded or has its own
    template.

    Option values that are not strings keep their types; `substitutions` take precedence over all
    others. Raises `job_config_options.InvalidOptions`.
    """
    metadata, spec, tick = given.metadata, given.spec, scheduled_time_of(given)
    found: dict[str, Any] = {
        "job.uid": metadata.uid,
        "job.name": metadata.name,
        "job.namespace": metadata.namespace,
        "job.type": str(spec.type),
        "job.max_attempts": _max_attempts(spec.template),
        "job.run": spec.run,
        "job.scheduled_time": "" if tick is None else clock.rfc3339(tick),
        "task.namespace": metadata.namespace,
    }
    if (config := config_of(given)) is not None:
        found["jobconfig.uid"] = config.uid
        found["jobconfig.name"] = config.name
        found["jobconfig.namespace"] = metadata.namespace
    values = job_config_options.parse_values(spec.option_values)
    named = {job_variables.OPTION_PREFIX + name: value for name, value in values.items()}
    return {**found, **named, **spec.substitutions}


def _max_attempts(template: job.JobTemplate | None) -> int:
    return 1 if template is None else resolved_job_settings.retry_of(template).max_attempts


def _owners(
    config: job_config.JobConfig, given: tuple[meta.OwnerReference, ...]
) -> tuple[meta.OwnerReference, ...]:
    """Return the owners, with the JobConfig as the controller unless there is another
    controller: an object can have only one."""
    others = tuple(owner for owner in given if owner.uid != config.metadata.uid)
    own = meta.OwnerReference(
        api_version=config.api_version,
        kind=config.kind,
        name=config.metadata.name,
        uid=config.metadata.uid,
        controller=not any(owner.controller for owner in others),
        block_owner_deletion=True,
    )
    return (*others, own)


def _spec(config: job_config.JobConfig, given: job.JobSpec) -> job.JobSpec:
    defaults = config.spec
    policy = given.start_policy.concurrency_policy or defaults.concurrency.policy
    finished, failed = given.ttl_seconds_after_finished, given.ttl_seconds_after_failed
    values, substitutions = _evaluate_options(defaults.option, given)
    return msgspec.structs.replace(
        given,
        config_name=None,
        template=knative_service_rendering.with_service_name(
            defaults.template.spec, config.metadata.name
        ),
        start_policy=msgspec.structs.replace(given.start_policy, concurrency_policy=policy),
        option_values=values,
        substitutions=substitutions,
        priority=given.priority or defaults.priority,
        locks=given.locks or defaults.locks,
        depends_on=given.depends_on or defaults.depends_on,
        ttl_seconds_after_finished=(
            defaults.ttl_seconds_after_finished if finished is None else finished
        ),
        ttl_seconds_after_failed=defaults.ttl_seconds_after_failed if failed is None else failed,
    )


def _evaluate_options(
    given: job_config.Options | None, spec: job.JobSpec
) -> tuple[str | None, dict[str, str]]:
    """Return `optionValues` with the defaults, as JSON, and `substitutions` with the string
    values.

    Other values keep their types in `optionValues`.
    """
    raw = job_config_options.parse_values(spec.option_values)
    evaluated = job_config_options.evaluate(given, raw, substitutions=spec.substitutions)
    values: dict[str, Any] = {}
    texts: dict[str, str] = {}
    for option in given.options if given is not None else ():
        value = evaluated[job_config_options.variable_name(option)]
        if not isinstance(value, str):
            values[option.name] = value
            continue
        texts[job_config_options.variable_name(option)] = value
        chosen = raw.get(option.name)
        if chosen is None:
            chosen = option_values.default_of(option)
        if chosen is not None:
            values[option.name] = chosen
    text = msgspec.json.encode(values).decode() if values else None
    return text, {**texts, **spec.substitutions}


def _json_metadata(metadata: meta.ObjectMeta) -> meta.JsonObject:
    """Return the metadata fields that clients write."""
    made = _json(metadata)
    written = ("name", "namespace", "labels", "annotations", "ownerReferences")
    empty: dict[str, Any] = {"labels": {}, "annotations": {}, "ownerReferences": []}
    return {**empty, **{name: made[name] for name in written if name in made}}


def _json(value: msgspec.Struct) -> meta.JsonObject:
    """Return a struct as parsed JSON: lists instead of tuples."""
    found: meta.JsonObject = msgspec.json.decode(msgspec.json.encode(value))
    return found


def _operation(name: str, path: str, value: Any) -> meta.JsonObject:
    return {"op": name, "path": path, "value": value}
