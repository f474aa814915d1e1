"""The parts that all reconcilers share (client, caches, kube events, clock), and a function to
delete objects.

Used by the reconcilers of all kinds; created by `assembly`.
"""

import msgspec

from kilnwork.api import api_resources, meta
from kilnwork.controllers import caches, ports
from kilnwork.kit import clock
from kilnwork.kube import client, errors


class ReconcilerContext(msgspec.Struct, frozen=True):
    """The shared parts of reconcilers. `emit` sends kube events in the background."""

    kube: client.Client
    caches: caches.Caches
    emit: ports.Emit
    time: clock.Clock


async def delete(
    kube: client.Client, kind: api_resources.Resource, metadata: meta.ObjectMeta
) -> None:
    """Delete the object with this uid; the garbage collector then deletes the objects that it owns.
    A missing object is ignored. Raises Conflict if another object has the name now.
    """
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
