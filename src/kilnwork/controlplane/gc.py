"""Garbage collector of the embedded Kubernetes.

It deletes dependents whose owners no longer exist, and kube events after an hour. It follows the
store inside the server and deletes through `deletion.Deleter`, as HTTP clients do. Rules of
k8s.io/kubernetes/pkg/controller/garbagecollector: the owner is the object with the uid of the
reference, in the namespace of the dependent or cluster-scoped; a dependent lives as long as one of
its owners does. The contents of namespaces are deleted by `apiserver.namespaces`, processes by the
node.
"""

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from kilnwork.api import api_resources, meta
from kilnwork.controlplane import controller_base, owner_graph, store_types
from kilnwork.controlplane.apiserver import deletion, object_writer, statuses, write_types
from kilnwork.kit import clock as clocks

log = logging.getLogger(__name__)

EVENT_TTL_S = 3600
"""How long a kube event is kept after it was last seen, as `--event-ttl` of kube-apiserver."""

KINDS_CHECK_S = 1.0
"""How often to check whether more kinds are served, so that unresolved owners can be found."""

_SWEEP_EVERY_S = 60.0


class _Owners(msgspec.Struct):
    """Owner references of one object, grouped by the state of the owner."""

    solid: list[meta.OwnerReference] = msgspec.field(default_factory=list)
    """The owner exists and does not wait for its dependents; it may be about to be deleted."""
    waiting: list[meta.OwnerReference] = msgspec.field(default_factory=list)
    """The owner is in foreground deletion, whether or not the reference blocks it."""
    dangling: list[meta.OwnerReference] = msgspec.field(default_factory=list)
    """The owner does not exist."""


class GarbageCollector(controller_base.StoreController[store_types.Key]):
    """Controller that deletes the dependents and old kube events of one store."""

    def __init__(self, writer: object_writer.ObjectWriter, deleter: deletion.Deleter) -> None:
        super().__init__("garbage collector", writer)
        self._deleter = deleter
        self._kinds = writer.kinds
        self._graph = owner_graph.OwnerGraph()
        self._unresolved: set[store_types.Key] = set()

    def start(self) -> None:
        """Build the owner graph from the stored objects, then follow changes."""
        for served in self._kinds.stored_kinds():
            for stored in self._store.select(served.resource.qualified):
                self._note(stored.key, stored.metadata())
        # No await since the first object was read: no change is missed.
        self._follow()
        self._start_worker()
        self._background.start("sweep", self._sweep())
        self._background.start("kinds", self._watch_kinds())

    def _on_changes(self, changes: Sequence[store_types.StoreChange]) -> None:
        for change in changes:
            if change.action != store_types.Action.DELETED:
                self._note(change.key, change.metadata())
                continue
            self._unresolved.discard(change.key)
            for key in self._graph.forget(change.key, change.metadata()):
                self._enqueue(key)

    def _note(self, key: store_types.Key, found: meta.ObjectMeta) -> None:
        if key.resource == api_resources.EVENTS.qualified:
            return  # they expire; the real collector ignores their owners too
        for affected in self._graph.note(key, found):
            self._enqueue(affected)

    async def _watch_kinds(self) -> None:
        """Reconsider dependents with an unresolved owner whenever the served kinds change.

        The owner may be of a kind that was not served before.
        """
        revision = self._kinds.revision
        while True:
            await asyncio.sleep(KINDS_CHECK_S)
            if self._kinds.revision != revision:
                revision = self._kinds.revision
                for key in tuple(self._unresolved):
                    self._enqueue(key)

    async def _reconcile(self, key: store_types.Key) -> None:
        stored, target = self._store.get(key), self._target_of(key)
        if stored is None or target is None:
            return
        found = stored.metadata()
        try:
            if not found.deletion_timestamp:
                await self._collect_dependent(target, found)
            elif deletion.ORPHAN in found.finalizers:
                await self._orphan_dependents(target, found)
            elif deletion.FOREGROUND in found.finalizers:
                await self._release_waiting_owner(target, found)
        except statuses.StatusError as error:
            # The object has changed: decide again, from its new state.
            if error.code == 409:
                self._enqueue(key)
            elif error.code != 404:
                raise

    def _target_of(self, key: store_types.Key) -> write_types.WriteTarget | None:
        """Return the write target of an object, or None when its kind is no longer served."""
        served = self._kinds.find_stored(key.resource)
        return None if served is None else write_types.WriteTarget(served, key.namespace, key.name)

    async def _collect_dependent(
        self, target: write_types.WriteTarget, found: meta.ObjectMeta
    ) -> None:
        by_state = self._classify(target, found.owner_references)
        if by_state is None or not (by_state.waiting or by_state.dangling):
            return
        # It lives on; as in the real collector, a waiting owner must not stay blocked by it.
        if by_state.solid:
            gone = {r.uid for r in (*by_state.waiting, *by_state.dangling)}
            await self._drop_references(target, gone)
            return
        propagation = _propagation_of(found)
        if by_state.waiting and self._graph.dependents(found.uid):
            # Owners that wait for each other in a cycle would never be deleted.
            if _is_blocking(found) and self._graph.has_foreground_dependent(found.uid):
                await self._unblock_owners(target)
                self._enqueue(target.key)
                return
            # The owner waits, so that the dependent must wait for its own dependents.
            propagation = "Foreground"
        # Preconditions: the decision was made from this state, and an owner may be added meanwhile.
        await self._deleter.delete(
            target,
            deletion.DeleteOptions(
                uid=found.uid, resource_version=found.resource_version, propagation=propagation
            ),
        )
        log.debug("dependent deleted", extra={"kind": target.kind.kind, "object": target.name})

    def _classify(
        self, target: write_types.WriteTarget, references: Sequence[meta.OwnerReference]
    ) -> _Owners | None:
        """Group the owner references of an object by the state of the owner.

        None when an owner cannot be resolved. A dependent is left alone while the kind of one of
        its owners is not served, and always when it is cluster-scoped and names an owner in a
        namespace.
        """
        by_state = _Owners()
        self._unresolved.discard(target.key)
        for reference in references:
            if self._graph.is_absent(target.namespace, reference):
                by_state.dangling.append(reference)
                continue
            kind = self._kinds.find_kind(reference.api_version, reference.kind)
            if kind is None:
                # Looked at again when the served kinds change.
                self._unresolved.add(target.key)
                return None
            namespaced = kind.resource.namespaced
            if namespaced and not target.namespace:
                return None
            namespace = target.namespace if namespaced else ""
            owner = self._store.get(
                store_types.Key(kind.resource.qualified, namespace, reference.name)
            )
            found = None if owner is None else owner.metadata()
            # An object with this name and another uid was created after the owner was deleted.
            if found is None or found.uid != reference.uid:
                by_state.dangling.append(reference)
            elif found.deletion_timestamp and deletion.FOREGROUND in found.finalizers:
                by_state.waiting.append(reference)
            else:
                by_state.solid.append(reference)
        return by_state

    async def _orphan_dependents(
        self, target: write_types.WriteTarget, found: meta.ObjectMeta
    ) -> None:
        for key in self._graph.dependents(found.uid):
            dependent = self._target_of(key)
            if dependent is None:
                continue
            try:
                await self._drop_references(dependent, {found.uid})
            except statuses.StatusError as error:
                if error.code != 404:
                    raise
        # Last: after a crash before this, the finalizer makes the work start again.
        await self._drop_finalizer(target, deletion.ORPHAN)

    async def _release_waiting_owner(
        self, target: write_types.WriteTarget, found: meta.ObjectMeta
    ) -> None:
        """Remove the foregroundDeletion finalizer of an owner that no dependent blocks any more.

        The dependents that do not block the owner are deleted first. Does nothing while a dependent
        blocks the owner.
        """
        # The deletion of the last dependent that blocks queues the owner again.
        if self._graph.blocks(found.uid):
            return
        for key in self._graph.dependents(found.uid):
            stored, dependent = self._store.get(key), self._target_of(key)
            if stored is None or dependent is None or stored.metadata().deletion_timestamp:
                continue
            try:
                await self._collect_dependent(dependent, stored.metadata())
            except statuses.StatusError as error:
                if error.code != 404:
                    self._enqueue(key)
        await self._drop_finalizer(target, deletion.FOREGROUND)

    async def _drop_references(self, target: write_types.WriteTarget, uids: set[str]) -> None:
        def without(obj: meta.JsonObject) -> meta.JsonObject:
            references = obj["metadata"].get("ownerReferences") or ()
            kept = [r for r in references if r["uid"] not in uids]
            return {**obj, "metadata": {**obj["metadata"], "ownerReferences": kept}}

        await self._writer.change_internally(target, without, write_types.WriteContext())

    async def _unblock_owners(self, target: write_types.WriteTarget) -> None:
        def unblocked(obj: meta.JsonObject) -> meta.JsonObject:
            references = [
                {**r, "blockOwnerDeletion": False} if r.get("blockOwnerDeletion") else r
                for r in obj["metadata"].get("ownerReferences") or ()
            ]
            return {**obj, "metadata": {**obj["metadata"], "ownerReferences": references}}

        await self._writer.change_internally(target, unblocked, write_types.WriteContext())

    async def _drop_finalizer(self, target: write_types.WriteTarget, name: str) -> None:
        def without(obj: meta.JsonObject) -> meta.JsonObject:
            finalizers = obj["metadata"].get("finalizers") or ()
            kept = [f for f in finalizers if f != name]
            return {**obj, "metadata": {**obj["metadata"], "finalizers": kept}}

        await self._writer.change_internally(target, without, write_types.WriteContext())

    async def _sweep(self) -> None:
        while True:
            await self.sweep_events()
            await asyncio.sleep(_SWEEP_EVERY_S)

    async def sweep_events(self) -> None:
        """Delete kube events that have not recurred for an hour."""
        oldest = self._writer.clock.wall() - EVENT_TTL_S
        over = [
            write_types.target_of(api_resources.EVENTS, s.key.namespace, s.key.name)
            for s in self._store.select(api_resources.EVENTS.qualified)
            if _last_seen(s.decode()) < oldest
        ]
        await self._deleter.delete_all(over, deletion.DeleteOptions())


def _is_blocking(found: meta.ObjectMeta) -> bool:
    return any(reference.block_owner_deletion for reference in found.owner_references)


def _propagation_of(found: meta.ObjectMeta) -> str:
    """Return the propagation policy that the finalizers of an object ask for.

    It is Background without such a finalizer.
    """
    if deletion.ORPHAN in found.finalizers:
        return "Orphan"
    return "Foreground" if deletion.FOREGROUND in found.finalizers else "Background"


def _last_seen(event: meta.JsonObject) -> float:
    series = event.get("series") or {}
    times = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    )
    found = []
    for text in times:
        try:
            found.append(clocks.parse_rfc3339(text) if text else 0.0)
        except (ValueError, TypeError):
            continue
    return max(found, default=0.0)
