"""The effect of every field of our kinds; see `field_support`.

A test walks the schemas and fails for a field without a row. The template of a TaskCluster is that
of a Pod: the node's table applies to it, and here are only the fields that the TaskCluster
replaces.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from kilnwork.api import field_support, kinds, meta, task
from kilnwork.api.field_support import Effect, Finding, Row, Side

FIELDS_IGNORED = "FieldsIgnored"
"""Type, and reason, of the condition that names fields without effect."""

_WORKER = "worker"
_TEMPLATE = "spec.template"
_ACCOUNT = "spec.serviceAccountName of the TaskCluster decides"
_REPLACED = "replaced by the worker's own"


def _same(path: str, effect: Effect, reason: str = "", **more: Any) -> Row:
    return Row(path, effect, effect, reason, **more)


_OWNED = "only a JobConfig owns a Service: name one in `service`"

TASK: Sequence[Row] = (
    *(
        _same(f"spec.{field}", Effect.HONOURED, whole=True)
        for field in (
            "args", "call", "clusterName", "command", "customResource", "env", "external",
            "function", "http", "inputObject", "inputs", "killTimestamp", "outputObject",
            "outputType", "pod",
            "priority", "retry", "run", "suspend", "timeouts", "ttlSecondsAfterFinished",
            "workflow",
        )
    ),
    _same("spec.function.template", Effect.INVALID, _OWNED, whole=True),
    Row(
        "spec.image",
        Effect.IGNORED,
        Effect.HONOURED,
        "a label on nodes of ours, where programs come from the machine (condition ImageIgnored)",
    ),
)  # fmt: skip

TASK_OBJECT: Sequence[Row] = (_same("data", Effect.HONOURED, whole=True),)

TASK_CLUSTER: Sequence[Row] = (
    *(
        _same(f"spec.{field}", Effect.HONOURED)
        for field in (
            "deploymentName", "drainSeconds", "replicas", "runtime", "serviceAccountName",
            "slotsPerWorker", "strategy.type", "strategy.rollingUpdate.maxSurge",
            "strategy.rollingUpdate.maxUnavailable",
        )
    ),
    _same(
        _TEMPLATE,
        Effect.HONOURED,
        "as the fields of a Pod, but for those below",
    ),
    _same(
        f"{_TEMPLATE}.metadata.*",
        Effect.IGNORED,
        "labels and annotations are taken, nothing else of the template's metadata",
    ),
    _same(
        f"{_TEMPLATE}.spec.restartPolicy",
        Effect.IGNORED,
        "workers restart Always",
        unless=("Always",),
    ),
    *(
        _same(f"{_TEMPLATE}.spec.{field}", Effect.IGNORED, _ACCOUNT, unless=())
        for field in ("automountServiceAccountToken", "serviceAccount", "serviceAccountName")
    ),
    *(
        _same(f"{_TEMPLATE}.spec.containers[].{field}", Effect.IGNORED, _REPLACED, whole=True)
        for field in ("args", "command")
    ),
)  # fmt: skip

TASK_CLAIM: Sequence[Row] = tuple(
    _same(f"spec.{field}", Effect.HONOURED)
    for field in ("executor", "holder", "leaseSeconds", "ttlSecondsAfterFinished")
)

DATA_POND: Sequence[Row] = tuple(
    _same(f"spec.{field}", Effect.HONOURED)
    for field in (
        "nodeSelector", "path", "capacity", "highWatermark", "lowWatermark", "scrubRate",
        "fetch.parallel", "fetch.fromPeers", "sources[].name", "sources[].uri",
        "sources[].secretName", "sources[].allowAddresses[]",
    )
)  # fmt: skip

_NO_FORCE = "nothing of a task is removed by force: an end without proof is `Unconfirmed`"

_IMAGE = "a label on nodes of ours, where programs come from the machine"


def _job_template(at: str) -> Iterator[Row]:
    """Yield the rows of a Job template at a path."""
    fields = (
        "maxAttempts", "parallelism", "retry", "retryDelaySeconds",
        "taskPendingTimeoutSeconds", "timeouts", "hooks[].on", "hooks[].phases",
    )  # fmt: skip
    yield _same(f"{at}.forbidTaskForceDeletion", Effect.IGNORED, _NO_FORCE)
    yield from (_same(f"{at}.{field}", Effect.HONOURED, whole=True) for field in fields)
    of_task = (field.encode_name for field in msgspec.structs.fields(task.TaskTemplate))
    for field in of_task:
        if field != "image":
            yield _same(f"{at}.taskTemplate.{field}", Effect.HONOURED, whole=True)
    others = ("task.template", "hooks[].taskTemplate", "finalizer.taskTemplate")
    yield from (_same(f"{at}.{other}", Effect.HONOURED) for other in others)
    for template in ("taskTemplate", *others):
        yield Row(f"{at}.{template}.image", Effect.IGNORED, Effect.HONOURED, _IMAGE)


JOB: Sequence[Row] = (
    _same("spec.template.taskTemplate.function.template", Effect.INVALID, _OWNED, whole=True),
    *(
        _same(f"spec.{field}", Effect.HONOURED, whole=True)
        for field in (
            "configName", "dependsOn", "killTimestamp", "locks", "optionValues", "priority", "run",
            "startPolicy", "substitutions", "suspend", "ttlSecondsAfterFailed",
            "ttlSecondsAfterFinished", "type",
        )
    ),
    *_job_template("spec.template"),
)  # fmt: skip

JOB_CONFIG: Sequence[Row] = (
    *(
        _same(f"spec.{field}", Effect.HONOURED, whole=True)
        for field in (
            "concurrency", "dependsOn", "failedJobsHistoryLimit", "locks", "option", "priority",
            "schedule", "successfulJobsHistoryLimit", "template.metadata", "ttlSecondsAfterFailed",
            "ttlSecondsAfterFinished",
        )
    ),
    *_job_template("spec.template.spec"),
)  # fmt: skip

SYNC_SET: Sequence[Row] = (
    *(
        _same(f"spec.{field}", Effect.HONOURED, whole=True)
        for field in (
            "backend", "data.outputs", "data.pin", "data.pond", "data.snapshots", "deadlineSeconds",
            "flow", "generation", "keep", "killTimestamp", "priority", "replay",
            "resources.controller", "resources.gang", "resources.groups", "resources.objects",
            "run", "suspend",
        )
    ),
)  # fmt: skip

TABLES = {
    kinds.TASKS.kind: field_support.table(TASK),
    kinds.TASK_OBJECTS.kind: field_support.table(TASK_OBJECT),
    kinds.TASK_CLUSTERS.kind: field_support.table(TASK_CLUSTER),
    kinds.TASK_CLAIMS.kind: field_support.table(TASK_CLAIM),
    kinds.JOBS.kind: field_support.table(JOB),
    kinds.JOB_CONFIGS.kind: field_support.table(JOB_CONFIG),
    kinds.SYNC_SETS.kind: field_support.table(SYNC_SET),
    kinds.DATA_PONDS.kind: field_support.table(DATA_POND),
}

_WITH_IGNORED = frozenset(
    kind
    for kind, rows in TABLES.items()
    if any(row.cluster in (Effect.IGNORED, Effect.REFUSED) for row in rows.values())
)
"""Kinds that have fields without effect in a Kubernetes cluster: only their objects need to be
checked."""


def findings(kind: str, obj: Any, side: Side = Side.CLUSTER) -> Iterator[Finding]:
    """Yield the fields of an object of ours that have no effect on a side; nothing for other
    kinds.

    Effects that depend on the node of a Pod are reported by that node.
    """
    spec = obj.get("spec")
    if kind not in TABLES or not isinstance(spec, dict):
        return
    template = spec.get("template")
    if kind != kinds.TASK_CLUSTERS.kind or not isinstance(template, dict):
        yield from field_support.findings(TABLES[kind], spec, side, at="spec")
        return
    yield from _in_template(template)


def worker_position(containers: Sequence[dict[str, Any]]) -> int:
    """Return the position of the worker's container in a template."""
    names = [container.get("name") for container in containers]
    return names.index(_WORKER) if _WORKER in names else 0


def ignored(kind: str, spec: msgspec.Struct, *, generation: int) -> meta.Condition | None:
    """Return the condition that names the fields of a spec without effect, or None if there are
    none."""
    if kind not in _WITH_IGNORED:
        return None
    found = list(findings(kind, {"spec": msgspec.to_builtins(spec)}))
    if not found:
        return None
    return meta.Condition(
        type=FIELDS_IGNORED,
        status="True",
        reason=FIELDS_IGNORED,
        message="; ".join(map(field_support.describe_finding, found)),
        observed_generation=generation,
    )


def _in_template(template: dict[str, Any]) -> Iterator[Finding]:
    """Yield the fields of a template that the TaskCluster replaces."""
    rows = TABLES[kinds.TASK_CLUSTERS.kind]
    metadata, spec = template.get("metadata"), template.get("spec")
    for name, value in metadata.items() if isinstance(metadata, dict) else ():
        if name not in ("labels", "annotations") and value:
            row = rows[f"{_TEMPLATE}.metadata.*"]
            yield Finding(f"{_TEMPLATE}.metadata.{name}", value, Effect.IGNORED, row.reason)
    if not isinstance(spec, dict):
        return
    at = f"{_TEMPLATE}.spec"
    pod = {name: value for name, value in spec.items() if name != "containers"}
    yield from field_support.findings(rows, pod, Side.CLUSTER, at=at)
    containers = [c for c in spec.get("containers") or () if isinstance(c, dict)]
    position = worker_position(containers)
    for container in containers[position : position + 1]:
        for found in field_support.findings(rows, container, Side.CLUSTER, at=f"{at}.containers[]"):
            path = found.path.replace("containers[]", f"containers[{position}]", 1)
            yield found._replace(path=path)
