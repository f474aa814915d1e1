"""The objects of a TaskCluster: its channel Secret and its worker Pods, as JSON.

No I/O. Used by the TaskCluster controller and the token verifier, which must agree on names, and by
other controllers for labels and settings. A cluster's name may have 253 characters and dots; Pod
names are host names and label values have at most 63 characters, so that longer names get a short
form with a hash (`api.names.dns_label`), always the same.
"""

import base64
import copy
import hashlib
import itertools
from collections.abc import Container
from pathlib import Path
from typing import Any

import msgspec

from kilnwork.api import kinds, meta, names, pod, pod_template_shape, task_cluster, task_validation
from kilnwork.executors.ephemeral import template as ephemeral
from kilnwork.executors.pod import sidecar_container

CLUSTER_LABEL = "kilnwork.dev/cluster"
"""Label of Secret and Pods: the shortened name of the cluster. The annotation with this key has
the full name."""

TEMPLATE_ANNOTATION = "kilnwork.dev/template"
"""Annotation of Pods: digest of the template that they were created from; a Pod with another
digest is outdated."""

MANAGED = {"app.kubernetes.io/managed-by": "kilnwork"}
"""The label selector of the caches: only objects that kilnwork created."""

CONTAINER = "worker"
TOKEN_DIRECTORY = "/var/run/secrets/kilnwork.dev/channel"  # noqa: S105 - a path
TOKEN_KEY = "token"  # noqa: S105 - a key
TOKEN_FILE = f"{TOKEN_DIRECTORY}/{TOKEN_KEY}"
CA_KEY = "ca.crt"
CA_FILE = f"{TOKEN_DIRECTORY}/{CA_KEY}"
_VOLUME = "kiln-channel"

LOST_NODE_S = 30
"""Seconds for which a worker Pod tolerates a lost node, unless its template says otherwise.
Kubernetes' default of 300 s is meant for Pods whose work ends with them. The tasks of a lost
worker are restarted elsewhere when its lease expires; only its capacity is missing."""

LOST_NODE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""The taints of lost nodes (kubernetes plugin/pkg/admission/defaulttolerationseconds)."""

_ORDINAL_LENGTH = len("-99999")
"""Length reserved for an ordinal. Ordinals may exceed replicas: a Pod that is being deleted
keeps its name, on a lost node for ever."""


SIDECAR = "from kilnwork.worker.sidecar import run; run()"
"""The sidecar's program for `python -c`: with `-m` the start takes 50 % longer."""


class WorkerPodSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The manager's settings for worker Pods."""

    channel: str
    """Address to which workers connect: `unix:/path` or `tls://HOST:PORT`."""
    worker_command: tuple[str, ...]
    worker_image: str
    """Default image; only a label on a local node."""
    worker_dir: str | None = None
    """Default working directory of commands; None: chosen by the node."""
    ca: bytes | None = None
    """PEM of the CA of the channel's certificate; None for a Unix socket."""
    blobs: Path | None = None
    """Directory of the manager's blobs; None if the manager keeps no blobs."""
    blobs_shared: bool = True
    """Whether Pods mount the directory of blobs."""
    allowed_kinds: tuple[str, ...] = ()
    """Kinds of objects that tasks may create."""
    socket: Path | None = None
    """Socket of the dispatcher in this process, for TaskClaims; None: they are not served."""
    manager: str = ""
    """URL at which agents of ponds reach this process."""
    manager_ca: bytes | None = None
    """CA that has signed the manager's certificate; None over plain http."""
    ponds: str | None = None
    """Directory of ponds whose spec has no path, if the only node is this machine; None on other
    nodes, which use `data_pond.pods.DEFAULT_ROOT`."""
    sees_nodes: bool = True
    """Whether the manager may read Nodes, without which there are no agents of ponds."""

    @property
    def sidecar(self) -> sidecar_container.SidecarOptions:
        """The options for the sidecar that a Pod of an attempt gets."""
        return sidecar_container.SidecarOptions(
            image=self.worker_image,
            command=(self.worker_command[0], "-P", "-c", SIDECAR),
            channel=self.channel,
            ca=self.ca,
            blobs=str(self.blobs) if self.blobs is not None and self.blobs_shared else None,
        )


def template_problem(cluster: task_cluster.TaskCluster) -> str:
    """Return why no worker Pod can be created from the spec of a TaskCluster, or "" if one can.

    A real API server does not validate `spec.template`, which is too large for a schema of ours.
    """
    found = [f"{field} {why}" for field, why in task_validation.validate_task_cluster(cluster)]
    if found:
        return "; ".join(found)
    shape = pod_template_shape.shape_problem(cluster.spec.template)
    return f"spec.template {shape}" if shape else ""


def secret_name(cluster: str) -> str:
    """Return the name of the Secret that contains the token of a cluster's workers."""
    name = f"{cluster}-channel"
    return name if names.is_dns_subdomain(name) else names.dns_label(name)


def pod_name(cluster: task_cluster.TaskCluster, ordinal: int) -> str:
    """Return the name of the worker Pod with this ordinal, valid as a host name for any name of the
    cluster.
    """
    prefix = cluster.spec.deployment_name or cluster.metadata.name
    return f"{names.dns_label(prefix, names.LABEL_LENGTH - _ORDINAL_LENGTH)}-{ordinal}"


def ordinal(name: str) -> int:
    """Return the number at the end of a Pod's name, or 0 if there is none."""
    last = name.rpartition("-")[2]
    return int(last) if last.isdecimal() else 0


def is_named_for(cluster: task_cluster.TaskCluster, name: str) -> bool:
    """Return whether a Pod's name is the one that `pod_name` returns for its ordinal; false for a
    Pod from before a change of `spec.deploymentName`.
    """
    return name == pod_name(cluster, ordinal(name))


def free_names(
    cluster: task_cluster.TaskCluster, count: int, taken: Container[str]
) -> tuple[str, ...]:
    """Return the first `count` free names of worker Pods; always the same names, so that no Pod is
    created twice.
    """
    every = (pod_name(cluster, number) for number in itertools.count())
    return tuple(itertools.islice((name for name in every if name not in taken), max(count, 0)))


def labels(cluster: str) -> dict[str, str]:
    """Return the labels of all objects of a cluster (recommended labels of Kubernetes)."""
    short = names.dns_label(cluster)
    return {
        "app.kubernetes.io/name": "kilnwork",
        "app.kubernetes.io/component": "worker",
        "app.kubernetes.io/instance": short,
        **MANAGED,
        CLUSTER_LABEL: short,
    }


def container_status(seen: pod.Pod) -> pod.ContainerStatus | None:
    """Return the status of the worker's container; None if it is missing or ambiguous."""
    found = seen.status.container_statuses
    named = (status for status in found if status.name == CONTAINER)
    return next(named, found[0] if len(found) == 1 else None)


def is_same(old: pod.Pod, new: pod.Pod) -> bool:
    """Return whether two versions of a worker Pod differ in nothing but the ephemeral containers of
    attempts.
    """
    return _without_containers(old) == _without_containers(new)


def _without_containers(seen: pod.Pod) -> pod.Pod:
    return msgspec.structs.replace(
        seen,
        metadata=msgspec.structs.replace(seen.metadata, resource_version=""),
        spec=msgspec.structs.replace(seen.spec, ephemeral_containers=()),
        status=msgspec.structs.replace(seen.status, ephemeral_container_statuses=()),
    )


def selector(cluster: str) -> str:
    """Return the label selector of a cluster's worker Pods."""
    wanted = {**MANAGED, CLUSTER_LABEL: names.dns_label(cluster)}
    return ",".join(f"{key}={value}" for key, value in wanted.items())


def owner(cluster: task_cluster.TaskCluster) -> meta.JsonObject:
    """Return the owner reference by which the garbage collector removes the objects of a
    cluster."""
    return {
        "apiVersion": kinds.TASK_CLUSTERS.api_version,
        "kind": kinds.TASK_CLUSTERS.kind,
        "name": cluster.metadata.name,
        "uid": cluster.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def make_secret(
    cluster: task_cluster.TaskCluster, token: str, *, ca: bytes | None = None
) -> meta.JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(cluster, secret_name(cluster.metadata.name)),
        "type": "Opaque",
        "data": {TOKEN_KEY: base64.b64encode(token.encode()).decode(), **ca_data(ca)},
    }


def ca_data(ca: bytes | None) -> dict[str, str]:
    """Return the Secret's entry for the manager's CA, or nothing without a CA. The CA may change: a
    manager that has lost its data directory makes a new one.
    """
    return {} if ca is None else {CA_KEY: base64.b64encode(ca).decode()}


def template(
    cluster: task_cluster.TaskCluster, settings: WorkerPodSettings, *, secret_uid: str
) -> meta.JsonObject:
    """Return the manifest that is common to all worker Pods of a cluster: a Pod without a name.

    It is derived from `spec.template`; the container `worker` (otherwise the first) becomes the
    worker. `secret_uid` is part of the digest, so that a new token reaches all workers.
    """
    given: dict[str, Any] = copy.deepcopy(cluster.spec.template or {})
    given_meta = given.get("metadata") or {}
    metadata = _metadata(cluster, "")
    del metadata["name"]
    metadata["labels"] = {**(given_meta.get("labels") or {}), **metadata["labels"]}
    annotations = {**(given_meta.get("annotations") or {}), **metadata["annotations"]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "annotations": annotations},
        "spec": _pod_spec(cluster, settings, given.get("spec") or {}),
    }
    annotations[TEMPLATE_ANNOTATION] = _digest(pod, secret_uid)
    return pod


def with_name(pod: meta.JsonObject, name: str) -> meta.JsonObject:
    return {**pod, "metadata": {**pod["metadata"], "name": name}}


def digest_of(pod: meta.JsonObject) -> str:
    """Return the digest of a template, which is stored in the Pods created from it."""
    found: str = pod["metadata"]["annotations"][TEMPLATE_ANNOTATION]
    return found


def _metadata(cluster: task_cluster.TaskCluster, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": cluster.metadata.namespace,
        "labels": labels(cluster.metadata.name),
        "annotations": {CLUSTER_LABEL: cluster.metadata.name},
        "ownerReferences": [owner(cluster)],
    }


def _pod_spec(
    cluster: task_cluster.TaskCluster, settings: WorkerPodSettings, given: dict[str, Any]
) -> dict[str, Any]:
    containers = list(given.get("containers") or [{"name": CONTAINER}])
    at = next((i for i, c in enumerate(containers) if c.get("name") == CONTAINER), 0)
    containers[at] = _worker(cluster, settings, containers[at])
    account = cluster.spec.service_account_name
    spec = {
        "enableServiceLinks": False,
        **given,
        "containers": containers,
        "restartPolicy": "Always",
        "automountServiceAccountToken": account is not None,
        "tolerations": [*(given.get("tolerations") or []), *_tolerations(given)],
        "volumes": [*(given.get("volumes") or []), _token_volume(cluster.metadata.name)],
    }
    if _has_containers(cluster):
        spec["shareProcessNamespace"] = True
        spec["volumes"] = [*spec["volumes"], {"name": ephemeral.VOLUME, "emptyDir": {}}]
    if account is None:
        spec.pop("serviceAccountName", None)
        spec.pop("serviceAccount", None)
    else:
        spec["serviceAccountName"] = account
    return spec


def _tolerations(given: dict[str, Any]) -> list[dict[str, Any]]:
    """Return limited tolerations for the taints of lost nodes, except for taints that the
    template names."""
    stated = [
        toleration
        for toleration in given.get("tolerations") or []
        if toleration.get("effect") in (None, "", "NoExecute")
    ]
    keys = {toleration.get("key") or "" for toleration in stated}
    return [
        {
            "key": taint,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": LOST_NODE_S,
        }
        for taint in LOST_NODE_TAINTS
        if "" not in keys and taint not in keys
    ]


def _worker(
    cluster: task_cluster.TaskCluster, settings: WorkerPodSettings, given: dict[str, Any]
) -> dict[str, Any]:
    own_env = [*_env(cluster, settings), *_memory_env(given)]
    own_names = {entry["name"] for entry in own_env}
    given_env = [entry for entry in given.get("env") or [] if entry.get("name") not in own_names]
    mount = {"name": _VOLUME, "mountPath": TOKEN_DIRECTORY, "readOnly": True}
    worker = {
        "name": CONTAINER,
        "terminationMessagePolicy": "FallbackToLogsOnError",  # shows why the worker ended
        **given,
        "image": given.get("image") or settings.worker_image,
        "command": list(settings.worker_command),
        "env": [*given_env, *own_env],
        "volumeMounts": [*(given.get("volumeMounts") or []), mount],
    }
    if _has_containers(cluster):
        shared = {"name": ephemeral.VOLUME, "mountPath": ephemeral.VOLUME_DIRECTORY}
        worker["volumeMounts"] = [*worker["volumeMounts"], shared]
    if settings.worker_dir is not None:
        worker.setdefault("workingDir", settings.worker_dir)
    worker.pop("args", None)
    return worker


def _has_containers(cluster: task_cluster.TaskCluster) -> bool:
    """Return whether commands run in ephemeral containers added to the worker Pods, which share
    volume and processes.
    """
    return cluster.spec.runtime is task_cluster.Runtime.EPHEMERAL_CONTAINERS


def _env(cluster: task_cluster.TaskCluster, settings: WorkerPodSettings) -> list[dict[str, Any]]:
    return [
        {"name": "KILN_CHANNEL", "value": settings.channel},
        {"name": "KILN_TOKEN_FILE", "value": TOKEN_FILE},
        *([] if settings.ca is None else [{"name": "KILN_CA_FILE", "value": CA_FILE}]),
        {"name": "KILN_CLUSTER", "value": cluster.metadata.name},
        {"name": "KILN_SLOTS", "value": str(cluster.spec.slots_per_worker)},
        *(
            [{"name": "KILN_RUNTIME", "value": str(cluster.spec.runtime)}]
            if _has_containers(cluster)
            else []
        ),
        _from_field("KILN_NAMESPACE", "metadata.namespace"),
        _from_field("KILN_WORKER", "metadata.name"),
        _from_field("KILN_POD_UID", "metadata.uid"),
        _from_field("KILN_NODE", "spec.nodeName"),
    ]


def _memory_env(given: dict[str, Any]) -> list[dict[str, Any]]:
    """Return environment variables with the memory limit, for nodes without cgroups, where the
    worker enforces it.
    """
    if "memory" not in ((given.get("resources") or {}).get("limits") or {}):
        return []
    limit = {"containerName": given.get("name") or CONTAINER, "resource": "limits.memory"}
    return [{"name": "KILN_MEMORY_LIMIT", "valueFrom": {"resourceFieldRef": limit}}]


def _from_field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _token_volume(cluster: str) -> dict[str, Any]:
    # 0444 (292): a kubelet makes root the owner, and the user of an image may be another one;
    # other processes in the container run as the same user.
    secret = {"secretName": secret_name(cluster), "defaultMode": 292}
    return {"name": _VOLUME, "secret": secret}


def _digest(pod: meta.JsonObject, secret_uid: str) -> str:
    encoded = msgspec.json.encode((pod, secret_uid), order="deterministic")
    return hashlib.sha256(encoded).hexdigest()[:16]
