"""Parsing and validation of the manifests of `spec.customResource` and `spec.workflow`.

Used by admission and by the executors, which must agree. A manifest is parsed before variables are
replaced, so that a value can never become structure. Pure: it looks at one task and at nothing
else.
"""

from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from kilnwork.api import (
    input_assembly,
    json_limits,
    meta,
    names,
    result_rule_compiler,
    substitution,
    task,
)
from kilnwork.kit import errors

Problem = tuple[str, str]
"""Dotted path of the field, and a sentence without subject, as in `task_validation`."""

WORKFLOW_API = "argoproj.io/v1alpha1"
WORKFLOW_GROUP = "argoproj.io"
WORKFLOW = "Workflow"

CUSTOM_RESOURCE_FIELD = "spec.customResource"
WORKFLOW_FIELD = "spec.workflow"

_TEXT_FIELDS = "annotations args command env image labels metadata name nodeSelector"

TEXT_FIELDS = frozenset(_TEXT_FIELDS.split())
"""Fields below which every value is text after variables are replaced, for all kinds. There are
few: another kind may well have a number as `value` or `path`."""

_SAMPLE_ID = "00000000-0000-7000-8000-000000000000"

_METADATA = frozenset({"name", "generateName", "namespace", "labels", "annotations", "finalizers"})
_SHAPES = (
    ("labels", dict, "an object"),
    ("annotations", dict, "an object"),
    ("finalizers", list, "a list"),
)
_REMEDIES = {
    "ownerReferences": "the Task owns the object",
    "creationTimestamp": "the API server writes it",
}


class InvalidManifest(errors.KilnError):
    """A manifest cannot be parsed; `field` is the path of the field."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}")
        self.field = field
        self.problem = problem


def manifest_of(spec: task.TaskTemplate) -> tuple[meta.JsonObject, str]:
    """Return the manifest of a task with `customResource` or `workflow`, with its variables
    unreplaced, and the path of its field.

    Raises InvalidManifest, or LimitExceeded if it is too large.
    """
    if spec.custom_resource is not None:
        field = f"{CUSTOM_RESOURCE_FIELD}.manifest"
        return parse(spec.custom_resource.manifest, field), field
    if spec.workflow is None:
        raise ValueError("neither spec.customResource nor spec.workflow is there")
    given = spec.workflow
    if given.manifest is not None:
        field = f"{WORKFLOW_FIELD}.manifest"
        body = parse(given.manifest, field)
    else:
        field = WORKFLOW_FIELD
        body = {"metadata": given.metadata, "spec": given.spec}
        json_limits.measure(body)
    typed = {"apiVersion": given.api_version or WORKFLOW_API, "kind": given.kind or WORKFLOW}
    return {**typed, **body}, field


def is_api_version(text: str) -> bool:
    """Return whether a text is `GROUP/VERSION`, or only a version; it becomes part of a URL."""
    group, slash, version = text.rpartition("/")
    return names.is_dns_label(version) and (not slash or names.is_dns_subdomain(group))


def account_of(spec: task.TaskTemplate) -> str:
    """Return the ServiceAccount that creates the object, or "" for the manager itself."""
    given = spec.custom_resource or spec.workflow
    return "" if given is None else given.service_account_name


def rules_of(spec: task.TaskTemplate) -> result_rule_compiler.ResultRules:
    """Return the rules of a task with `customResource`. Raises InvalidManifest."""
    given = spec.custom_resource
    if given is None:
        raise ValueError("spec.customResource is not there")
    conditions = {
        name: value
        for name, value in (
            ("successCondition", given.result.success_condition),
            ("failureCondition", given.result.failure_condition),
            ("runningCondition", given.result.running_condition),
        )
        if value is not None
    }
    try:
        return msgspec.convert(conditions, result_rule_compiler.ResultRules)
    except msgspec.ValidationError as error:
        problem = f"has a condition that is no rule: {error}"
        raise InvalidManifest(f"{CUSTOM_RESOURCE_FIELD}.result", problem) from error


def input_names(spec: task.TaskTemplate) -> frozenset[str]:
    """Return the names of the inputs that the manifest uses as variables. Raises
    InvalidManifest, or LimitExceeded."""
    return substitution.inputs_in(manifest_of(spec)[0])


def input_variables(spec: task.TaskTemplate, given_inputs: Collection[str]) -> list[str]:
    """Return the names of the variables for inputs: those of the spec, and those given in
    addition."""
    named = [given.name for given in spec.inputs]
    if spec.input_object is not None:
        named.append(input_assembly.FIRST_INPUT)
    return substitution.input_names([*named, *given_inputs])


def sample_object(
    spec: task.TaskTemplate, name: str, namespace: str
) -> tuple[meta.JsonObject, str]:
    """Return the object that attempt 1 of a task creates, except for its name, and the field of
    its manifest.

    Values of inputs are replaced by their names. Raises InvalidManifest, InvalidTemplate,
    LimitExceeded.
    """
    manifest, field = manifest_of(spec)
    facts = substitution.TaskFacts(
        name=name,
        namespace=namespace,
        id=_SAMPLE_ID,
        run=1,
        attempt=1,
        cluster_name=spec.cluster_name,
    )
    named = [one.name for one in spec.inputs]
    named += [input_assembly.FIRST_INPUT] * (spec.input_object is not None)
    values = {
        **substitution.task_variables(facts),
        **dict(zip(substitution.input_names(named), named, strict=True)),
    }
    rendered = substitution.substitute(manifest, values, field=field, text_fields=TEXT_FIELDS)
    given = rendered.get("metadata", {})
    kept = {key: given[key] for key in ("labels", "annotations", "finalizers") if key in given}
    return {**rendered, "metadata": {**kept, "generateName": "sample-"}}, field


def problems(
    spec: task.TaskTemplate,
    given_inputs: Collection[str] | None = (),
    *,
    more: Collection[str] = (),
) -> Iterator[Problem]:
    """Yield the problems of `customResource` or `workflow` of a task that has one of them.

    `given_inputs`: names of inputs that are not in the spec; None: any input that the manifest
    uses. `more`: allowed variables in addition to those of every task.
    """
    for field, given in (("env", spec.env), ("image", spec.image)):
        if given:
            yield f"spec.{field}", "is for a command: an object has what its manifest says"
    account = account_of(spec)
    if account and (problem := names.subdomain_problem(account)):
        yield f"spec.{spec.executor}.serviceAccountName", problem
    try:
        body, field = manifest_of(spec)
        yield from _manifest_problems(spec, body, field)
        if given_inputs is None:
            given_inputs = input_names(spec)
        known = {*substitution.TASK_VARIABLES, *input_variables(spec, given_inputs), *more}
        yield from substitution.find_problems(body, known, field)
    except InvalidManifest as error:
        yield error.field, error.problem
    except json_limits.LimitExceeded as error:
        yield CUSTOM_RESOURCE_FIELD if spec.workflow is None else WORKFLOW_FIELD, str(error)
    if spec.custom_resource is not None:
        yield from _result_problems(spec)
    if spec.workflow is not None:
        yield from _workflow_problems(spec)


def parse(manifest: Any, field: str) -> meta.JsonObject:
    """Return the manifest at `field`, parsed if it is a string. Raises InvalidManifest, or
    LimitExceeded."""
    body = _parse_yaml(manifest, field) if isinstance(manifest, str) else manifest
    json_limits.measure(body)
    if not isinstance(body, dict):
        seen = json_limits.show(body)
        raise InvalidManifest(field, f"must be an object, or one in YAML; it is {seen}")
    return body


def _parse_yaml(text: str, field: str) -> Any:
    if len(text) > json_limits.MAX_SIZE:
        raise InvalidManifest(field, f"has more than {json_limits.MAX_SIZE} characters")
    from kilnwork.api import yaml_loader  # noqa: PLC0415 - few tasks have a manifest

    try:
        found = yaml_loader.load_all(text)
    except yaml_loader.MalformedYaml as error:
        raise InvalidManifest(field, f"is no YAML: {error}") from error
    if len(found) != 1:
        raise InvalidManifest(field, f"must hold one object; it holds {len(found)}")
    json_limits.measure(
        found[0]
    )  # measured before any traversal: YAML aliases may expand a small text to a huge document
    if (odd := json_limits.find_non_json(found[0])) is not None:
        raise InvalidManifest(field, f"has {odd}, which cannot be written as JSON")
    return found[0]


def _manifest_problems(
    spec: task.TaskTemplate, body: meta.JsonObject, field: str
) -> Iterator[Problem]:
    for name in ("apiVersion", "kind"):
        value = body.get(name)
        if not isinstance(value, str) or not value:
            yield f"{field}.{name}", "is missing"
        elif "${" in value:
            yield f"{field}.{name}", "may have no variables: which kinds are allowed must be known"
        elif name == "apiVersion" and not is_api_version(value):
            yield f"{field}.{name}", f"must be GROUP/VERSION, not {json_limits.show(value)}"
    metadata = body.get("metadata", {})
    if not isinstance(metadata, dict):
        yield f"{field}.metadata", "must be an object"
        return
    for name, type_, expected in _SHAPES:
        if not isinstance(metadata.get(name, type_()), type_):
            yield f"{field}.metadata.{name}", f"must be {expected}"
    for name in metadata.keys() - _METADATA:
        remedy = _REMEDIES.get(name, f"only {', '.join(sorted(_METADATA))} may")
        yield f"{field}.metadata.{name}", f"may not be given: {remedy}"


def _result_problems(spec: task.TaskTemplate) -> Iterator[Problem]:
    given = spec.custom_resource
    if given is None:
        return
    field = f"{CUSTOM_RESOURCE_FIELD}.result"
    if given.result.success_condition is None:
        example = '{jsonPath: .status.phase == "Succeeded"}'
        yield f"{field}.successCondition", f"is needed: without it no end is seen; say, {example}"
    try:
        yield from result_rule_compiler.problems(rules_of(spec), field)
        if given.result.json_path:
            result_rule_compiler.compile_path(given.result.json_path, f"{field}.jsonPath")
    except result_rule_compiler.InvalidRules as error:
        yield from error.problems
    except InvalidManifest as error:
        yield error.field, error.problem


def _workflow_problems(spec: task.TaskTemplate) -> Iterator[Problem]:
    given = spec.workflow
    if given is None:
        return
    if (given.spec is None) == (given.manifest is None):
        yield WORKFLOW_FIELD, "must have one of spec and manifest"
        return
    if given.manifest is not None and (given.metadata or given.api_version or given.kind):
        yield f"{WORKFLOW_FIELD}.manifest", "is a whole Workflow: leave out what is beside it"
    try:
        body, field = manifest_of(spec)
    except (InvalidManifest, json_limits.LimitExceeded):
        return  # reported already
    group = str(body.get("apiVersion", "")).partition("/")[0]
    if group != WORKFLOW_GROUP or body.get("kind") != WORKFLOW:
        seen = f"{body.get('apiVersion')} {body.get('kind')}"
        yield field, f"must be a {WORKFLOW} of {WORKFLOW_GROUP}, not {json_limits.show(seen)}"
    if not isinstance(body.get("spec"), dict):
        yield f"{field}.spec", "must be an object: the WorkflowSpec"
