"""Pod garbage collector: deletes Pods whose Node object no longer exists.

Without it nothing would report the end of such Pods. It runs inside the server, like `gc`. Unlike
the Pod garbage collector of Kubernetes (k8s.io/kubernetes pkg/controller/podgc; KEP-3329 for the
condition), it deletes only orphaned Pods. A Pod with a finalizer stays, with phase Failed, for the
client that waits for its end.
"""

import asyncio
import logging

import msgspec

from kilnwork.api import api_resources
from kilnwork.controlplane import store_types, taint_eviction
from kilnwork.controlplane.apiserver import deletion, object_writer
from kilnwork.kit import coroutines

log = logging.getLogger(__name__)

QUARANTINE_S = 40.0
"""How long a node must be missing before its Pods are deleted: it may register again."""

CHECK_S = 20.0

_PODS, _NODES = api_resources.PODS.qualified, api_resources.NODES.qualified
_CONDITION = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "DeletionByPodGC",
    "message": "PodGC: node no longer exists",
}


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str | None = None


class _Pod(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


_pod = msgspec.json.Decoder(_Pod)


class PodCollector:
    """Controller that deletes the orphaned Pods of one store."""

    def __init__(
        self,
        writer: object_writer.ObjectWriter,
        deleter: deletion.Deleter,
        *,
        quarantine_s: float = QUARANTINE_S,
        check_s: float = CHECK_S,
    ) -> None:
        self._writer, self._deleter = writer, deleter
        self._quarantine_s, self._check_s = quarantine_s, check_s
        self._missing: dict[str, float] = {}
        """Node → when it was first seen missing, by the clock of the event loop."""
        self._background = coroutines.BackgroundWork("pod garbage collector")

    def start(self) -> None:
        """Start to look for orphaned Pods every `check_s` seconds."""
        self._background.start("sweep", self._run())

    async def stop(self) -> None:
        """Stop the sweeps. The quarantine of missing nodes begins again at the next start."""
        await self._background.stop()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._check_s)
            try:
                await self._sweep()
            except Exception:
                log.exception("look at Pods without a node failed, again soon")

    async def _sweep(self) -> None:
        nodes = {stored.key.name for stored in self._writer.store.select(_NODES)}
        orphans: dict[str, list[store_types.Key]] = {}
        for number, stored in enumerate(tuple(self._writer.store.select(_PODS))):
            if number % 500 == 499:
                await asyncio.sleep(0)  # thousands of Pods must not delay requests
            node = _pod.decode(stored.raw).spec.node_name
            if node and node not in nodes:
                orphans.setdefault(node, []).append(stored.key)
        now = asyncio.get_running_loop().time()
        # A node that is back is forgotten: if it disappears again, its time starts again.
        self._missing = {node: self._missing.get(node, now) for node in orphans}
        for node, since in self._missing.items():
            if now - since >= self._quarantine_s:
                for key in orphans[node]:
                    await self._collect(key, node)

    async def _collect(self, key: store_types.Key, node: str) -> None:
        store = self._writer.store
        found = store.get(key)
        # The node may have registered since the sweep began.
        if found is None or store.get(store_types.Key(_NODES, "", node)) is not None:
            return
        uid = found.metadata().uid
        # Grace 0 removes the object at once: no kubelet is left to confirm the end of the Pod.
        asked = deletion.DeleteOptions(uid=uid, grace_s=0)
        if await taint_eviction.disrupt(self._writer, self._deleter, key, _CONDITION, asked):
            facts = {"pod_namespace": key.namespace, "pod": key.name, "node": node}
            log.info("pod of a node that is gone ended", extra=facts)
