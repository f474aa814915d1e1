"""The Knative Service that a JobConfig owns: one for all of its Jobs, never one for each task.

It is created from `function.template` of the JobConfig's `taskTemplate`. Used by the JobConfig
controller, which maintains it, by `job_from_config`, which sets its name in Jobs, and by
`job_validation`. No I/O.
"""

from collections.abc import Iterator

import msgspec

from kilnwork.api import api_resources, job, job_config, knative_task, meta, names

Problem = tuple[str, str]

SERVICES = api_resources.Resource(
    group="serving.knative.dev",
    version="v1",
    kind="Service",
    plural="services",
    singular="service",
)

_FIELD = "spec.template.spec.taskTemplate.function"


def with_service_name(template: job.JobTemplate, name: str) -> job.JobTemplate:
    """Return the template with the name of the Service in place of `function.template`."""
    function = _function(template)
    if function is None or function.template is None or template.effective_task is None:
        return template
    function_with_name = msgspec.structs.replace(function, service=name, template=None)
    task = msgspec.structs.replace(template.effective_task, function=function_with_name)
    return msgspec.structs.replace(template, task_template=task, task=None)


def problems(config: job_config.JobConfig) -> Iterator[Problem]:
    """Yield the problems of the Service that a JobConfig should own."""
    found = _function(config.spec.template.spec)
    if found is None or found.template is None:
        return
    if found.service:
        yield f"{_FIELD}.service", "may not be given together with template"
    if (problem := names.label_1035_problem(config.metadata.name)) is not None:
        yield "metadata.name", f"is the name of the Service too: it {problem}"
    for name in sorted(found.template.keys() - {"metadata", "spec"}):
        yield f"{_FIELD}.template.{name}", "is unknown: a template has metadata and spec"
    for name in ("metadata", "spec"):
        if not isinstance(found.template.get(name, {}), dict):
            yield f"{_FIELD}.template.{name}", "must be an object"
    if not found.template.get("spec"):
        yield f"{_FIELD}.template.spec", "is needed: it says what the Service runs"


def service(config: job_config.JobConfig) -> meta.JsonObject | None:
    """Return the Service that a valid JobConfig owns, or None if it owns none."""
    found = _function(config.spec.template.spec)
    if found is None or found.template is None:
        return None
    metadata = config.metadata
    given = found.template.get("metadata") or {}
    owner = {
        "apiVersion": config.api_version,
        "kind": config.kind,
        "name": metadata.name,
        "uid": metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    made = {
        "name": metadata.name,
        "namespace": metadata.namespace,
        "labels": given.get("labels") or {},
        "annotations": given.get("annotations") or {},
        "ownerReferences": [owner],
    }
    return {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": made,
        "spec": found.template["spec"],
    }


def _function(template: job.JobTemplate) -> knative_task.FunctionTemplate | None:
    return None if template.effective_task is None else template.effective_task.function
