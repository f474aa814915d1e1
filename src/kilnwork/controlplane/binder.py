"""Minimal scheduler: binds each Pod to the first Ready node that it fits on.

It reads the changes of the store directly, not over HTTP. `node_fit` decides what fits. There are
no preferences, no spreading and no preemption: with one local node there is nothing to choose. If
no node fits, it writes the reason into the Pod's status.
"""

import decimal
from collections.abc import Sequence
from typing import Any

import msgspec

from kilnwork.api import api_resources, meta, node_fit
from kilnwork.controlplane import controller_base, store_types
from kilnwork.controlplane.apiserver import (
    object_writer,
    posted_subresources,
    statuses,
    write_types,
)

_PODS, _NODES = api_resources.PODS.qualified, api_resources.NODES.qualified


class Binder(controller_base.StoreController[store_types.Key]):
    """Controller that binds the Pods of one store to nodes."""

    def __init__(self, writer: object_writer.ObjectWriter) -> None:
        super().__init__("binder", writer)
        self._unbound: dict[store_types.Key, None] = {}
        self._bound: dict[store_types.Key, tuple[str, node_fit.Amounts]] = {}

    def start(self) -> None:
        """Read the existing Pods, then follow changes."""
        for stored in self._store.select(_PODS):
            self._note(stored.key, stored.raw)
        self._follow()
        self._start_worker()

    def _on_changes(self, changes: Sequence[store_types.StoreChange]) -> None:
        for change in changes:
            if change.key.resource == _PODS:
                if change.action == store_types.Action.DELETED:
                    self._unbound.pop(change.key, None)
                    self._release(change.key)
                else:
                    self._note(change.key, change.raw)
            elif change.key.resource == _NODES:
                self._enqueue_unbound()

    def _enqueue_unbound(self) -> None:
        for key in self._unbound:
            self._enqueue(key)

    def _note(self, key: store_types.Key, raw: bytes) -> None:
        pod = _decode(raw)
        if pod.spec.node_name and pod.status.phase not in _FINISHED_PHASES:
            # The requests of a bound Pod cannot change: there is no resize.
            if key not in self._bound:
                asked = node_fit.requests(msgspec.to_builtins(pod.spec))
                self._bound[key] = (pod.spec.node_name, asked)
        else:
            self._release(key)
        if not _is_unbound(pod):
            self._unbound.pop(key, None)
        else:
            self._unbound[key] = None
            self._enqueue(key)

    def _release(self, key: store_types.Key) -> None:
        """Stop counting the resources of a Pod and reconsider the unbound Pods, which may fit
        now.
        """
        if self._bound.pop(key, None) is not None:
            self._enqueue_unbound()

    def _used(self, node: str) -> node_fit.Amounts:
        there = [amounts for where, amounts in self._bound.values() if where == node]
        return {**node_fit.total(there), "pods": decimal.Decimal(len(there))}

    async def _reconcile(self, key: store_types.Key) -> None:
        stored = self._store.get(key)
        if stored is None or not _is_unbound(_decode(stored.raw)):
            return
        pod = stored.decode()
        target = write_types.target_of(api_resources.PODS, key.namespace, key.name)
        gates = [str(gate.get("name")) for gate in pod["spec"].get("schedulingGates") or ()]
        nodes = [s.decode() for s in self._store.select(_NODES)]
        try:
            if gates:
                await self._report_unbound(target, "SchedulingGated", _GATED)
                return
            misfits = {}
            for node in nodes:
                name = node["metadata"]["name"]
                misfits[name] = node_fit.find_misfit(node, pod, self._used(name))
            fitting_nodes = [name for name, why in misfits.items() if not why]
            if not fitting_nodes:
                await self._report_unbound(
                    target, "Unschedulable", _unavailable_message(list(misfits.values()))
                )
                return
            named = {"name": target.name, "uid": pod["metadata"]["uid"]}
            body = {"metadata": named, "target": {"name": fitting_nodes[0]}}
            await posted_subresources.bind(self._writer, target, body, write_types.WriteContext())
        except statuses.StatusError as error:
            # The Pod is gone or has changed; a change has queued it again.
            if error.code not in (404, 409):
                raise
            return
        if (bound := self._store.get(key)) is not None:
            self._note(key, bound.raw)  # the next one must see the room that it takes

    async def _report_unbound(
        self, target: write_types.WriteTarget, reason: str, message: str
    ) -> None:
        """Set the PodScheduled condition of a Pod to False with a reason, unless it already says
        so.
        """
        now = self._writer.now()

        def explained(pod: meta.JsonObject) -> meta.JsonObject:
            status = pod.get("status") or {}
            conditions = list(status.get("conditions") or ())
            before = next((c for c in conditions if c["type"] == "PodScheduled"), None)
            if before is not None and (before.get("reason"), before.get("message")) == (
                reason,
                message,
            ):
                return pod
            others = [c for c in conditions if c is not before]
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "reason": reason,
                "message": message,
                "lastTransitionTime": now,
            }
            return {**pod, "status": {**status, "conditions": [*others, condition]}}

        await self._writer.change_internally(
            target, explained, write_types.WriteContext(), subresource="status"
        )


_FINISHED_PHASES = ("Succeeded", "Failed")
_GATED = "Scheduling is blocked due to non-empty scheduling gates"


def _unavailable_message(misfits: list[str]) -> str:
    """Return the message of kube-scheduler for a Pod that fits on no node.

    The message gives each reason with the number of nodes to which it applies.
    """
    reasons = ", ".join(f"{misfits.count(m)} {m}" for m in dict.fromkeys(misfits))
    return f"0/{len(misfits)} nodes are available" + (f": {reasons}." if reasons else ".")


class _Resources(msgspec.Struct, frozen=True):
    requests: dict[str, Any] | None = None
    limits: dict[str, Any] | None = None


class _Container(msgspec.Struct, frozen=True, rename="camel"):
    resources: _Resources = _Resources()
    restart_policy: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] | None = None
    overhead: dict[str, Any] | None = None


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    deletion_timestamp: str = ""


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""


class _Pod(msgspec.Struct, frozen=True):
    """The fields of a Pod that decide whether it is bound and what it requests.

    Decoded at every change of a Pod, hence only these fields.
    """

    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


_decode = msgspec.json.Decoder(_Pod).decode


def _is_unbound(pod: _Pod) -> bool:
    return (
        not pod.spec.node_name
        and pod.spec.scheduler_name == "default-scheduler"
        and not pod.metadata.deletion_timestamp
    )
