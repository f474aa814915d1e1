"""Removal of a virtual node from its cluster, from any machine: `kiln node --remove`.

If a process runs the node, a mark on the Node (`registration.REMOVE`) asks it to remove the node;
the process sees the mark within ten seconds. If no process renews the Node's Lease any more, the
node is started here in order to stop what it has left behind.
"""

import asyncio

from kilnwork.api import api_resources, meta
from kilnwork.controlplane.node import node_lease, registration, virtual_node
from kilnwork.kit import clock, errors
from kilnwork.kube import client, config
from kilnwork.kube import errors as kube_errors

_LOOK_S = 0.5


async def remove(
    kube: config.Config,
    settings: virtual_node.VirtualNodeSettings,
    *,
    say: virtual_node.Say,
    time: clock.Clock,
) -> None:
    """Remove the node. Returns once the Node is gone. Raises KilnError."""
    async with client.Client(kube, user_agent="kiln-node", time=time) as kube_client:
        mark = await _mark(kube_client, settings.name)
        if mark is None:
            raise errors.ConfigurationError(
                f"there is no node {settings.name}: pass the --name that it was started with"
            )
        if mark != registration.DRAINED:
            patch: meta.JsonObject = {"metadata": {"annotations": {registration.REMOVE: "true"}}}
            patch["spec"] = {"unschedulable": True}
            await kube_client.merge_patch(api_resources.NODES, settings.name, patch)
        removed = await _wait(kube_client, settings.name, say=say, time=time)
    if not removed:
        node = virtual_node.VirtualNode(kube, settings._replace(seizes=True), time=time)
        try:
            await node.start(say=say)
            await node.remove(say=say)
        finally:
            await node.stop()


async def _wait(
    asked: client.Client, name: str, *, say: virtual_node.Say, time: clock.Clock
) -> bool:
    """Wait until the Node is gone. Return False if no process runs the node."""
    last, since = "", time.monotonic()
    while (mark := await _mark(asked, name)) is not None:
        if mark == registration.DRAINED:
            await registration.delete(asked, name)
            return True
        renewed = await _renewed(asked, name)
        if renewed != last:
            last, since = renewed, time.monotonic()
        # A Lease that stays unchanged counts as old too: its holder's clock may be ahead of ours.
        if not last or _is_old(last, time.wall()) or time.monotonic() - since > node_lease.SILENT_S:
            return False
        say(f"waiting for the process that runs node {name}")
        await asyncio.sleep(_LOOK_S)
    return True


async def _mark(kube: client.Client, name: str) -> str | None:
    """Return the value of the removal mark, "" if there is none, or None if the Node is gone.

    Raises ConfigurationError for the Node of a kubelet.
    """
    try:
        node = await kube.get(api_resources.NODES, name)
    except kube_errors.NotFound:
        return None
    registration.check_ours(node)
    return str((node["metadata"].get("annotations") or {}).get(registration.REMOVE) or "")


async def _renewed(kube: client.Client, name: str) -> str:
    """Return the time when the Lease was renewed, or "" without a Lease or holder."""
    try:
        lease = await kube.get(api_resources.LEASES, name, node_lease.NAMESPACE)
    except kube_errors.NotFound:
        return ""
    spec = lease.get("spec") or {}
    return str(spec.get("renewTime") or "") if spec.get("holderIdentity") else ""


def _is_old(renewed: str, now: float) -> bool:
    return now - clock.parse_rfc3339(renewed) > node_lease.LEASE_S + node_lease.CLOCKS_S
