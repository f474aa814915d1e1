"""The kinds of kilnwork as the embedded Kubernetes of `kiln up` installs them.

Contains their definitions, rules and rights. Used by `wiring` and `validation`. A real Kubernetes
gets the same definitions from `installation`.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from kilnwork.api import (
    admission,
    crd,
    field_support,
    kind_field_effects,
    kinds,
    manager_access,
    meta,
)
from kilnwork.controlplane import installed_kind_types
from kilnwork.controlplane.node import pod_field_effects

_READ = ["get", "list", "watch"]
_WRITE = ["create", "update", "patch", "delete", "deletecollection"]
_SHOWN = (
    "tasks tasks/status taskobjects taskclusters taskclusters/status taskclusters/scale "
    "taskclaims taskclaims/status jobs jobs/status jobconfigs jobconfigs/status "
    "syncsets syncsets/status dataponds dataponds/status"
)
_CHANGED = (
    "tasks taskobjects taskclusters taskclusters/scale taskclaims taskclaims/status "
    "jobs jobconfigs syncsets dataponds dataponds/leases"
)


def _rule(resources: str, verbs: list[str]) -> meta.JsonObject:
    return {"verbs": verbs, "apiGroups": [kinds.GROUP], "resources": resources.split()}


def _warn_of_task_cluster(new: meta.JsonObject, old: meta.JsonObject | None) -> Iterator[str]:
    """Yield warnings about the fields of a TaskCluster that have no effect.

    Includes the fields of its Pod template that have none on the local node.
    """
    yield from admission.field_warnings(kinds.TASK_CLUSTERS.kind, new, old)
    yield from field_support.new_sentences(_in_template, new, old)


def _in_template(cluster: meta.JsonObject) -> Iterator[field_support.Finding]:
    template = (cluster.get("spec") or {}).get("template")
    if isinstance(template, dict):
        pod = _with_memory_limit(template.get("spec"))
        side = field_support.Side.EMBEDDED
        yield from pod_field_effects.findings(pod, side, at="spec.template.spec")


def _with_memory_limit(spec: Any) -> Any:
    """Return the PodSpec of a template with the variable that tells the worker its memory limit."""
    containers = spec.get("containers") if isinstance(spec, dict) else None
    if not isinstance(containers, list) or not all(isinstance(c, dict) for c in containers):
        return spec
    position = kind_field_effects.worker_position(containers)
    variable = {"name": pod_field_effects.MEMORY_LIMIT}
    return {
        **spec,
        "containers": [
            {**c, "env": [*(c.get("env") or ()), variable]} if at == position else c
            for at, c in enumerate(containers)
        ],
    }


_NOT_SERVED = {
    "PersistentVolumeClaim": "workers share this machine: use a hostPath volume in the template",
    "Service": "workers share this machine: they reach each other on localhost",
    "DaemonSet": "there is one node: run it as a group of one worker",
    "Deployment": "run it as a group, or as a TaskCluster",
    "StatefulSet": "run it as a group, or as a TaskCluster",
}
"""Kinds that SyncSets use in a cluster and that `kiln up` does not serve, with the replacement."""


def _validate_sync_set(obj: meta.JsonObject) -> Iterator[tuple[str, str]]:
    """Yield the problems of a SyncSet.

    Objects of kinds that `kiln up` does not serve are a problem too.
    """
    yield from admission.validate_sync_set(obj)
    resources = (obj.get("spec") or {}).get("resources") or {}
    for position, manifest in enumerate(resources.get("objects") or ()):
        kind = manifest.get("kind") if isinstance(manifest, dict) else None
        if kind in _NOT_SERVED:
            field = f"spec.resources.objects[{position}].kind"
            yield field, f"is {kind}, which `kiln up` does not serve: {_NOT_SERVED[kind]}"


EXTENSIONS = installed_kind_types.Extensions(
    kinds=(
        installed_kind_types.InstalledKind(
            definition=crd.definition(kinds.TASKS),
            validate=admission.validate_task,
            validate_update=admission.validate_task_update,
            warnings=admission.task_warnings,
            sample=admission.sample_of_task,
        ),
        installed_kind_types.InstalledKind(
            definition=crd.definition(kinds.TASK_OBJECTS),
            validate_update=admission.validate_task_object_update,
            warnings=partial(admission.field_warnings, kinds.TASK_OBJECTS.kind),
        ),
        installed_kind_types.InstalledKind(
            definition=crd.definition(kinds.TASK_CLUSTERS),
            validate=admission.validate_task_cluster,
            warnings=_warn_of_task_cluster,
            pod_template="template",
        ),
        installed_kind_types.InstalledKind(
            definition=crd.definition(kinds.TASK_CLAIMS),
            validate_update=admission.validate_task_claim_update,
            validate_status=admission.validate_task_claim_status,
            right=admission.task_claim_right,
            warnings=partial(admission.field_warnings, kinds.TASK_CLAIMS.kind),
        ),
        installed_kind_types.InstalledKind(
            definition=crd.definition(kinds.JOBS),
            validate=admission.validate_job,
            validate_update=admission.validate_job_update,
            warnings=admission.job_warnings,
        ),
        installed_kind_types.InstalledKind(
            definition=crd.definition(kinds.JOB_CONFIGS),
            validate=admission.validate_job_config,
            warnings=partial(admission.field_warnings, kinds.JOB_CONFIGS.kind),
        ),
        installed_kind_types.InstalledKind(
            definition=crd.definition(kinds.SYNC_SETS),
            validate=_validate_sync_set,
            validate_update=admission.validate_sync_set_update,
            warnings=partial(admission.field_warnings, kinds.SYNC_SETS.kind),
        ),
        installed_kind_types.InstalledKind(
            definition=crd.definition(kinds.DATA_PONDS),
            validate=admission.validate_data_pond,
            warnings=partial(admission.field_warnings, kinds.DATA_PONDS.kind),
        ),
    ),
    view=(_rule(_SHOWN, _READ),),
    edit=(_rule(_CHANGED, _WRITE), _rule("executors/external", ["use"])),
    server_names=(manager_access.SERVER_NAME,),
)
