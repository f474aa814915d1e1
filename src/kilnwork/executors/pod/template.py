"""Builds the Pod of an attempt, as JSON, and finds the attempt that a Pod belongs to.

No I/O. Used by `executor`; other executors of objects and the status of Tasks use its names and
metadata. Only some errors of a template are refused here; the API server reports the others.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from kilnwork.api import attempts, kinds, meta, names, substitution
from kilnwork.api import pod as api_pod
from kilnwork.executors import port
from kilnwork.executors.pod import call_container, sidecar_container
from kilnwork.kit import ids

EXECUTOR = "pod"
EXECUTOR_LABEL = "kilnwork.dev/executor"
TASK_LABEL = "kilnwork.dev/task-id"
RUN_LABEL = "kilnwork.dev/run"
ATTEMPT_LABEL = "kilnwork.dev/attempt"
TASK_ANNOTATION = "kilnwork.dev/task"
"""Annotation with the name of the task, which may be too long for a label."""

FINALIZER = "kilnwork.dev/attempt"
"""Finalizer that keeps a deleted Pod until its outcome is stored."""

MANAGED = {"app.kubernetes.io/managed-by": "kilnwork", "app.kubernetes.io/name": "kilnwork"}


_IDENTITY = re.compile(r"-([0-9a-f]{32})-([1-9][0-9]{0,9})-([1-9][0-9]{0,9})\Z")
"""The end of the name of a Pod: id of the task, run and attempt."""


@functools.lru_cache(maxsize=4096)  # used at every step of an attempt
def pod_name(name: str, ref: attempts.AttemptRef) -> str:
    """Return the name of an attempt's Pod, which consists of the task's name, shortened, the task
    id, run and attempt.

    The whole id is part of it, so that no two attempts share a name; at most 63 characters, so that
    it is a host name.
    """
    suffix = identity(ref)
    prefix = names.dns_label(name)[: names.LABEL_LENGTH - len(suffix)]
    return (prefix.rstrip("-") or "t") + suffix


def identity(ref: attempts.AttemptRef) -> str:
    """Return the suffix of the names of an attempt's objects, which identifies the attempt."""
    return f"-{ref.task.hex()}-{ref.run}-{ref.attempt}"


def pod(
    attempt: port.Attempt, beside: sidecar_container.SidecarOptions | None = None
) -> meta.JsonObject:
    """Return the Pod for an attempt of a task with `spec.pod`, with its variables substituted.

    `beside`: options of its sidecar, None for none; a call takes the manager's address from them.
    Raises `substitution.InvalidTemplate` or `json_limits.LimitExceeded`.
    """
    template = attempt.spec.pod
    if template is None:
        raise ValueError(f"task {attempt.name} has no pod template")
    rendered = substitution.substitute(
        {"metadata": template.metadata, "spec": template.spec},
        substitution.task_variables(facts(attempt)),
        field="spec.pod",
        text_fields=substitution.TEXT_FIELDS,
    )
    metadata, spec = rendered["metadata"], rendered["spec"]
    spec.setdefault("restartPolicy", "Never")
    if attempt.spec.call is not None:
        spec.setdefault("containers", [{}])
    variables = dict(_environment(attempt))
    for group in ("initContainers", "containers"):
        for container in spec.get(group) or ():
            container["env"] = _with(variables, container.get("env") or ())
    if attempt.spec.call is not None:
        if beside is None:
            raise ValueError(
                f"task {attempt.name} has a call, and nothing says where the manager is"
            )
        call_container.add(spec, attempt, beside)
    elif beside is not None and sidecar_container.is_wanted(attempt):
        sidecar_container.add(spec, attempt, beside)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata_of(
            attempt, metadata, name=pod_name(attempt.name, attempt.ref), executor=EXECUTOR
        ),
        "spec": spec,
    }


def ref_of(seen: api_pod.Pod) -> attempts.AttemptRef | None:
    """Return the attempt that a Pod belongs to; None if it is not the Pod of an attempt."""
    metadata = seen.metadata
    if metadata.labels.get(EXECUTOR_LABEL) != EXECUTOR and FINALIZER not in metadata.finalizers:
        return None
    return ref_in(metadata.name)


def ref_in(name: str) -> attempts.AttemptRef | None:
    """Return the attempt that an object name refers to; None if it is not the name of an attempt's
    object.

    The name is used because any client that may patch objects can change labels.
    """
    found = _IDENTITY.search(name)
    if found is None:
        return None
    return attempts.AttemptRef(ids.task_id(found[1]), int(found[2]), int(found[3]))


def task_name_in(seen: api_pod.Pod) -> str:
    """Return the part of the task's name that the name of its Pod contains, which is enough for
    `pod_name`.
    """
    return prefix_of(seen.metadata.name)


def prefix_of(name: str) -> str:
    """Return the prefix of the names of an attempt's objects."""
    return _IDENTITY.sub("", name)


def metadata_of(
    attempt: port.Attempt, given: Mapping[str, Any], *, name: str, executor: str
) -> dict[str, Any]:
    """Return the metadata of an attempt's object: the labels and annotations `given`, and those of
    kilnwork.
    """
    ref = attempt.ref
    labels = {
        **(given.get("labels") or {}),
        **MANAGED,
        EXECUTOR_LABEL: executor,
        TASK_LABEL: ids.task_text(ref.task),
        RUN_LABEL: str(ref.run),
        ATTEMPT_LABEL: str(ref.attempt),
    }
    made: dict[str, Any] = {
        "name": name,
        "namespace": attempt.namespace,
        "labels": labels,
        "annotations": {**(given.get("annotations") or {}), TASK_ANNOTATION: attempt.name},
        "finalizers": [FINALIZER],
    }
    if attempt.owner_uid:
        owner = {
            "apiVersion": kinds.TASKS.api_version,
            "kind": kinds.TASKS.kind,
            "name": attempt.name,
            "uid": attempt.owner_uid,
            "controller": True,
        }
        made["ownerReferences"] = [owner]
    return made


def facts(attempt: port.Attempt) -> substitution.TaskFacts:
    """Return the facts from which the variables of an attempt are substituted."""
    ref = attempt.ref
    return substitution.TaskFacts(
        name=attempt.name,
        namespace=attempt.namespace,
        id=ids.task_text(ref.task),
        run=ref.run,
        attempt=ref.attempt,
        cluster_name=attempt.spec.cluster_name,
    )


def _environment(attempt: port.Attempt) -> Iterator[tuple[str, str]]:
    ref = attempt.ref
    yield "TASK_NAME", attempt.name
    yield "TASK_NAMESPACE", attempt.namespace
    yield "KILN_TASK_ID", ids.task_text(ref.task)
    yield "KILN_RUN", str(ref.run)
    yield "KILN_ATTEMPT", str(ref.attempt)


def _with(
    variables: Mapping[str, str], given: "list[dict[str, Any]] | tuple[()]"
) -> list[dict[str, Any]]:
    """Return the environment variables of a container, those of kilnwork first, so that its own may
    refer to them.

    A variable that the container sets itself takes precedence.
    """
    own = {entry.get("name") for entry in given}
    ours = [{"name": name, "value": value} for name, value in variables.items() if name not in own]
    return [*ours, *given]
