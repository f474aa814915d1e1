"""The TaskCluster `default`, which exists from the first start without being declared.

Used by the wiring of `kiln up`. It is created once for each definition of its kind: a user's
change or deletion of the cluster is kept, but a cluster that was deleted together with its
definition is created again.
"""

import contextlib
from collections.abc import Callable

from kilnwork.api import api_resources, kinds, meta
from kilnwork.kit import clock
from kilnwork.kube import cache, client, controller, errors, manager, objects, queue, reflector

NAMESPACE = "default"
NAME = "default"
ANNOTATION = "kilnwork.dev/default-cluster"
"""Annotation of the Namespace `default`: uid of the definition under which the cluster was
created, even if the cluster was deleted since. Earlier versions wrote `made`."""

_MADE = "made"
_DEFINITIONS, _DEFINITION = api_resources.CUSTOM_RESOURCE_DEFINITIONS, kinds.TASK_CLUSTERS.qualified
_NOT_SERVED_YET_S = 0.5


class DefaultCluster:
    """Creator of the TaskCluster `default`, at the start and whenever its kind is defined again.
    `slots`: slots of its worker.
    """

    def __init__(
        self,
        kube: client.Client,
        *,
        slots: int,
        time: clock.Clock,
        on_failure: Callable[[str, BaseException], None] | None = None,
    ) -> None:
        self._kube = kube
        self._slots = slots
        self._definitions: cache.Cache[meta.Partial] = cache.Cache()
        self._queue = queue.WorkQueue(time=time)
        self._manager = manager.Manager("default cluster", on_failure=on_failure)
        self._manager.add_reflector(
            reflector.Reflector(
                kube,
                _DEFINITIONS,
                meta.Partial,
                self._definitions,
                lambda key, _old, _new: self._queue.add(key),
                scope=reflector.Scope(field_selector=f"metadata.name={_DEFINITION}"),
            )
        )
        self._manager.add_controller(
            controller.Controller("default cluster", self.reconcile, self._queue)
        )

    async def start(self) -> None:
        """Create the TaskCluster if necessary, then follow the definition of its kind. Raises
        NotSynced.
        """
        with contextlib.suppress(
            errors.NotFound
        ):  # not defined, or not established: `reconcile` handles it later
            definition = await self._kube.get(_DEFINITIONS, _DEFINITION)
            await self._ensure(definition["metadata"]["uid"])
        await self._manager.start()

    async def stop(self) -> None:
        await self._manager.stop()

    async def reconcile(self, key: objects.Key) -> float | None:
        definition = self._definitions.get(key)
        if definition is None or definition.metadata.deletion_timestamp is not None:
            return None
        try:
            await self._ensure(definition.metadata.uid)
        except errors.NotFound:  # the definition is not established yet
            return _NOT_SERVED_YET_S
        return None

    async def _ensure(self, uid: str) -> None:
        home = await self._kube.get(api_resources.NAMESPACES, NAMESPACE)
        made_under = (home["metadata"].get("annotations") or {}).get(ANNOTATION)
        if made_under == uid:
            return
        if made_under != _MADE:
            cluster = {
                "apiVersion": kinds.TASK_CLUSTERS.api_version,
                "kind": kinds.TASK_CLUSTERS.kind,
                "metadata": {"name": NAME, "namespace": NAMESPACE},
                "spec": {"replicas": 1, "slotsPerWorker": self._slots},
            }
            with contextlib.suppress(errors.AlreadyExists):  # created by a user
                await self._kube.create(kinds.TASK_CLUSTERS, cluster, NAMESPACE)
        patch = {"metadata": {"annotations": {ANNOTATION: uid}}}
        await self._kube.merge_patch(api_resources.NAMESPACES, NAMESPACE, patch)
