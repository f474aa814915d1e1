"""Templates of the tasks of a Job: rendered for each index, in one pass over their texts.

Used by the engine, and by validation for what is wrong with a template. What has a second pass in
its executor (`pod`, manifests, requests, payloads) keeps `task.attempt` and what else is only known
at an attempt; there a value that looks like a variable is escaped, so that no value is ever read
for variables (docs/decisions/0039). Everything else is final: commands, arguments, calls. Pure.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from kilnwork.api import (
    documents,
    index_sets,
    job,
    job_config,
    object_manifests,
    options,
    prepared_texts,
    substitution,
    task,
    template_fields,
)
from kilnwork.kit import clock

Problem = substitution.Problem

FIELD = "spec.template.taskTemplate"
"""Where a Job has the template of its tasks."""

RESULTS_INPUT = "results"
"""Input of a finalizer: the results of the indexes, in their order."""

TASK_NAME = "task.name"
CLUSTER_NAME = "task.cluster_name"
PHASE = "job.phase"

JOB_VARIABLES = {
    "job.uid": "`metadata.uid` of the Job.",
    "job.name": "Name of the Job.",
    "job.namespace": "Namespace of the Job.",
    "job.type": "`Adhoc`, or `Scheduled` if a schedule made the Job.",
    "job.max_attempts": "How often an index is tried.",
    "job.run": "Number of the run of the Job, from 1.",
    "job.scheduled_time": "Tick of the schedule that made the Job (RFC 3339, UTC), else empty.",
    "task.name": "Name of the task: that of the Job with the number of the index, `nightly-7`.",
    "task.namespace": "Namespace of the Job.",
    "task.cluster_name": "Name of the TaskCluster, `clusterName` of the template.",
}
"""The variables of all templates of a Job, with what they are."""

CONFIG_VARIABLES = {
    "jobconfig.uid": "`metadata.uid` of the JobConfig.",
    "jobconfig.name": "Name of the JobConfig.",
    "jobconfig.namespace": "Namespace of the JobConfig.",
}
"""Those of a Job that has a JobConfig."""

HOOK_VARIABLES = {PHASE: "Phase of the Job that the hook follows."}
"""Those of hooks."""


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the variables of a Job are made of."""

    uid: str
    name: str
    namespace: str
    type: job.JobType = job.JobType.ADHOC
    max_attempts: int = 1
    run: int = 1
    scheduled: int | None = None
    """Tick in seconds since the epoch; None for a Job that no schedule made."""
    config_uid: str = ""
    config_name: str = ""
    """JobConfig; both empty for a Job without one."""


def shared_variables(
    facts: JobFacts, option_values: Mapping[str, Any], substitutions: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the variables that all tasks of a Job have in common. `option_values`: as
    `options.evaluate` returns them. `substitutions` go before all others."""
    values: dict[str, Any] = {
        "job.uid": facts.uid,
        "job.name": facts.name,
        "job.namespace": facts.namespace,
        "job.type": str(facts.type),
        "job.max_attempts": facts.max_attempts,
        "job.run": facts.run,
        "job.scheduled_time": "" if facts.scheduled is None else clock.rfc3339(facts.scheduled),
        "task.namespace": facts.namespace,
    }
    if facts.config_uid:
        values["jobconfig.uid"] = facts.config_uid
        values["jobconfig.name"] = facts.config_name
        values["jobconfig.namespace"] = facts.namespace
    return {**values, **option_values, **substitutions}


def known_variables(
    given: job_config.Options | None,
    parallelism: job.Parallelism | None,
    *,
    hook: bool = False,
    finalizer: bool = False,
    config: bool = True,
    substitutions: Collection[str] = (),
) -> frozenset[str]:
    """Return the names that a template of a Job may refer to, those of an attempt aside.

    `hook` and `finalizer` say what the template is of: those have no index. `config`: whether the
    Job has a JobConfig. `substitutions`: names that the Job has values for itself.
    """
    known = {*JOB_VARIABLES, *substitutions}
    if config:
        known.update(CONFIG_VARIABLES)
    known.update(options.variable_name(option) for option in (given.options if given else ()))
    if hook:
        known.update(HOOK_VARIABLES)
    if not (hook or finalizer):
        known.update(index_sets.variable_names(parallelism))
    return frozenset(known)


def index_variables(indexes: index_sets.IndexSet, job_name: str, number: int) -> dict[str, Any]:
    """Return the variables of one index, for `Template.render`."""
    return {TASK_NAME: index_sets.task_name(job_name, number), **indexes.variables(number)}


def problems(
    template: task.TaskTemplate,
    known: Collection[str],
    field: str = FIELD,
    *,
    given_inputs: Collection[str] = (),
) -> list[Problem]:
    """What is wrong with the variables of a template at `field` where the `known` names have
    values. `given_inputs`: inputs that it gets besides its own."""
    found: list[Problem] = []
    for part in template_fields.parts(template, given_inputs):
        at = f"{field}.{part.field}"
        try:
            found.extend(substitution.find_problems(part.read(at), {*known, *part.kept}, at))
        except documents.LimitExceeded as error:
            found.append((at, str(error)))
        except object_manifests.InvalidManifest as error:
            found.append((error.field, error.problem))
    return found


_Changing = tuple[str, prepared_texts.Prepared, Callable[[Any], Any]]
"""Name of an attribute, its texts, and what makes a value of the attribute of them."""


class Template:
    """A template that is rendered many times: what all its tasks share is put in beforehand."""

    def __init__(self, template: task.TaskTemplate, changing: "list[_Changing]") -> None:
        self._template = template
        self._changing = changing

    @classmethod
    def of(
        cls,
        template: task.TaskTemplate,
        shared: Mapping[str, Any],
        *,
        later: Collection[str] = (),
        field: str = FIELD,
        given_inputs: Collection[str] = (),
    ) -> "Template":
        """Prepare a template. `shared`: variables of all tasks, which go before those of the same
        name that `render` gets. `later`: the names that `render` gets.

        Raises `substitution.InvalidTemplate` with all unknown names, and LimitExceeded.
        """
        values = {CLUSTER_NAME: template.cluster_name, **shared}
        known = {*values, *later}
        found = problems(template, known, field, given_inputs=given_inputs)
        if found:
            raise substitution.InvalidTemplate(found)
        changing: list[_Changing] = []
        fixed: dict[str, Any] = {}
        for part in template_fields.parts(template, given_inputs):
            preparation = prepared_texts.Preparation(
                values, later, text_fields=part.text_fields, again=part.second_pass is not None
            )
            prepared = preparation.prepare(part.read(field), texts=part.texts)
            if isinstance(prepared, prepared_texts.Prepared):
                changing.append((part.attribute, prepared, part.build))
            else:
                fixed[part.attribute] = part.build(prepared)
        return cls(msgspec.structs.replace(template, **fixed) if fixed else template, changing)

    def render(self, variables: Mapping[str, Any]) -> task.TaskTemplate:
        """Return the template of one task: the one that was given, where it has no variables that
        change. `variables`: of all the names in `later`. Raises LimitExceeded."""
        if not self._changing:
            return self._template
        rendering = prepared_texts.Rendering(variables)
        made = {name: build(one.render(rendering)) for name, one, build in self._changing}
        return msgspec.structs.replace(self._template, **made)
