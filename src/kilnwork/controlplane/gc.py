"""Garbage collection: objects go when their owners are gone; kube events go after an hour.

Follows the store inside the server and deletes through the same door as HTTP clients. Rules of
k8s.io/kubernetes/pkg/controller/garbagecollector: an owner is who has the uid of the reference, in
the namespace of the dependent or cluster-wide; a dependent lives as long as one of its owners does.
Not for contents of namespaces (`apiserver.namespaces`), and not for processes (the node).
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

from kilnwork.api import meta, resource
from kilnwork.controlplane import objects, work
from kilnwork.controlplane.apiserver import crud, deletion, statuses
from kilnwork.kit import clock as clocks
from kilnwork.kit import coroutines

log = logging.getLogger(__name__)

EVENT_TTL_S = 3600
"""How long a kube event is kept after it was last seen, as `--event-ttl` of the real server."""

_SWEEP_EVERY_S = 60.0
_REMEMBERED = 500
"""Owners that have gone with their kind: nobody else could tell then that they are not there."""


class Collector:
    """The garbage collector of one store."""

    def __init__(self, writer: crud.Writer, deleter: deletion.Deleter) -> None:
        self._writer = writer
        self._deleter = deleter
        self._store = writer.store
        self._kinds = writer.kinds
        self._uids: dict[str, objects.Key] = {}
        self._owned: dict[str, set[objects.Key]] = {}
        self._references: dict[objects.Key, tuple[meta.OwnerReference, ...]] = {}
        self._waiting_owners: set[str] = set()
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._work: work.Work[objects.Key] = work.Work("garbage collector", self._look)
        self._crew = coroutines.Crew("kube event sweeper")
        self._unfollow: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Read what there is, then follow."""
        for served in self._kinds.kept():
            for stored in self._store.select(served.resource.qualified):
                self._note(stored.key, stored.metadata())
        for key in tuple(self._references):
            self._work.add(key)
        self._unfollow = self._store.follow(self._on_changes)
        self._work.start()
        self._crew.start("sweep", self._sweep())

    async def stop(self) -> None:
        """Stop; the next start finds what is left to do."""
        self._unfollow()
        await self._work.stop()
        await self._crew.stop()

    def owned_by(self, uid: str) -> frozenset[objects.Key]:
        """The dependents of an owner."""
        return frozenset(self._owned.get(uid, ()))

    def _on_changes(self, changes: Sequence[objects.Change]) -> None:
        for change in changes:
            found = change.metadata()
            if change.action == objects.Action.DELETED:
                self._forget(change.key, found)
            else:
                self._note(change.key, found)

    def _note(self, key: objects.Key, found: meta.ObjectMeta) -> None:
        self._uids[found.uid] = key
        references = found.owner_references
        before = self._references.get(key, ())
        if references != before:
            self._index(key, before, references)
        if any(self._is_no_owner(key.namespace, reference) for reference in references):
            self._work.add(key)
        if found.deletion_timestamp and _is_held(found):
            if found.uid not in self._waiting_owners:
                self._waiting_owners.add(found.uid)
                for dependent in self.owned_by(found.uid):
                    self._work.add(dependent)
            self._work.add(key)

    def _forget(self, key: objects.Key, found: meta.ObjectMeta) -> None:
        self._uids.pop(found.uid, None)
        self._waiting_owners.discard(found.uid)
        if found.uid in self._owned:
            self._gone[found.uid] = None
            if len(self._gone) > _REMEMBERED:
                self._gone.popitem(last=False)
        for dependent in self._owned.get(found.uid, ()):
            self._work.add(dependent)
        references = self._references.get(key, ())
        self._index(key, references, ())
        for reference in references:
            owner = self._uids.get(reference.uid)
            if owner is not None and reference.uid in self._waiting_owners:
                self._work.add(owner)

    def _index(
        self,
        key: objects.Key,
        before: tuple[meta.OwnerReference, ...],
        after: tuple[meta.OwnerReference, ...],
    ) -> None:
        for reference in before:
            dependents = self._owned.get(reference.uid)
            if dependents is not None:
                dependents.discard(key)
                if not dependents:
                    del self._owned[reference.uid]
        for reference in after:
            self._owned.setdefault(reference.uid, set()).add(key)
        if after:
            self._references[key] = after
        else:
            self._references.pop(key, None)

    async def _look(self, key: objects.Key) -> None:
        stored, place = self._store.get(key), self._place(key)
        if stored is None or place is None:
            return
        found = stored.metadata()
        try:
            if found.deletion_timestamp:
                await self._look_at_deleted_owner(place, found)
            elif found.owner_references:
                await self._look_at_dependent(place, found)
        except statuses.StatusError as error:
            if error.code == 404:
                return
            if error.code == 409:
                self._work.add(key)
                return
            raise

    def _place(self, key: objects.Key) -> crud.Where | None:
        """Of an object; None when its kind is served no more."""
        served = self._kinds.stored(key.resource)
        return None if served is None else crud.Where(served, key.namespace, key.name)

    async def _look_at_dependent(self, place: crud.Where, found: meta.ObjectMeta) -> None:
        living, waiting, gone = self._sorted(place, found)
        if living and (waiting or gone):
            await self._drop_references(place, {r.uid for r in (*waiting, *gone)})
        elif not living and (waiting or gone):
            held = waiting and self._owned.get(found.uid)
            await self._deleter.delete(
                place,
                deletion.DeleteOptions(
                    uid=found.uid,
                    resource_version=found.resource_version,
                    propagation="Foreground" if held else _kept_propagation(found),
                ),
            )
            log.debug("dependent deleted", extra={"kind": place.kind.kind, "object": place.name})

    def _sorted(
        self, place: crud.Where, found: meta.ObjectMeta
    ) -> tuple[list[meta.OwnerReference], list[meta.OwnerReference], list[meta.OwnerReference]]:
        """Owner references by what became of the owner: living, waiting for us to go, gone."""
        living, waiting, gone = [], [], []
        for reference in found.owner_references:
            if not self._exists(place.namespace, reference):
                gone.append(reference)
            elif reference.uid in self._waiting_owners and reference.block_owner_deletion:
                waiting.append(reference)
            else:
                living.append(reference)
        return living, waiting, gone

    def _is_no_owner(self, namespace: str, reference: meta.OwnerReference) -> bool:
        return reference.uid in self._waiting_owners or not self._exists(namespace, reference)

    def _exists(self, namespace: str, reference: meta.OwnerReference) -> bool:
        if reference.uid in self._gone:
            return False
        kind = self._kinds.kind(reference.api_version, reference.kind)
        if kind is None:
            return True  # nobody here can tell
        owner = self._uids.get(reference.uid)
        if (
            owner is None
            or owner.resource != kind.resource.qualified
            or owner.name != reference.name
        ):
            return False
        return owner.namespace in ("", namespace)

    async def _look_at_deleted_owner(self, place: crud.Where, found: meta.ObjectMeta) -> None:
        if deletion.ORPHAN in found.finalizers:
            for key in self.owned_by(found.uid):
                dependent = self._place(key)
                if dependent is not None:
                    await self._drop_references(dependent, {found.uid})
            await self._drop_finalizer(place, deletion.ORPHAN)
        elif deletion.FOREGROUND in found.finalizers:
            blocked = any(True for _ in self._blocking(found.uid))
            if not blocked or self._waits_for_itself(found.uid):
                await self._drop_finalizer(place, deletion.FOREGROUND)

    def _waits_for_itself(self, uid: str) -> bool:
        """True when owners being deleted block each other in a circle: one must go first."""
        blocks: dict[str, set[str]] = {}
        for one in self._waiting_owners & self._uids.keys():
            for reference in self._references.get(self._uids[one], ()):
                if reference.block_owner_deletion:
                    blocks.setdefault(reference.uid, set()).add(one)
        seen, front = set[str](), {uid}
        while front:
            front = set().union(*(blocks.get(one, ()) for one in front)) - seen
            seen |= front
        return uid in seen

    def _blocking(self, uid: str) -> Iterator[objects.Key]:
        for key in self._owned.get(uid, ()):
            references = self._references.get(key, ())
            if any(r.uid == uid and r.block_owner_deletion for r in references):
                yield key

    async def _drop_references(self, place: crud.Where, uids: set[str]) -> None:
        def without(obj: meta.JsonObject) -> meta.JsonObject:
            references = obj["metadata"].get("ownerReferences") or ()
            kept = [r for r in references if r["uid"] not in uids]
            return {**obj, "metadata": {**obj["metadata"], "ownerReferences": kept}}

        await self._writer.change_here(place, without, crud.Options())

    async def _drop_finalizer(self, place: crud.Where, name: str) -> None:
        def without(obj: meta.JsonObject) -> meta.JsonObject:
            finalizers = obj["metadata"].get("finalizers") or ()
            kept = [f for f in finalizers if f != name]
            return {**obj, "metadata": {**obj["metadata"], "finalizers": kept}}

        await self._writer.change_here(place, without, crud.Options())

    async def _sweep(self) -> None:
        while True:
            await self.sweep_events()
            await asyncio.sleep(_SWEEP_EVERY_S)

    async def sweep_events(self) -> None:
        """Delete kube events that nobody has seen for an hour."""
        oldest = self._writer.clock.wall() - EVENT_TTL_S
        over = [
            crud.where(resource.EVENTS, s.key.namespace, s.key.name)
            for s in self._store.select(resource.EVENTS.qualified)
            if _last_seen(s.decode()) < oldest
        ]
        await self._deleter.delete_all(over, deletion.DeleteOptions())


def _is_held(found: meta.ObjectMeta) -> bool:
    return deletion.ORPHAN in found.finalizers or deletion.FOREGROUND in found.finalizers


def _kept_propagation(found: meta.ObjectMeta) -> str:
    """What its own finalizers say; without any, Background."""
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
