"""The objects of a DataPond: its Secret, and a Pod for each node, as JSON.

No I/O. Used by `plan`, `reconciler` and the verifier, which must agree on names. A Pod is assigned
to its node by name, as the Pods of a DaemonSet effectively are: this needs no scheduler and no
DaemonSet controller, and works the same on the local node. It mounts the directory and the Secret
of the pond, and the files and Secrets of sources; it has no rights at the API server.
"""

import base64
import hashlib
from pathlib import PurePosixPath
from typing import Any
from urllib import parse

import msgspec

from kilnwork.api import data_pond, kinds, meta, names, pond_certificate_names
from kilnwork.controllers import worker_pods
from kilnwork.controllers.data_pond import tls_certificate

POND_LABEL = "kilnwork.dev/pond"
"""Label of Secret and Pods: the shortened name of the pond. The annotation with this key has the
full name."""

CONTAINER = "agent"
SECRET_DIRECTORY = "/var/run/secrets/kilnwork.dev/pond"  # noqa: S105 - a path
SOURCES_DIRECTORY = "/var/run/secrets/kilnwork.dev/sources"
DEFAULT_ROOT = "/var/lib/kilnwork/ponds"
ABSENCE_S = 60
"""Seconds for which an agent on this machine continues after its server has ended: as long as
workers wait for a server."""

GRACE_S = 10
"""Grace period of agents; a restarted agent continues its transfers."""

_VOLUME = "pond"
_HASH_LENGTH = 16

_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
"""The tolerations that the DaemonSet controller adds (kubernetes pkg/controller/daemon/util,
AddOrUpdateDaemonPodTolerations)."""

TOLERATED = frozenset(key for key, _ in _TOLERATED)


class PondPodSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The manager's settings for agents' Pods."""

    manager: str
    """URL at which agents reach the manager."""
    command: tuple[str, ...]
    """Command of the agent."""
    image: str
    """Image of the agent; only a label on the local node."""
    root: str = DEFAULT_ROOT
    """Directory of ponds whose spec has no path."""
    ca: bytes | None = None
    """CA that has signed the manager's certificate; None over plain http."""
    local: bool = False
    """Whether the node is this machine, and Pods run as this user."""
    sees_nodes: bool = True
    """Whether the manager may read Nodes."""


def secret_name(pond: str) -> str:
    """Return the name of the Secret with which agents of a pond authenticate."""
    name = f"{pond}-pond"
    return name if names.is_dns_subdomain(name) else names.dns_label(name)


def pod_name(pond: str, node: str) -> str:
    """Return the name of the agent's Pod on a node: always the same, and valid as a host name."""
    name = f"{pond}-{node}"
    if names.is_dns_label(name):
        return name
    digest = hashlib.sha256(f"{pond}/{node}".encode()).hexdigest()[:_HASH_LENGTH]
    short = names.dns_label(pond, names.LABEL_LENGTH - _HASH_LENGTH - 1)
    return f"{short}-{digest}"


def data_directory(pond: data_pond.DataPond, settings: PondPodSettings) -> str:
    """Return the directory of a pond on each of its nodes."""
    if pond.spec.path is not None:
        return pond.spec.path.rstrip("/") or "/"
    return f"{settings.root}/{pond.metadata.namespace}/{pond.metadata.name}"


def make_secret(
    pond: data_pond.DataPond,
    settings: PondPodSettings,
    *,
    token: str,
    pair: tls_certificate.KeyPair,
) -> meta.JsonObject:
    """Return the manifest of the pond's Secret, with the token, the certificate and its key."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(pond, secret_name(pond.metadata.name)),
        "type": "Opaque",
        "data": {
            pond_certificate_names.TOKEN_KEY: _base64(token.encode()),
            **pair_data(pair),
            **ca_data(settings),
        },
    }


def pair_data(pair: tls_certificate.KeyPair) -> dict[str, str]:
    """Return the entries of the Secret with the certificate and its key."""
    return {
        pond_certificate_names.CERTIFICATE_KEY: _base64(pair.certificate),
        pond_certificate_names.PRIVATE_KEY_KEY: _base64(pair.key),
    }


def ca_data(settings: PondPodSettings) -> dict[str, str]:
    """Return the entry of the Secret with the manager's CA, which may change."""
    return {} if settings.ca is None else {pond_certificate_names.CA_KEY: _base64(settings.ca)}


def make_pod(
    pond: data_pond.DataPond, settings: PondPodSettings, *, node: str, secret_version: str
) -> meta.JsonObject:
    """Return the manifest of the agent's Pod on a node. `secret_version`: version of the Secret's
    data; a change replaces the Pod.
    """
    metadata = _metadata(pond, pod_name(pond.metadata.name, node))
    made = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": _spec(pond, settings, node),
    }
    content = msgspec.json.encode([made, secret_version], order="sorted")
    digest = hashlib.sha256(content).hexdigest()[:_HASH_LENGTH]
    metadata["annotations"][worker_pods.TEMPLATE_ANNOTATION] = digest
    return made


def digest_of(made: meta.JsonObject) -> str:
    """Return the digest, stored in a Pod's manifest, of the settings that the Pod was created
    from.
    """
    found: str = made["metadata"]["annotations"][worker_pods.TEMPLATE_ANNOTATION]
    return found


def _metadata(pond: data_pond.DataPond, name: str) -> dict[str, Any]:
    short = names.dns_label(pond.metadata.name)
    return {
        "name": name,
        "namespace": pond.metadata.namespace,
        "labels": {
            "app.kubernetes.io/name": "kilnwork",
            "app.kubernetes.io/component": "pond-agent",
            "app.kubernetes.io/instance": short,
            **worker_pods.MANAGED,
            POND_LABEL: short,
        },
        "annotations": {POND_LABEL: pond.metadata.name},
        "ownerReferences": [
            {
                "apiVersion": kinds.DATA_PONDS.api_version,
                "kind": kinds.DATA_PONDS.kind,
                "name": pond.metadata.name,
                "uid": pond.metadata.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def _spec(pond: data_pond.DataPond, settings: PondPodSettings, node: str) -> dict[str, Any]:
    volumes, mounts = _volumes(pond, settings)
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": settings.image,
        "command": list(settings.command),
        "env": _env(pond, settings, node),
        "volumeMounts": mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if not settings.local:
        container["resources"] = {"requests": {"cpu": "50m", "memory": "128Mi"}}
        container["securityContext"] = {
            "runAsUser": 0,  # volumes: the directory on the node, and the files of sources
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": ["DAC_OVERRIDE", "FOWNER"]},
        }
    return {
        "nodeName": node,
        "restartPolicy": "Always",
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": GRACE_S,
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": effect} for key, effect in _TOLERATED
        ],
        "containers": [container],
        "volumes": volumes,
    }


def _env(pond: data_pond.DataPond, settings: PondPodSettings, node: str) -> list[dict[str, Any]]:
    values = {
        "KILN_MANAGER": settings.manager,
        "KILN_NAMESPACE": pond.metadata.namespace,
        "KILN_POND": pond.metadata.name,
        "KILN_NODE": node,
        "KILN_TOKEN_FILE": f"{SECRET_DIRECTORY}/{pond_certificate_names.TOKEN_KEY}",
        "KILN_POND_PATH": data_directory(pond, settings),
        "KILN_POND_CERTIFICATES": SECRET_DIRECTORY,
        "KILN_POND_SECRETS": SOURCES_DIRECTORY,
    }
    if settings.local:
        values["KILN_POND_ABSENCE_S"] = f"{ABSENCE_S}"
    if settings.ca is not None:
        values["KILN_CA_FILE"] = f"{SECRET_DIRECTORY}/{pond_certificate_names.CA_KEY}"
    address = {"fieldRef": {"fieldPath": "status.podIP"}}
    return [
        *({"name": name, "value": value} for name, value in values.items()),
        {"name": "KILN_POND_HOST", "valueFrom": address},
    ]


def _volumes(
    pond: data_pond.DataPond, settings: PondPodSettings
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    where = data_directory(pond, settings)
    name = secret_name(pond.metadata.name)
    volumes: list[dict[str, Any]] = [
        {"name": _VOLUME, "hostPath": {"path": where, "type": "DirectoryOrCreate"}},
        {"name": "secret", "secret": {"secretName": name, "defaultMode": 256}},  # 0400
    ]
    mounts: list[dict[str, Any]] = [
        {"name": _VOLUME, "mountPath": where},
        {"name": "secret", "mountPath": SECRET_DIRECTORY, "readOnly": True},
    ]
    read_only = {} if settings.local else {"readOnly": True}
    for index, source in enumerate(pond.spec.sources):
        if (path := file_path(source.uri)) is not None and not _is_inside(path, mounts):
            volumes.append({"name": f"files-{index}", "hostPath": {"path": path}})
            mounts.append({"name": f"files-{index}", "mountPath": path} | read_only)
        if source.secret_name is not None:
            secret = {"secretName": source.secret_name, "optional": True, "defaultMode": 256}
            volumes.append({"name": f"secret-{index}", "secret": secret})
            at = f"{SOURCES_DIRECTORY}/{source.name}"
            mounts.append({"name": f"secret-{index}", "mountPath": at, "readOnly": True})
    return volumes, mounts


def file_path(uri: str) -> str | None:
    """Return the path of a `file:` URI, or None for any other URI."""
    parts = parse.urlsplit(uri)
    if parts.scheme != "file":
        return None
    return parse.unquote(parts.path).rstrip("/") or "/"


def _is_inside(path: str, mounts: list[dict[str, Any]]) -> bool:
    """Return whether a path is at or below the path of one of the mounts."""
    return any(PurePosixPath(path).is_relative_to(one["mountPath"]) for one in mounts)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
