"""Workloads of an installation: the manager's Service and StatefulSet, and HTTP executors.

The StatefulSet has one replica, because the journal is a file; the next Pod gets the same volume.
The Pod meets the Pod Security Standard `restricted`, except with a hostPath volume or
`--run-as node`.
"""

from typing import Any

from kilnwork.api import manager_access, meta
from kilnwork.cli.installation import rights, settings

DATA = "/var/lib/kilnwork"
_VOLUME = "data"

_GRACE_S = 30
"""SIGTERM ends the manager within 20 s."""

_POLICY = "Parallel"
"""With one Pod, the only effect is that a Pod that never became ready is replaced when the template
changes. By default a StatefulSet waits until a user deletes that Pod (kubernetes.io, "Forced
rollback").
"""

_SELECTOR = {"app.kubernetes.io/name": "kilnwork", "app.kubernetes.io/component": "manager"}
_EXECUTORS = {"app.kubernetes.io/name": "kilnwork", "app.kubernetes.io/component": "executor-http"}
_TMP: meta.JsonObject = {"name": "tmp", "emptyDir": {}}


def service(chosen: settings.InstallSettings) -> meta.JsonObject:
    """Return the Service of the manager, at which workers, drivers and commands find the leader.

    Only the leader is ready, so only it receives connections.
    """
    port = {
        "name": manager_access.PORT_NAME,
        "port": manager_access.PORT,
        "targetPort": manager_access.PORT_NAME,
    }
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(manager_access.SERVICE, chosen.namespace),
        "spec": {"selector": _SELECTOR, "ports": [port]},
    }


def stateful_set(chosen: settings.InstallSettings) -> meta.JsonObject:
    """Return the StatefulSet of the manager, with its Pod and its volume."""
    made = _pod(chosen, rights.MANAGER, _container(chosen), _volumes(chosen))
    pod = {"metadata": {"labels": {**rights.labels(), **_SELECTOR}}, "spec": made}
    spec: dict[str, Any] = {
        "replicas": 1,
        "podManagementPolicy": _POLICY,
        "serviceName": manager_access.SERVICE,
        "selector": {"matchLabels": _SELECTOR},
        "template": pod,
    }
    if chosen.volume.storage == "pvc":
        spec["volumeClaimTemplates"] = [_claim(chosen.volume)]
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": _metadata(rights.MANAGER, chosen.namespace),
        "spec": spec,
    }


def http_executors(chosen: settings.InstallSettings) -> meta.JsonObject:
    """Return the Deployment of the HTTP executors, which have no state."""
    environment = [
        {"name": manager_access.NAMESPACE_VARIABLE, "value": chosen.namespace},
        {"name": "KILN_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
    ]
    container = _hardened(
        chosen,
        {
            "name": "executor",
            "image": chosen.image,
            "command": ["kiln", "executor", "http"],
            "args": _logging(chosen),
            "env": environment,
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        },
    )
    labels = {**rights.labels(), **_EXECUTORS}
    pod = _pod(chosen, rights.HTTP_EXECUTOR, container, [_TMP])
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": rights.HTTP_EXECUTOR, "namespace": chosen.namespace, "labels": labels,
        },
        "spec": {
            "replicas": chosen.http_executors,
            "selector": {"matchLabels": _EXECUTORS},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }  # fmt: skip


def _metadata(name: str, namespace: str) -> meta.JsonObject:
    return {"name": name, "namespace": namespace, "labels": {**rights.labels(), **_SELECTOR}}


def _volumes(chosen: settings.InstallSettings) -> list[meta.JsonObject]:
    volumes: list[meta.JsonObject] = [_TMP]
    if chosen.volume.storage == "emptyDir":
        volumes.append({"name": _VOLUME, "emptyDir": {}})
    elif chosen.volume.storage == "hostPath":
        where = {"path": chosen.volume.host_path, "type": "DirectoryOrCreate"}
        volumes.append({"name": _VOLUME, "hostPath": where})
    return volumes


def _pod(
    chosen: settings.InstallSettings,
    account: str,
    container: meta.JsonObject,
    volumes: list[meta.JsonObject],
) -> meta.JsonObject:
    pod: dict[str, Any] = {
        "serviceAccountName": account,
        "terminationGracePeriodSeconds": _GRACE_S,
        "securityContext": {
            **_user(chosen.place.user),
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": volumes,
    }
    pod |= _place(chosen.place)
    if chosen.pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in chosen.pull_secrets]
    return pod


def _user(user: int | None) -> meta.JsonObject:
    """Return the user of a security context, which is empty if the node determines the user."""
    if user is None:
        return {}
    return {"runAsNonRoot": True, "runAsUser": user, "runAsGroup": user, "fsGroup": user}


def _place(place: settings.Placement) -> meta.JsonObject:
    found: dict[str, Any] = {}
    if place.node_selector:
        found["nodeSelector"] = place.node_selector
    if place.tolerations:
        found["tolerations"] = [_toleration(one) for one in place.tolerations]
    if place.priority_class:
        found["priorityClassName"] = place.priority_class
    return found


def _toleration(given: settings.Toleration) -> meta.JsonObject:
    found = {"key": given.key, "operator": "Equal" if given.value else "Exists"}
    if given.value:
        found["value"] = given.value
    if given.effect:
        found["effect"] = given.effect
    return found


def _container(chosen: settings.InstallSettings) -> meta.JsonObject:
    container = {
        "name": "manager",
        "image": chosen.image,
        "command": ["kiln", "manager"],
        "args": _arguments(chosen),
        "ports": [{"name": manager_access.PORT_NAME, "containerPort": manager_access.PORT}],
        "readinessProbe": {**_probe("/readyz"), "periodSeconds": 2},
        "livenessProbe": {**_probe("/livez"), "periodSeconds": 10, "initialDelaySeconds": 20},
        "resources": {"requests": chosen.requests, "limits": chosen.limits},
    }
    return _hardened(chosen, container, {"name": _VOLUME, "mountPath": DATA})


def _hardened(
    chosen: settings.InstallSettings, container: meta.JsonObject, *mounts: meta.JsonObject
) -> meta.JsonObject:
    """Return a container with the fields that the Pod Security Standard `restricted` requires.

    It also gets a volume for temporary files.
    """
    container["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    tmp = {"name": "tmp", "mountPath": "/tmp"}  # noqa: S108 - a path in the container
    container["volumeMounts"] = [*mounts, tmp]
    if chosen.pull_policy:
        container["imagePullPolicy"] = chosen.pull_policy
    return container


def _arguments(chosen: settings.InstallSettings) -> list[str]:
    arguments = [f"--namespace={chosen.namespace}", f"--data={DATA}"]
    arguments += [f"--only-in={name}" for name in chosen.only_in]
    arguments += [f"--allow-kind={name}" for name in chosen.objects.kinds]
    if chosen.advertise:
        arguments.append(f"--advertise={chosen.advertise}")
    arguments.append(f"--worker-image={chosen.worker_image or chosen.image}")
    arguments.append(f"--worker-python={chosen.worker_python}")
    arguments += chosen.manager_arguments
    if chosen.volume.storage == "emptyDir":
        arguments.append("--adopt")  # each Pod starts with an empty journal
    return arguments + _logging(chosen)


def _logging(chosen: settings.InstallSettings) -> list[str]:
    arguments = ["--verbose"] * settings.LOG_LEVELS.index(chosen.log_level)
    return [*arguments, "--log-json"] if chosen.log_json else arguments


def _probe(path: str) -> meta.JsonObject:
    where = {"path": path, "port": manager_access.PORT_NAME, "scheme": "HTTPS"}
    return {"httpGet": where, "timeoutSeconds": 5}


def _claim(volume: settings.Volume) -> meta.JsonObject:
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "volumeMode": "Filesystem",
        "resources": {"requests": {"storage": volume.size}},
    }
    if volume.class_name is not None:
        spec["storageClassName"] = volume.class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": _VOLUME},
        "spec": spec,
    }
