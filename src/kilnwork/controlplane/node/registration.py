"""The Node object, which describes the machine, and the Lease, which shows that the node is alive.

Used by `local_node`, and by `virtual_node` and `node_removal` for its constants and functions. The
Node's status is written at the start and every five minutes, the Lease (`node_lease`) every ten
seconds, as by the kubelet.
"""

import asyncio
import contextlib
import logging
import os
import platform
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kilnwork import version
from kilnwork.api import api_resources, meta
from kilnwork.controlplane import kubernetes_version
from kilnwork.controlplane.node import errors as node_errors
from kilnwork.controlplane.node import node_lease
from kilnwork.kit import clock
from kilnwork.kit import errors as kit_errors
from kilnwork.kube import client, errors

log = logging.getLogger(__name__)

AGAIN_S = 2.0
"""Delay between attempts while the API server cannot be reached. It is short, since a node that
reports late counts as lost."""

STATUS_EVERY = 30
"""Number of renewals between two writes of the Node's status, so it is written every five
minutes."""

PODS = 500
"""Maximum number of Pods. Pods are processes here; the kubelet's 110 is a limit of container
networks."""

LABEL_LOCAL = "kilnwork.dev/local"

REMOVE = "kilnwork.dev/remove"
"""Annotation of a Node that asks its process to drain the node, delete the Node and exit."""

DRAINED = "drained"
"""Value of `REMOVE` on a drained Node that its process is not allowed to delete, as with a node's
own certificate (NodeRestriction).
"""

RUNTIME = "kiln://"
"""Prefix of the containerRuntimeVersion of our Nodes."""

_HEALTHY_CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "memory is not watched"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "disks are not watched"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "processes are not counted"),
)


class NodeTaint(NamedTuple):
    """Taint of a node (core/v1).

    Pods that do not tolerate the taint are not scheduled there, or are evicted.
    """

    key: str
    value: str
    effect: str


class NodeIdentity(NamedTuple):
    """Identity of a node, as its Node object describes it."""

    name: str
    address: str
    port: int
    labels: Mapping[str, str] = types.MappingProxyType({})
    """Labels in addition to the well-known ones."""
    taints: tuple[NodeTaint, ...] = ()
    holder: str | None = None
    """Identity of the process that runs the node (`node_lease.holder`); None: the node's own name,
    which any process may use."""


class Registration:
    """Keeps the Node and the Lease of one name up to date. Call `claim`, `register`, then `keep`.

    `on_remove` is called at each renewal while the Node is marked with `REMOVE`, and `on_back` when
    the API server responds again. `on_taken` is called when another process has the name: nothing
    is renewed from then on.
    """

    def __init__(
        self,
        kube: client.Client,
        identity: NodeIdentity,
        *,
        now: clock.Clock,
        on_remove: Callable[[], None] = lambda: None,
        on_back: Callable[[], None] = lambda: None,
        on_taken: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = kube
        self._identity = identity
        self._name = identity.name
        self._now = now
        self._on_remove = on_remove
        self._on_back = on_back
        self._on_taken = on_taken
        self._lease = node_lease.NodeLease(
            kube, identity.name, identity.holder or identity.name, now=now
        )
        self._ready_since = clock.rfc3339(now.wall())
        self._uid = ""
        self._taken = False

    async def claim(self, *, seize: bool = False) -> None:
        """Claim the node's name. Raises ConfigurationError if a kubelet or another process has it.

        `seize`: take the name from another process, which stops when it notices this.
        """
        with contextlib.suppress(errors.NotFound):
            check_ours(await self._client.get(api_resources.NODES, self._name))
        await self._lease.claim(seize=seize)

    async def register(self) -> None:
        """Create the Node, or take over our existing one.

        Raises ConfigurationError if a kubelet owns the Node.
        """
        metadata = {"name": self._name, "labels": self._labels()}
        taints = [taint._asdict() for taint in self._identity.taints]
        spec = {"taints": taints} if taints else {}
        new_node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}
        try:
            node = await self._client.create(api_resources.NODES, new_node)
        except errors.AlreadyExists:
            check_ours(await self._client.get(api_resources.NODES, self._name))
            # The null deletes the mark, which was meant for an earlier process.
            patch = {"metadata": {"labels": self._labels(), "annotations": {REMOVE: None}}}
            node = await self._client.merge_patch(api_resources.NODES, self._name, patch)
            await self._taint(node)
        # The Lease names the Node as its owner, and is deleted with it.
        self._uid = node["metadata"]["uid"]
        await self._write_status(node)

    def _labels(self) -> dict[str, str]:
        return {**labels(self._name), **self._identity.labels}

    async def _taint(self, node: meta.JsonObject) -> None:
        """Add the taints that an existing Node lacks. Taints of other clients stay."""
        present = list((node.get("spec") or {}).get("taints") or ())
        pairs = {(t.get("key"), t.get("effect")) for t in present}
        missing = [t for t in self._identity.taints if (t.key, t.effect) not in pairs]
        if not missing:
            return
        # The patch replaces the whole list, and a taint that is added meanwhile must not be lost.
        version = {"resourceVersion": node["metadata"]["resourceVersion"]}
        taints = [*present, *(taint._asdict() for taint in missing)]
        patch = {"metadata": version, "spec": {"taints": taints}}
        try:
            await self._client.merge_patch(api_resources.NODES, self._name, patch)
        except errors.Forbidden as error:  # NodeRestriction allows taints only at creation
            facts = {"node": self._name, "error": str(error)}
            log.warning("taints not set: set them by kubectl, or delete the Node", extra=facts)

    async def keep(self) -> None:
        """Renew the Lease and restore the Node.

        Ends when it is cancelled or another process has the name. Failures are logged, and the
        renewal is tried again in the next round.
        """
        turn, away = 0, False
        while True:
            try:
                await self._lease.renew(owner=self._uid)
                node = await self._restore()
                # The first status is written by `register`.
                if turn and turn % STATUS_EVERY == 0:
                    await self._write_status(node)
                if away:
                    self._on_back()
                away = False
            except errors.KubeError as error:
                facts = {"node": self._name, "error": str(error)}
                log.warning("node lease not renewed", extra=facts)
                away = True
            except node_errors.NameTaken as error:
                facts = {"node": self._name, "by": str(error)}
                log.error("node is run elsewhere now, ending here", extra=facts)  # noqa: TRY400
                self._taken = True
                self._on_taken()
                return
            turn += 1
            await asyncio.sleep(AGAIN_S if away else node_lease.RENEW_S)

    async def _restore(self) -> meta.JsonObject:
        """Restore the Node and its Ready condition if another client has deleted or changed them.

        Otherwise no Pod would be bound to the node.
        """
        try:
            node = await self._client.get(api_resources.NODES, self._name)
        except errors.NotFound:
            log.warning("node was deleted, registering again", extra={"node": self._name})
            await self.register()
            return await self._client.get(api_resources.NODES, self._name)
        if not _is_ready(node):
            await self._write_status(node)
        if REMOVE in (node["metadata"].get("annotations") or {}):
            self._on_remove()
        return node

    async def cordon(self) -> None:
        """Mark the Node as unschedulable."""
        patch = {"spec": {"unschedulable": True}}
        await self._client.merge_patch(api_resources.NODES, self._name, patch)

    async def leave(self) -> None:
        """Mark the node as not ready, and release its name.

        Does nothing if another process has the name.
        """
        if self._taken:
            return
        node = await self._client.get(api_resources.NODES, self._name)
        message = "the node was stopped; its Pods have ended"
        away = self._condition("Ready", "False", "NodeStopped", message)
        others = [c for c in _conditions(node) if c.get("type") != "Ready"]
        await self._patch_status({"conditions": [*others, away]})
        # Released last: from now on another process may run the node.
        await self._lease.release()

    async def remove(self) -> None:
        """Delete the Node and its Lease.

        If that is forbidden, mark the Node as drained and not ready, and release its name.
        """
        try:
            await delete(self._client, self._name)
        except errors.Forbidden as error:
            facts = {"node": self._name, "error": str(error)}
            log.warning("the node is drained, but not deleted", extra=facts)
            patch = {"metadata": {"annotations": {REMOVE: DRAINED}}}
            await self._client.merge_patch(api_resources.NODES, self._name, patch)
            await self.leave()

    async def _write_status(self, node: meta.JsonObject) -> None:
        ready = self._condition("Ready", "True", "KubeletReady", "the node runs Pods as processes")
        ours = [ready, *(self._condition(*well) for well in _HEALTHY_CONDITIONS)]
        kinds = {c["type"] for c in ours}
        await self._patch_status(
            {
                "addresses": [
                    {"type": "InternalIP", "address": self._identity.address},
                    {"type": "Hostname", "address": self._name},
                ],
                "capacity": capacity(),
                "allocatable": capacity(),
                "conditions": [
                    *(c for c in _conditions(node) if c.get("type") not in kinds),
                    *ours,
                ],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": self._identity.port}},
                "nodeInfo": node_info(),
            }
        )

    async def _patch_status(self, status: dict[str, Any]) -> None:
        await self._client.merge_patch(
            api_resources.NODES, self._name, {"status": status}, subresource="status"
        )

    def _condition(self, kind: str, status: str, reason: str, message: str) -> dict[str, str]:
        now = clock.rfc3339(self._now.wall())
        changes = kind == "Ready" and status == "False"
        return {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now if changes else self._ready_since,
        }


async def delete(kube: client.Client, name: str) -> None:
    """Delete the Node and its Lease. Either may be gone already."""
    for kind, namespace in (
        (api_resources.NODES, None),
        (api_resources.LEASES, node_lease.NAMESPACE),
    ):
        with contextlib.suppress(errors.NotFound):
            await kube.delete(kind, name, namespace)


def check_ours(node: meta.JsonObject) -> None:
    """Raise ConfigurationError if a kubelet owns the Node.

    Two processes cannot run the same Pods.
    """
    info = (node.get("status") or {}).get("nodeInfo") or {}
    # Without this field the Node is new, and its status was not written yet.
    runtime = str(info.get("containerRuntimeVersion") or RUNTIME)
    if not runtime.startswith(RUNTIME):
        name = node["metadata"]["name"]
        raise kit_errors.ConfigurationError(
            f"node {name} is run by a kubelet ({info.get('kubeletVersion')}, {runtime}): choose"
            f" another --name; if its machine is gone for good, `kubectl delete node {name}` first"
        )


def _conditions(node: meta.JsonObject) -> list[dict[str, Any]]:
    return list((node.get("status") or {}).get("conditions") or ())


def _is_ready(node: meta.JsonObject) -> bool:
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in _conditions(node))


def labels(name: str) -> dict[str, str]:
    """Return the well-known labels of a Node, and our own labels."""
    return {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture(),
        LABEL_LOCAL: "true",
    }


def architecture() -> str:
    """Return Go's name of this machine's architecture, which Kubernetes uses."""
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def capacity() -> dict[str, str]:
    """Return the resources of this machine as quantities."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024
    return {
        "cpu": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory}Ki",
        "pods": str(PODS),
    }


def node_info() -> dict[str, str]:
    """Return the NodeSystemInfo (core/v1) of this machine."""
    return {
        "architecture": architecture(),
        "operatingSystem": "linux",
        "kernelVersion": platform.release(),
        "osImage": _os_image(),
        "containerRuntimeVersion": f"{RUNTIME}{version.__version__}",
        "kubeletVersion": kubernetes_version.GIT_VERSION,
        "kubeProxyVersion": "",
        "bootID": _line("/proc/sys/kernel/random/boot_id"),
        "machineID": _line("/etc/machine-id"),
        "systemUUID": "",
    }


def _os_image() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return "Linux"


def _line(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
