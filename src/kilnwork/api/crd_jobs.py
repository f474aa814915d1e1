"""The CustomResourceDefinitions of Job and JobConfig: their rules and columns.

Used by `crd`. The CEL rules are for the real API server and stay within its cost limits;
`job_validation` and `job_template_validation` have the same rules, and further ones, in Python, and
take the texts from here.
"""

from collections.abc import Iterator

import msgspec

from kilnwork.api import crd_parts, job, job_config, meta, schema_generation

CONFIG_NAME_RULE = "may only be cleared"
TEMPLATE_RULE = "give configName or template"
TASK_RULE = "give one of taskTemplate and task"
INDEX_RULE = "give one of withCount, withKeys, withMatrix and withResultOf"
SOURCE_RULE = "give one of task, job and jobConfig"
HOOK_RULE = "give one of phases and on, which YAML reads as true unless it is in quotes"
RETRY_RULE = "give either retry, or maxAttempts with retryDelaySeconds"
PENDING_RULE = "give either timeouts.pendingSeconds or taskPendingTimeoutSeconds"
CRON_RULE = "give one of expression and expressions"
ALLOW_RULE = "is for policies other than Allow"
IMMUTABLE = "cannot be changed: make another Job"

OPEN = "has(oldSelf.configName) && (!has(oldSelf.template) || !has(self.configName))"
"""CEL: the JobConfig's template has not been copied into the Job yet, or is being copied by this
change."""

FIXED = ("startPolicy", "substitutions", "dependsOn", "locks")
"""Fields of a Job's spec that are immutable, besides its type, its option values and its
template except for `parallelism.maxInFlight`."""

CHANGEABLE = "maxInFlight"
"""The only field of `template.parallelism`, and of the template, that may be changed."""

TEMPLATE_FIXED = f"of template only parallelism.{CHANGEABLE} can be changed: make another Job"

SOURCE_FIELDS = ("task", "job", "jobConfig")
INDEX_FIELDS = ("withCount", "withKeys", "withMatrix", "withResultOf")

_TASK = "spec.template.taskTemplate"
_CONFIG_TASK = "spec.template.spec.taskTemplate"


def _names(struct: type[msgspec.Struct]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(struct)]


def _unchanged(field: str) -> str:
    """Return the CEL expression that is true if a field is unchanged."""
    now, before = f"self.{field}", f"oldSelf.{field}"
    return f"has({now}) == has({before}) && (!has({now}) || {now} == {before})"


def _fixed(field: str) -> meta.JsonObject:
    return crd_parts.rule(f"{OPEN} || ({_unchanged(field)})", f"{field} {IMMUTABLE}")


def _fixed_template() -> Iterator[meta.JsonObject]:
    """Yield the rules that make a template immutable, except for the number of parallel indexes.

    CEL cannot compare `completionStrategy` and `optionValues`, which have no type.
    """
    template, parallelism = "template", "template.parallelism"
    yield _rule_within(_exists_as_before(template), of=())
    fields = [f"{template}.{field}" for field in _names(job.JobTemplate) if field != "parallelism"]
    yield _rule_within(*map(_unchanged, fields), _exists_as_before(parallelism), of=(template,))
    fields = [f"{parallelism}.{field}" for field in INDEX_FIELDS]
    yield _rule_within(*map(_unchanged, fields), of=(template, parallelism))


def _exists_as_before(field: str) -> str:
    """Return the CEL expression that is true if an object exists, or did not exist before."""
    return f"has(self.{field}) == has(oldSelf.{field})"


def _rule_within(*expressions: str, of: tuple[str, ...]) -> meta.JsonObject:
    """Return the rule that all expressions are true, unless one of the objects `of` is missing."""
    missing = [f"!has({side}.{field})" for field in of for side in ("self", "oldSelf")]
    holds = " && ".join(f"({one})" for one in expressions)
    return crd_parts.rule(" || ".join((OPEN, *missing, holds)), TEMPLATE_FIXED)


def _template(at: str) -> dict[str, schema_generation.Schema]:
    """Return the additions to the schema of the `job.JobTemplate` at a path."""
    one_index_set, one_source = (
        " + ".join(f"(has(self.{field}) ? 1 : 0)" for field in fields) + " == 1"
        for fields in (INDEX_FIELDS, SOURCE_FIELDS)
    )
    return {
        at: crd_parts.rules(
            crd_parts.rule("!has(self.taskTemplate) || !has(self.task)", TASK_RULE),
            crd_parts.rule(
                "!has(self.retry) || !(has(self.maxAttempts) || has(self.retryDelaySeconds))",
                RETRY_RULE,
            ),
            crd_parts.rule(
                "!has(self.taskPendingTimeoutSeconds) || !has(self.timeouts) "
                "|| !has(self.timeouts.pendingSeconds)",
                PENDING_RULE,
            ),
        ),
        f"{at}.parallelism": crd_parts.rules(crd_parts.rule(one_index_set, INDEX_RULE)),
        f"{at}.parallelism.withResultOf": crd_parts.rules(crd_parts.rule(one_source, SOURCE_RULE)),
        f"{at}.hooks.[]": crd_parts.rules(
            crd_parts.rule("has(self.phases) != has(self.on)", HOOK_RULE)
        ),
        f"{at}.taskTemplate": crd_parts.rules(*crd_parts.task_rules()),
        **crd_parts.task_inputs(f"{at}.taskTemplate"),
    }


def _descriptions_at(at: str) -> dict[str, str]:
    """Return, within the `job.JobTemplate` at a path, the objects whose fields are described at
    another object."""
    of_tasks = ("task.template", "hooks.[].taskTemplate", "finalizer.taskTemplate")
    task = f"{at}.taskTemplate"
    return {
        **{f"{at}.{path}": task for path in of_tasks},
        f"{task}.env.[].valueFrom.configMapKeyRef": f"{task}.env[].valueFrom.secretKeyRef",
        f"{task}.function.affinity": f"{task}.http.affinity",
        f"{task}.function.cancel.request": f"{task}.function.request",
        f"{task}.function.request.cookies.[]": f"{task}.http.request.cookies.[]",
        f"{task}.function.request.postData": f"{task}.http.request.postData",
        f"{task}.function.redirects": f"{task}.http.redirects",
        f"{task}.function.response": f"{task}.http.response",
        f"{task}.function.tls": f"{task}.http.tls",
    }


def _times(*paths: str) -> dict[str, schema_generation.Schema]:
    return dict.fromkeys(paths, crd_parts.TIME)


JOB = crd_parts.KindDefinition(
    description=job.Job.__doc__ or "",
    spec=job.JobSpec,
    needs_spec=True,
    status=job.JobStatus,
    columns=(
        crd_parts.column("Phase", ".status.phase"),
        crd_parts.column(
            "Succeeded", ".status.indexes.succeeded", type_="integer", about="Successful indexes."
        ),
        crd_parts.column(
            "Failed", ".status.indexes.failed", type_="integer", about="Failed indexes."
        ),
        crd_parts.column("Total", ".status.indexes.total", type_="integer", about="All indexes."),
        crd_parts.column("Started", ".status.startTime", type_="date"),
        crd_parts.column("Finished", ".status.finishTime", type_="date"),
        crd_parts.column("Reason", ".status.reason", wide=True, about="Reason for the phase."),
        crd_parts.column("Type", ".spec.type", wide=True, about="How the Job was created."),
        crd_parts.AGE,
    ),
    selectable=(".spec.configName", ".spec.type", ".status.phase", ".status.state"),
    additions={
        "": crd_parts.rules(crd_parts.name_is_short(job.MAX_NAME)),
        "spec": crd_parts.rules(
            crd_parts.run_rises(),
            crd_parts.rule("has(self.configName) || has(self.template)", TEMPLATE_RULE),
            crd_parts.rule(
                "!has(self.configName) || (has(oldSelf.configName) "
                "&& self.configName == oldSelf.configName)",
                f"configName {CONFIG_NAME_RULE}",
            ),
            crd_parts.rule(_unchanged("type"), f"type {IMMUTABLE}"),
            *(_fixed(field) for field in FIXED),
            *_fixed_template(),
        ),
        **_template("spec.template"),
        **_times(
            "spec.killTimestamp", "spec.startPolicy.startAfter", "status.startTime",
            "status.finishTime",
        ),
        "status.conditions": crd_parts.CONDITIONS,
    },
    described_at=_descriptions_at("spec.template"),
)  # fmt: skip

JOB_CONFIG = crd_parts.KindDefinition(
    description=job_config.JobConfig.__doc__ or "",
    spec=job_config.JobConfigSpec,
    needs_spec=True,
    status=job_config.JobConfigStatus,
    columns=(
        crd_parts.column("State", ".status.state"),
        crd_parts.column("Active", ".status.active", type_="integer", about="Active Jobs."),
        crd_parts.column("Queued", ".status.queued", type_="integer", about="Waiting Jobs."),
        crd_parts.column("Cron", ".spec.schedule.cron['expression','expressions']"),
        crd_parts.column("Timezone", ".spec.schedule.cron.timezone", wide=True),
        crd_parts.column(
            "Last Scheduled", ".status.lastScheduled", type_="date", about="Latest tick."
        ),
        crd_parts.column("Next Run", ".status.nextRuns[0]", about="Next tick."),
        crd_parts.AGE,
    ),
    selectable=(".status.state",),
    additions={
        "": crd_parts.rules(crd_parts.name_is_short(job_config.MAX_NAME)),
        **_template("spec.template.spec"),
        "spec.concurrency": crd_parts.rules(
            crd_parts.rule(
                "self.policy != 'Allow' || !has(self.maxConcurrency)",
                f"maxConcurrency {ALLOW_RULE}",
                fieldPath=".maxConcurrency",
            )
        ),
        "spec.schedule.cron": crd_parts.rules(
            crd_parts.rule("has(self.expression) != has(self.expressions)", CRON_RULE)
        ),
        **_times(
            "spec.schedule.constraints.notBefore", "spec.schedule.constraints.notAfter",
            "spec.schedule.lastUpdated", "status.lastScheduled", "status.lastExecuted",
            "status.nextRuns.[]",
        ),
        "status.conditions": crd_parts.CONDITIONS,
    },
    described_at=_descriptions_at("spec.template.spec"),
)  # fmt: skip
