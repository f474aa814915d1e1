"""Taint eviction: deletes Pods from nodes with NoExecute taints that they do not tolerate.

It follows the store inside the server, as the binder does, and corresponds to the taint eviction
controller (k8s.io/kubernetes pkg/controller/tainteviction). A Pod is deleted at once, or after its
tolerationSeconds, counted from the moment the taint is seen; a restart begins the count again.
`pod_gc` uses `disrupt` too.
"""

import asyncio
import logging
from collections.abc import Sequence

from kilnwork.api import api_resources, meta, node_fit
from kilnwork.controlplane import controller_base, store_types
from kilnwork.controlplane.apiserver import deletion, object_writer, statuses, write_types

log = logging.getLogger(__name__)

_PODS, _NODES = api_resources.PODS.qualified, api_resources.NODES.qualified
_CONDITION = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "DeletionByTaintManager",
    "message": "Taint manager: deleting due to NoExecute taint",
}


class TaintEviction(controller_base.StoreController[store_types.Key]):
    """Controller that evicts the Pods of one store."""

    def __init__(self, writer: object_writer.ObjectWriter) -> None:
        super().__init__("taint eviction", writer)
        self._deleter = deletion.Deleter(writer)
        self._tainted: dict[str, meta.JsonObject] = {}
        self._timers: dict[store_types.Key, tuple[float, asyncio.TimerHandle]] = {}

    def start(self) -> None:
        """Read the existing nodes, then follow changes."""
        for stored in self._store.select(_NODES):
            self._note_node(stored.key.name, stored.decode())
        self._follow()
        self._start_worker()

    async def stop(self) -> None:
        """Stop the controller. The next start finds the remaining work."""
        for _, timer in self._timers.values():
            timer.cancel()
        await super().stop()

    def _on_changes(self, changes: Sequence[store_types.StoreChange]) -> None:
        for change in changes:
            gone = change.action == store_types.Action.DELETED
            if change.key.resource == _NODES:
                self._note_node(change.key.name, {} if gone else change.decode())
            # Changes of Pods cost nothing while no node is tainted.
            elif change.key.resource == _PODS and (self._tainted or change.key in self._timers):
                if gone:
                    self._forget(change.key)
                else:
                    self._enqueue(change.key)

    def _note_node(self, name: str, node: meta.JsonObject) -> None:
        taints = (node.get("spec") or {}).get("taints") or ()
        if any(taint.get("effect") == node_fit.NO_EXECUTE for taint in taints):
            self._tainted[name] = node
        elif self._tainted.pop(name, None) is None:
            return
        for stored in self._store.select(_PODS):
            self._enqueue(stored.key)

    def _forget(self, key: store_types.Key) -> None:
        _, timer = self._timers.pop(key, (0.0, None))
        if timer is not None:
            timer.cancel()

    async def _reconcile(self, key: store_types.Key) -> None:
        stored = self._store.get(key)
        pod = stored.decode() if stored is not None else {}
        node = self._tainted.get((pod.get("spec") or {}).get("nodeName") or "")
        leaving = (pod.get("metadata") or {}).get("deletionTimestamp")
        stays_s = None if node is None or leaving else node_fit.tolerated_s(node, pod)
        if stays_s is None:
            self._forget(key)
            return
        loop = asyncio.get_running_loop()
        # A change of the Pod or the node must not start the time again.
        began = self._timers[key][0] if key in self._timers else loop.time()
        left_s = began + stays_s - loop.time()
        self._forget(key)
        if left_s > 0:
            self._timers[key] = (began, loop.call_later(left_s, self._enqueue, key))
            return
        await self._evict(key, pod)

    async def _evict(self, key: store_types.Key, pod: meta.JsonObject) -> None:
        # The uid protects a new Pod of this name.
        asked = deletion.DeleteOptions(uid=pod["metadata"]["uid"])
        if await disrupt(self._writer, self._deleter, key, _CONDITION, asked):
            node = pod["spec"]["nodeName"]
            facts = {"pod_namespace": key.namespace, "pod": key.name, "node": node}
            log.info("pod evicted for a taint of its node", extra=facts)


async def disrupt(
    writer: object_writer.ObjectWriter,
    deleter: deletion.Deleter,
    key: store_types.Key,
    condition: meta.JsonObject,
    asked: deletion.DeleteOptions,
) -> bool:
    """Set a condition of a Pod with the reason for its deletion, then delete the Pod.

    Return False when the Pod is gone or has changed meanwhile. With a grace period of 0, no kubelet
    will report the end of the Pod, so a Pod that has not finished is marked Failed first; a
    finished Pod is deleted without the condition.
    """
    target = write_types.target_of(api_resources.PODS, key.namespace, key.name)
    now = writer.now()

    def disrupted(found: meta.JsonObject) -> meta.JsonObject:
        status = dict(found.get("status") or {})
        if asked.grace_s == 0:
            if status.get("phase") in ("Succeeded", "Failed"):
                return found
            status["phase"] = "Failed"
        others = [c for c in status.get("conditions") or () if c["type"] != condition["type"]]
        status["conditions"] = [*others, {**condition, "lastTransitionTime": now}]
        return {**found, "status": status}

    try:
        await writer.change_internally(
            target, disrupted, write_types.WriteContext(), subresource="status"
        )
        await deleter.delete(target, asked)
    except statuses.StatusError as error:
        if error.code not in (404, 409):
            raise
        return False
    return True
