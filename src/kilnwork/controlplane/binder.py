"""The scheduler, as small as it can be: binds Pods to a Ready node whose labels fit.

Follows the store inside the server. No resources, affinity, taints or spread yet: with one local
node there is nothing to choose, only a reason to give when nothing fits.
"""

from collections.abc import Callable, Sequence

import msgspec

from kilnwork.api import meta, resource
from kilnwork.controlplane import objects, work
from kilnwork.controlplane.apiserver import crud, statuses, subresources

_PODS, _NODES = resource.PODS.qualified, resource.NODES.qualified


class Binder:
    """Binds the Pods of one store."""

    def __init__(self, writer: crud.Writer) -> None:
        self._writer = writer
        self._store = writer.store
        self._unbound: dict[objects.Key, None] = {}
        self._work: work.Work[objects.Key] = work.Work("binder", self._look)
        self._unfollow: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Look at what there is, then follow."""
        for stored in self._store.select(_PODS):
            self._note(stored.key, stored.raw)
        self._unfollow = self._store.follow(self._on_changes)
        self._work.start()

    async def stop(self) -> None:
        """Stop; the next start finds what is left to do."""
        self._unfollow()
        await self._work.stop()

    def _on_changes(self, changes: Sequence[objects.Change]) -> None:
        for change in changes:
            if change.key.resource == _PODS:
                if change.action == objects.Action.DELETED:
                    self._unbound.pop(change.key, None)
                else:
                    self._note(change.key, change.raw)
            elif change.key.resource == _NODES:
                for key in self._unbound:
                    self._work.add(key)

    def _note(self, key: objects.Key, raw: bytes) -> None:
        if not _is_unbound(raw):
            self._unbound.pop(key, None)
        elif key not in self._unbound:
            self._unbound[key] = None
            self._work.add(key)

    async def _look(self, key: objects.Key) -> None:
        stored = self._store.get(key)
        if stored is None or not _is_unbound(stored.raw):
            return
        pod = stored.decode()
        place = crud.where(resource.PODS, key.namespace, key.name)
        nodes = [s.decode() for s in self._store.select(_NODES)]
        fitting = [node["metadata"]["name"] for node in nodes if not _misfit(node, pod)]
        try:
            if fitting:
                named = {"name": place.name, "uid": pod["metadata"]["uid"]}
                body = {"metadata": named, "target": {"name": fitting[0]}}
                await subresources.bind(self._writer, place, body, crud.Options())
            else:
                await self._say_why(place, [_misfit(node, pod) for node in nodes])
        except statuses.StatusError as error:
            if error.code not in (404, 409):
                raise

    async def _say_why(self, place: crud.Where, misfits: list[str]) -> None:
        reasons = ", ".join(f"{misfits.count(m)} {m}" for m in dict.fromkeys(misfits))
        message = f"0/{len(misfits)} nodes are available" + (f": {reasons}." if reasons else ".")
        now = self._writer.now()

        def explained(pod: meta.JsonObject) -> meta.JsonObject:
            status = pod.get("status") or {}
            conditions = list(status.get("conditions") or ())
            before = next((c for c in conditions if c["type"] == "PodScheduled"), None)
            if before is not None and before.get("message") == message:
                return pod
            others = [c for c in conditions if c is not before]
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": message,
                "lastTransitionTime": now,
            }
            return {**pod, "status": {**status, "conditions": [*others, condition]}}

        await self._writer.change_here(place, explained, crud.Options(), subresource="status")


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    scheduler_name: str = "default-scheduler"


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    deletion_timestamp: str = ""


class _Pod(msgspec.Struct, frozen=True):
    """What says whether a Pod is to be bound; read of every change of every Pod."""

    metadata: _Metadata
    spec: _Spec = _Spec()


_decode = msgspec.json.Decoder(_Pod).decode


def _is_unbound(raw: bytes) -> bool:
    pod = _decode(raw)
    return (
        not pod.spec.node_name
        and pod.spec.scheduler_name == "default-scheduler"
        and not pod.metadata.deletion_timestamp
    )


def _misfit(node: meta.JsonObject, pod: meta.JsonObject) -> str:
    """Why the Pod cannot go there; empty when it can."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    if spec.get("unschedulable"):
        return "node(s) were unschedulable"
    ready = any(
        c.get("type") == "Ready" and c.get("status") == "True"
        for c in status.get("conditions") or ()
    )
    if not ready:
        return "node(s) were not ready"
    labels = node["metadata"].get("labels") or {}
    wanted = (pod.get("spec") or {}).get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return "node(s) didn't match Pod's node affinity/selector"
    return ""
