"""The manifest of the TaskCluster of a gang's group, as JSON.

No I/O. Used by the backends, by the SyncSet controller for names and owners, and by `kiln render`.
The gate and the data are in the template of the Pods, so that replacement Pods have them, too.
"""

import copy
from collections.abc import Sequence
from typing import Any

from kilnwork.api import (
    kind_field_effects,
    kinds,
    meta,
    names,
    sync_set_env,
    sync_set_validation,
)
from kilnwork.controllers import worker_pods
from kilnwork.controllers.gangs import port

SET_LABEL = "kilnwork.dev/set"
"""Label with the shortened name of the SyncSet; the annotation with this key has the full name."""

GENERATION_LABEL = "kilnwork.dev/generation"
GROUP_LABEL = "kilnwork.dev/group"

DATA_VARIABLE = "KILN_DATA"
"""Environment variable of workers: the directory with the snapshots of their generation."""


def cluster_name(set_name: str, generation: int, group: str) -> str:
    """Return the name of the TaskCluster of a group."""
    return f"{set_name}-g{generation}-{group}"


def run_name(set_name: str, generation: int) -> str:
    """Return the name of a generation, which is also the name of its directory and its lease in
    the pond."""
    return f"{set_name}-g{generation}"


def labels(spec: port.GangSpec, group: port.GroupSpec) -> dict[str, str]:
    """Return the labels of an object of a gang: its SyncSet, generation and group."""
    return {
        SET_LABEL: names.dns_label(spec.name),
        GENERATION_LABEL: str(spec.generation),
        GROUP_LABEL: group.name,
    }


def owner(name: str, uid: str) -> meta.JsonObject:
    """Return the owner reference to a SyncSet, for objects that it owns."""
    return {
        "apiVersion": kinds.SYNC_SETS.api_version,
        "kind": kinds.SYNC_SETS.kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def task_cluster(spec: port.GangSpec, group: port.GroupSpec, *, gated: bool) -> meta.JsonObject:
    """Return the manifest of the TaskCluster of a group; if `gated`, its Pods wait at a scheduling
    gate.
    """
    marks = labels(spec, group)
    wanted: dict[str, Any] = {
        "replicas": group.replicas,
        "slotsPerWorker": group.slots,
        "drainSeconds": 0,
        "template": pod_template(spec, group, gated=gated),
    }
    if group.account is not None:
        wanted["serviceAccountName"] = group.account
    return {
        "apiVersion": kinds.TASK_CLUSTERS.api_version,
        "kind": kinds.TASK_CLUSTERS.kind,
        "metadata": {
            "name": group.cluster,
            "namespace": spec.namespace,
            "labels": marks,
            "ownerReferences": [owner(spec.name, spec.uid)],
        },
        "spec": wanted,
    }


def pod_template(spec: port.GangSpec, group: port.GroupSpec, *, gated: bool) -> meta.JsonObject:
    """Return the template of a group's Pods: the user's template with labels, gate and data
    added."""
    template: dict[str, Any] = copy.deepcopy(group.template or {})
    metadata = template.get("metadata") or {}
    pod = template.get("spec") or {}
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels(spec, group)}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), SET_LABEL: spec.name}
    if gated:
        gates = pod.get("schedulingGates") or []
        pod["schedulingGates"] = [*gates, {"name": sync_set_validation.GATE}]
    if spec.data is not None and spec.data.path:
        _add_data(pod, spec.data)
    if group.spawns_on:
        _add_to_worker(pod, env={sync_set_env.SPAWN_CLUSTER: group.spawns_on}, mounts=())
    return {**template, "metadata": metadata, "spec": pod}


def _add_data(pod: dict[str, Any], data: port.DataPlaces) -> None:
    """Make the data of the generation visible to the worker, at the path that it has on the node.

    This is also correct where a node mounts nothing, as on the machine of `kiln up`.
    """
    shown = [(sync_set_validation.VOLUME, DATA_VARIABLE, data.path, data.writable)]
    if data.outputs:
        volume = sync_set_validation.OUTPUTS_VOLUME
        shown.append((volume, sync_set_env.OUTPUTS, data.outputs, True))
    _add_to_worker(
        pod,
        env={variable: path for _, variable, path, _ in shown},
        mounts=[
            {"name": volume, "mountPath": path, "readOnly": not writable}
            for volume, _, path, writable in shown
        ],
    )
    # The worker may start before its data (order follow), and before the pond's directory exists.
    pod["volumes"] = [
        *(pod.get("volumes") or ()),
        *(
            {"name": volume, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}
            for volume, _, path, _ in shown
        ),
    ]


def _add_to_worker(
    pod: dict[str, Any], *, env: dict[str, str], mounts: Sequence[dict[str, Any]]
) -> None:
    """Add environment variables and mounts to the worker's container."""
    containers = list(pod.get("containers") or [{"name": worker_pods.CONTAINER}])
    position = kind_field_effects.worker_position(containers)
    worker = dict(containers[position])
    others = [one for one in worker.get("env") or () if one.get("name") not in env]
    worker["env"] = [*others, *({"name": name, "value": value} for name, value in env.items())]
    if mounts:
        worker["volumeMounts"] = [*(worker.get("volumeMounts") or ()), *mounts]
    containers[position] = worker
    pod["containers"] = containers
