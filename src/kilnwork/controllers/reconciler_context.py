"""What every reconciler needs (client, caches, kube events, clock), and a function that all use.

Used by the reconcilers of all kinds; made by `assembly`.
"""

import msgspec

from kilnwork.api import meta, resource
from kilnwork.controllers import caches, ports
from kilnwork.kit import clock
from kilnwork.kube import client, errors


class ReconcilerContext(msgspec.Struct, frozen=True):
    """The shared parts of reconcilers. `emit` sends kube events in the background."""

    kube: client.Client
    caches: caches.Caches
    emit: ports.Emit
    time: clock.Clock


async def delete(kube: client.Client, kind: resource.Resource, metadata: meta.ObjectMeta) -> None:
    """Delete exactly this object, then what it owns; if it is gone already, nothing happens."""
    try:
        await kube.delete(
            kind,
            metadata.name,
            metadata.namespace,
            uid=metadata.uid,
            propagation="Background",
        )
    except errors.NotFound:
        return
