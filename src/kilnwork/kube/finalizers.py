"""Adds and removes finalizers of objects for which something outside of Kubernetes was created.

Used by controllers and executors, which add the finalizer before they create that outside object,
and remove it once the outside object is gone. An object with a finalizer stays, with a
deletionTimestamp, until its last finalizer is removed. Concurrent writes of other clients are not
overwritten: the object is read again.
"""

from typing import Any

from kilnwork.api import api_resources as resources
from kilnwork.api import meta
from kilnwork.kube import client, errors, objects

TRIES = 5
"""Maximum number of tries after conflicts with other writers, as in client-go's RetryOnConflict."""


async def add(
    kube: client.Client, resource: resources.Resource, obj: Any, *, finalizer: str
) -> None:
    """Add the finalizer to `obj` unless it is there already.

    Raises Invalid for an object that is being deleted (the server's rule), NotFound for an object
    that was deleted or created again, Conflict after `TRIES` conflicts.
    """
    await _change(kube, resource, obj, finalizer=finalizer, wanted=True)


async def remove(
    kube: client.Client, resource: resources.Resource, obj: Any, *, finalizer: str
) -> None:
    """Remove the finalizer from `obj`; do nothing if it is not there or `obj` was deleted."""
    try:
        await _change(kube, resource, obj, finalizer=finalizer, wanted=False)
    except errors.NotFound:
        return


async def _change(
    kube: client.Client, resource: resources.Resource, obj: Any, *, finalizer: str, wanted: bool
) -> None:
    namespace, name = objects.key(obj)
    current = obj
    for tries in range(1, TRIES + 1):
        found = _of(current)
        if (finalizer in found) is wanted:
            return
        others = [each for each in found if each != finalizer]
        # A merge patch replaces whole lists: without a version it could remove finalizers of
        # others.
        metadata = {
            "finalizers": [*others, finalizer] if wanted else others,
            "resourceVersion": objects.resource_version(current),
        }
        try:
            await kube.merge_patch(resource, name, {"metadata": metadata}, namespace or None)
        except errors.Conflict:
            if tries == TRIES:
                raise
            current = await kube.get(resource, name, namespace or None)
            # Another object has the name now, which may need its finalizers.
            if objects.uid(current) != objects.uid(obj):
                raise errors.NotFound(
                    404, "NotFound", f'{resource.qualified} "{name}" was deleted and created again'
                ) from None
        else:
            return


def _of(obj: Any) -> list[str]:
    metadata: meta.ObjectMeta | dict[str, Any] = objects.metadata(obj)
    if isinstance(metadata, dict):
        return list(metadata.get("finalizers") or ())
    return list(metadata.finalizers)
