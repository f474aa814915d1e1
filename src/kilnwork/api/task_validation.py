"""Checks of Tasks and TaskClusters beyond their schemas; problems are (field, text) pairs.

Used by the API server's admission, by the dispatcher for spawned tasks, by the SDK for templates,
and by the checks of the other kinds. On a real Kubernetes the CEL rules of the CRDs make some of
these checks, and the controllers report the other problems in the status. Pure: a check reads the
object itself and no other.
"""

import re
from collections.abc import Collection, Iterable, Iterator

from kilnwork.api import (
    crd_parts,
    env_validation,
    http_validation,
    input_assembly,
    json_limits,
    names,
    object_task_manifests,
    pod_template_validation,
    rollouts,
    substitution,
    task,
    task_cluster,
)
from kilnwork.kit import clock

Problem = tuple[str, str]
"""Dotted path of the field, and a sentence without a subject, such as `must not contain NUL`."""

MAX_SLOTS_OF_CONTAINERS = 100
"""Maximum number of slots of a worker whose tasks are containers of its Pod. Tasks that were sent
earlier still arrive when the Pod is full, and Kubernetes allows a few hundred containers (etcd's
1.5 MiB for an object)."""

_NUL = "must not contain a NUL character"
_IS_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def validate_task(declared: task.Task) -> list[Problem]:
    """Return the problems of a Task that conforms to its schema."""
    return spec_problems(declared.spec)


def spec_problems(
    spec: task.TaskSpec, *, given_inputs: Collection[str] | None = ()
) -> list[Problem]:
    """Return the problems of the spec of a declared or spawned task that conforms to its
    schema.

    `given_inputs`: names of inputs that are not in the spec, as for spawned tasks; None: they are
    not known yet.
    """
    return list(_task_problems(spec, given_inputs))


def template_problems(
    template: task.TaskTemplate,
    *,
    given_inputs: Collection[str] | None = (),
    more: Collection[str] = (),
) -> Iterator[Problem]:
    """Yield the problems of the work that a task describes, as fields of `spec`.

    `more`: allowed variables in addition to those of every task.
    """
    yield from name_problems(
        (
            ("spec.clusterName", template.cluster_name),
            ("spec.inputObject", template.input_object),
        )
    )
    yield from _text_problems(template)
    if template.pod is not None:
        yield from _pod_problems(template, template.pod, more)
    yield from _executor_problems(template, given_inputs, more)
    yield from _input_problems(template)
    if template.call is not None:
        yield from _call_problems(template, template.call)


def validate_task_update(old: task.Task, new: task.Task) -> list[Problem]:
    """Return a problem for each forbidden change of a Task."""
    if new.spec.run < old.spec.run:
        return [("spec.run", f"{crd_parts.RUN_RULE}, it was {old.spec.run}")]
    return []


def validate_task_cluster(cluster: task_cluster.TaskCluster) -> list[Problem]:
    """Return the problems of a TaskCluster that conforms to its schema."""
    spec = cluster.spec
    named = (
        ("spec.deploymentName", spec.deployment_name),
        ("spec.serviceAccountName", spec.service_account_name),
    )
    return [*name_problems(named), *_slot_problems(spec), *rollouts.problems(spec)]


def _slot_problems(spec: task_cluster.TaskClusterSpec) -> Iterator[Problem]:
    in_containers = spec.runtime is task_cluster.Runtime.EPHEMERAL_CONTAINERS
    if in_containers and spec.slots_per_worker > MAX_SLOTS_OF_CONTAINERS:
        why = f"must be at most {MAX_SLOTS_OF_CONTAINERS} with runtime EphemeralContainers"
        yield "spec.slotsPerWorker", f"{why}, not {spec.slots_per_worker}: use more replicas"


def _task_problems(spec: task.TaskSpec, given_inputs: Collection[str] | None) -> Iterator[Problem]:
    yield from template_problems(spec, given_inputs=given_inputs)
    yield from name_problems((("spec.outputObject", spec.output_object),))
    yield from time_problems((("spec.killTimestamp", spec.kill_timestamp),))


def name_problems(named: Iterable[tuple[str, str | None]]) -> Iterator[Problem]:
    """Yield the problems of the names of objects, by field; None means that there is no name."""
    for field, name in named:
        problem = names.subdomain_problem(name) if name is not None else None
        if problem is not None:
            yield field, problem


def time_problems(given: Iterable[tuple[str, str | None]]) -> Iterator[Problem]:
    """Yield the fields whose text is not a time; None means that there is no text."""
    for field, text in given:
        if text is not None and not _is_time(text):
            yield field, "must be a time as RFC 3339 has it, such as 2026-01-02T03:04:05Z"


def _text_problems(spec: task.TaskTemplate) -> Iterator[Problem]:
    """Yield strings that contain NUL, with which no program can be started (execve(2))."""
    for field, texts in (("command", spec.command), ("args", spec.args)):
        for position, text in enumerate(texts):
            if "\0" in text:
                yield f"spec.{field}[{position}]", _NUL
    yield from env_validation.problems(spec.env)


def _input_problems(spec: task.TaskTemplate) -> Iterator[Problem]:
    seen = {input_assembly.FIRST_INPUT} if spec.input_object is not None else set()
    for position, given in enumerate(spec.inputs):
        field = f"spec.inputs[{position}]"
        if (given.object is None) == (given.task is None):
            yield field, crd_parts.INPUT_RULE
        if given.name in seen:
            yield f"{field}.name", "is the name of another input"
        seen.add(given.name)
        yield from name_problems(((f"{field}.object", given.object), (f"{field}.task", given.task)))
        if given.path is not None and (problem := path_problem(given.path)):
            yield f"{field}.path", problem


def _pod_problems(
    spec: task.TaskTemplate, template: task.PodTemplate, more: Collection[str]
) -> Iterator[Problem]:
    if spec.command or spec.args:
        yield "spec.pod", crd_parts.POD_RULE
    for field, given in (("env", spec.env), ("image", spec.image)):
        if given:
            yield f"spec.{field}", "is for a command: the containers of its pod have their own"
    for field, why in pod_template_validation.problems(
        template, runs_call=spec.call is not None, more=more
    ):
        yield f"spec.{field}", why


def _external_problems(
    spec: task.TaskTemplate, given_inputs: Collection[str] | None, *, more: Collection[str]
) -> Iterator[Problem]:
    if spec.external is None:
        return
    for name, given in (("env", spec.env), ("image", spec.image)):
        if given:
            yield f"spec.{name}", "is for a command: external.payload is what the program gets"
    yield from name_problems((("spec.external.executor", spec.external.executor),))
    field, payload = "spec.external.payload", spec.external.payload
    try:
        if given_inputs is None:
            given_inputs = substitution.inputs_in(payload)
        named = object_task_manifests.input_variables(spec, given_inputs)
        known = {*substitution.TASK_VARIABLES, *named, *more}
        yield from substitution.find_problems(payload, known, field)
    except json_limits.LimitExceeded as error:
        yield field, str(error)


_ALONE_PROBLEMS = {
    "workflow": object_task_manifests.problems,
    "customResource": object_task_manifests.problems,
    "http": http_validation.spec_problems,
    "external": _external_problems,
    "function": http_validation.spec_problems,
}
"""The check of each field in `crd_parts.ALONE`."""


def template_inputs(spec: task.TaskTemplate) -> frozenset[str]:
    """Return the names of the inputs that the template of a valid spec uses as variables."""
    if spec.sent is not None:
        return http_validation.input_names(spec)
    if spec.external is not None:
        return substitution.inputs_in(spec.external.payload)
    return object_task_manifests.input_names(spec)


def _executor_problems(
    spec: task.TaskTemplate, given_inputs: Collection[str] | None, more: Collection[str]
) -> Iterator[Problem]:
    """Yield the problems of a task that is described by one field other than `command`,
    `call` and `pod`."""
    given = [name for name, field in task.TEMPLATES.items() if getattr(spec, field) is not None]
    for name in crd_parts.ALONE:
        if name not in given:
            continue
        if len(given) > 1 or spec.command or spec.args or spec.call is not None:
            yield f"spec.{name}", crd_parts.alone_rule(name)
        else:
            yield from _ALONE_PROBLEMS[name](spec, given_inputs, more=more)


def _call_problems(spec: task.TaskTemplate, call: task.Call) -> Iterator[Problem]:
    """Yield the problems of a call: in a slot it shares a process with other calls, in a Pod
    it has the environment of its container."""
    if spec.command or spec.args:
        yield "spec.call", crd_parts.CALL_RULE
    yield from env_validation.call_problems(spec.env)
    if spec.image and spec.pod is None:
        yield "spec.image", "is for a command: for a Python call, name another image in its pod"
    if call.code is None and not _IS_FUNCTION.fullmatch(call.function):
        yield "spec.call.function", "must be written package.module:name"
    for name in sorted(_input_names(spec) & call.kwargs.keys()):
        yield f"spec.call.kwargs.{name}", "is the name of an input, which is passed under that name"


def _input_names(spec: task.TaskTemplate) -> set[str]:
    names = {given.name for given in spec.inputs}
    return names if spec.input_object is None else names | {input_assembly.FIRST_INPUT}


def path_problem(path: str) -> str | None:
    """Return why a text is not a JSONPath, or None."""
    import jsonpath  # noqa: PLC0415 - takes 30 ms, and few servers need it

    try:
        jsonpath.compile(path)
    except (
        jsonpath.JSONPathError,
        ArithmeticError,
        ValueError,
    ) as error:  # bad numbers in the path
        return f"is no JSONPath (RFC 9535): {str(error).splitlines()[0]}"
    return None


def _is_time(text: str) -> bool:
    try:
        clock.parse_rfc3339(text)
    except ValueError:
        return False
    return True
