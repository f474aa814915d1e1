"""Graph of owners and dependents: the owner references of all objects, by the uid of the owner.

The garbage collector (`gc`) passes every change to it and gets back the objects to reconsider. Like
the graph of k8s.io/kubernetes/pkg/controller/garbagecollector, it identifies an owner by its uid
alone; the collector checks whether a reference really names that object.
"""

from collections import OrderedDict
from collections.abc import Iterable

from kilnwork.api import meta
from kilnwork.controlplane import store_types
from kilnwork.controlplane.apiserver import deletion

MAX_ABSENT = 500
"""Maximum number of deleted owners to remember (same value as in kube-controller-manager).

If the kind of an owner is deleted too, only this memory shows that the owner no longer exists.
"""

_References = tuple[meta.OwnerReference, ...]


class OwnerGraph:
    """Graph of owners and dependents.

    `note` and `forget` return the objects to reconsider, in the order in which to do so.
    """

    def __init__(self) -> None:
        self._dependents: dict[str, dict[store_types.Key, None]] = {}
        self._references: dict[store_types.Key, _References] = {}
        self._foreground: dict[str, store_types.Key] = {}
        self._was_foreground: dict[str, store_types.Key] = {}
        self._absent: OrderedDict[str, store_types.Key] = OrderedDict()

    def owned(self) -> tuple[store_types.Key, ...]:
        return tuple(self._references)

    def dependents(self, uid: str) -> tuple[store_types.Key, ...]:
        """Return the keys of all objects with an owner reference to `uid`."""
        return tuple(self._dependents.get(uid, ()))

    def blocks(self, uid: str) -> bool:
        """Return whether a dependent keeps the owner with this uid in foreground deletion."""
        return any(
            reference.uid == uid and reference.block_owner_deletion
            for key in self._dependents.get(uid, ())
            for reference in self._references[key]
        )

    def has_foreground_dependent(self, uid: str) -> bool:
        """Return whether an owner has a dependent that is, or once was, in foreground deletion
        itself.

        "Once was" as in kube-controller-manager: another finalizer may hold the dependent now. The
        caller then sees a cycle where there is none, and the owner's owners do not wait for it.
        """
        dependents = self._dependents.get(uid, {})
        return any(key in dependents for key in self._was_foreground.values())

    def is_absent(self, namespace: str, reference: meta.OwnerReference) -> bool:
        """Return whether the graph saw the deletion of the owner that a reference names.

        `namespace`: that of the dependent with the reference.
        """
        owner = self._absent.get(reference.uid)
        if owner is None or owner.name != reference.name:
            return False
        group = reference.api_version.rpartition("/")[0]
        # Whatever the version: all versions of a group name the same object.
        same_group = owner.resource.partition(".")[2] == group
        return same_group and owner.namespace in ("", namespace)

    def note(self, key: store_types.Key, found: meta.ObjectMeta) -> Iterable[store_types.Key]:
        """Record a new or changed object. Return the objects to reconsider."""
        before, after = self._references.get(key, ()), found.owner_references
        affected: list[store_types.Key] = []
        if before != after:
            affected += self._unblocked(before, after)
            self._index(key, before, after)
            if after:
                affected.append(key)
        deleting = bool(found.deletion_timestamp)
        if not (deleting and deletion.FOREGROUND in found.finalizers):
            self._foreground.pop(found.uid, None)
        elif found.uid not in self._foreground:
            self._foreground[found.uid] = self._was_foreground[found.uid] = key
            # Dependents first: those that do not block must be deleted before the owner, which
            # another finalizer may hold, no longer waits for dependents.
            affected += self.dependents(found.uid)
            affected.append(key)
        if deleting and deletion.ORPHAN in found.finalizers:
            affected.append(key)
        return affected

    def forget(self, key: store_types.Key, found: meta.ObjectMeta) -> Iterable[store_types.Key]:
        """Record that an object was deleted. Return the objects to reconsider."""
        self._foreground.pop(found.uid, None)
        self._was_foreground.pop(found.uid, None)
        dependents = self.dependents(found.uid)
        # Only an owner that something refers to is asked for later.
        if dependents:
            self._absent[found.uid] = key
            if len(self._absent) > MAX_ABSENT:
                self._absent.popitem(last=False)
        references = self._references.get(key, ())
        self._index(key, references, ())
        return [*dependents, *self._waiting_owners(references)]

    def _unblocked(self, before: _References, after: _References) -> Iterable[store_types.Key]:
        """Return the owners in foreground deletion that a changed dependent no longer blocks.

        `before` and `after` are the owner references of the dependent.
        """
        blocking = {r.uid for r in after if r.block_owner_deletion}
        return self._waiting_owners(
            r for r in before if r.block_owner_deletion and r.uid not in blocking
        )

    def _waiting_owners(self, references: Iterable[meta.OwnerReference]) -> list[store_types.Key]:
        return [self._foreground[r.uid] for r in references if r.uid in self._foreground]

    def _index(self, key: store_types.Key, before: _References, after: _References) -> None:
        for reference in before:
            dependents = self._dependents.get(reference.uid)
            if dependents is not None:
                dependents.pop(key, None)
                if not dependents:
                    del self._dependents[reference.uid]
        for reference in after:
            self._dependents.setdefault(reference.uid, {})[key] = None
        if after:
            self._references[key] = after
        else:
            self._references.pop(key, None)
