"""Objects of one kind in memory, by key and by owner; what reconcilers read.

Filled by a `reflector`, or by hand in tests. Knows nothing of servers, and is for one event loop's
thread. What it holds is shared: readers must not change it.
"""

import builtins
from typing import Generic, TypeVar

from kilnwork.kube import objects

T = TypeVar("T")


class Cache(Generic[T]):
    """Key → object, and the objects of each owner by the owner's uid."""

    def __init__(self) -> None:
        self._objects: dict[objects.Key, T] = {}
        self._owned: dict[str, dict[objects.Key, None]] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: objects.Key) -> bool:
        return key in self._objects

    def get(self, key: objects.Key) -> T | None:
        """The object of this key, as last heard of."""
        return self._objects.get(key)

    def keys(self) -> builtins.list[objects.Key]:
        """All keys, as they are now."""
        return builtins.list(self._objects)

    def list(self) -> builtins.list[T]:
        """All objects, in no order."""
        return builtins.list(self._objects.values())

    def owned_by(self, uid: str) -> builtins.list[T]:
        """Objects that name `uid` among their owners."""
        return [self._objects[key] for key in self._owned.get(uid, ())]

    def put(self, obj: T) -> T | None:
        """Store `obj`; gives what it replaces."""
        key = objects.key(obj)
        old = self.remove(key)
        self._objects[key] = obj
        for uid in objects.owner_uids(obj):
            self._owned.setdefault(uid, {})[key] = None
        return old

    def remove(self, key: objects.Key) -> T | None:
        """Forget an object; gives what was known of it."""
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
