"""The objects in `resources.objects` of a SyncSet, which the SyncSet owns.

Used by `reconciler`. They exist as long as the SyncSet, over all generations. The kinds that tasks
may create, and ConfigMaps, are allowed.
"""

from typing import Any

from kilnwork.api import api_resources, meta, sync_set
from kilnwork.controllers.gangs import cluster_manifests
from kilnwork.executors import custom_resource
from kilnwork.kube import client, errors


class SetObjects:
    """Creator of the objects in `resources.objects` of SyncSets. `served`: the kinds of the API
    server, and which of them the manager may create.
    """

    def __init__(self, kube: client.Client, served: custom_resource.Kinds) -> None:
        self._client = kube
        self._served = served

    async def ensure(self, seen: sync_set.SyncSet) -> str:
        """Create the missing objects of a SyncSet; return why an object cannot be created, or "" if
        all exist.
        """
        for position, manifest in enumerate(seen.spec.resources.objects):
            problem = await self._ensure(seen, manifest)
            if problem:
                return f"spec.resources.objects[{position}]: {problem}"
        return ""

    async def _ensure(self, seen: sync_set.SyncSet, manifest: dict[str, Any]) -> str:
        kind, problem = await self._kind(manifest)
        if kind is None:
            return problem
        metadata, namespace = manifest["metadata"], seen.metadata.namespace
        body = {
            **manifest,
            "metadata": {
                **metadata,
                "namespace": namespace,
                "ownerReferences": [cluster_manifests.owner(seen.metadata.name, seen.metadata.uid)],
            },
        }
        try:
            await self._client.create(kind, body, namespace)
        except errors.AlreadyExists:
            return await self._taken(seen, kind, str(metadata["name"]))
        except (errors.Forbidden, errors.Invalid, errors.NotFound) as error:
            return error.message
        return ""

    async def _kind(self, manifest: dict[str, Any]) -> tuple[api_resources.Resource | None, str]:
        if (manifest["apiVersion"], manifest["kind"]) == ("v1", "ConfigMap"):
            return api_resources.CONFIG_MAPS, ""
        found = await self._served.find(manifest["apiVersion"], manifest["kind"])
        if not isinstance(found, api_resources.Resource):
            return None, found.message
        if not found.namespaced:
            return None, f"{found.kind} belongs to no namespace: the SyncSet cannot own it"
        if not self._served.allowed.allows(found):
            return None, (
                f"the manager may not make {found.qualified}: start it with --allow-kind "
                f"{found.qualified}, or make the object yourself"
            )
        return found, ""

    async def _taken(self, seen: sync_set.SyncSet, kind: api_resources.Resource, name: str) -> str:
        try:
            found = await self._client.get(kind, name, seen.metadata.namespace, type=meta.Partial)
        except errors.NotFound:
            return f"{kind.kind} {name} is to be made"
        owner = found.metadata.controller()
        if owner is None or owner.uid != seen.metadata.uid:
            return f"{kind.kind} {name} exists and does not belong to this SyncSet"
        return ""
