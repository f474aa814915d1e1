"""A cache of the objects of one kind, by key and by owner; reconcilers read from it.

Filled by a `reflector`, or by code that knows the objects without a request. It sends no requests,
and belongs to the thread of one event loop. Its objects are shared: readers must not change them.
"""

import builtins
from typing import Generic, TypeVar

from kilnwork.kube import objects

T = TypeVar("T")


class Cache(Generic[T]):
    """A map from keys to objects, and from the uid of an owner to the objects that it owns."""

    def __init__(self) -> None:
        self._objects: dict[objects.Key, T] = {}
        self._owned: dict[str, dict[objects.Key, None]] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: objects.Key) -> bool:
        return key in self._objects

    def get(self, key: objects.Key) -> T | None:
        """Return the object with this key, or None."""
        return self._objects.get(key)

    def keys(self) -> builtins.list[objects.Key]:
        """Return a list of the keys of all objects."""
        return builtins.list(self._objects)

    def list(self) -> builtins.list[T]:
        """Return all objects, in no particular order."""
        return builtins.list(self._objects.values())

    def owned_by(self, uid: str) -> builtins.list[T]:
        """Return the objects that name `uid` among their owners."""
        return [self._objects[key] for key in self._owned.get(uid, ())]

    def put(self, obj: T) -> T | None:
        """Store an object and return the one that it replaces, or None."""
        key = objects.key(obj)
        # Removed first: the old object may have other owners.
        old = self.remove(key)
        self._objects[key] = obj
        for uid in objects.owner_uids(obj):
            self._owned.setdefault(uid, {})[key] = None
        return old

    def remove(self, key: objects.Key) -> T | None:
        """Remove the object with this key and return it, or None if there was no such object."""
        old = self._objects.pop(key, None)
        if old is None:
            return None
        for uid in objects.owner_uids(old):
            owned = self._owned.get(uid)
            if owned is not None:
                owned.pop(key, None)
                if not owned:
                    del self._owned[uid]
        return old
