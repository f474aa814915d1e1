"""Objects of one kind in memory, by key and by index; what reconcilers read.

Filled by a `reflector`, or by hand in tests. Knows nothing of servers, and is for one event loop's
thread. What it holds is shared: readers must not change it.
"""

import builtins
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

from kilnwork.kube import objects

T = TypeVar("T")

IndexOf = Callable[[T], Iterable[str]]
"""The values under which an index finds an object."""

_NAMESPACE = "namespace"
_OWNER = "owner uid"


class Cache(Generic[T]):
    """Key → object, with indexes by namespace, by owner's uid, and by what `indexes` names."""

    def __init__(self, *, indexes: Mapping[str, IndexOf[T]] | None = None) -> None:
        self._objects: dict[objects.Key, T] = {}
        self._index_of: dict[str, IndexOf[T]] = {
            **(indexes or {}),
            _NAMESPACE: lambda obj: (objects.key(obj)[0],),
            _OWNER: objects.owner_uids,
        }
        self._indexes: dict[str, dict[str, dict[objects.Key, None]]] = {
            name: {} for name in self._index_of
        }

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

    def list(self, namespace: str | None = None) -> builtins.list[T]:
        """All objects, or those of one namespace; in no order."""
        if namespace is None:
            return builtins.list(self._objects.values())
        return self.by_index(_NAMESPACE, namespace)

    def owned_by(self, uid: str) -> builtins.list[T]:
        """Objects that name `uid` among their owners."""
        return self.by_index(_OWNER, uid)

    def by_index(self, name: str, value: str) -> builtins.list[T]:
        """Objects that the named index finds under `value`; KeyError for an unknown index."""
        return [self._objects[key] for key in self._indexes[name].get(value, ())]

    def put(self, obj: T) -> T | None:
        """Store `obj`; gives what it replaces."""
        key = objects.key(obj)
        old = self.remove(key)
        self._objects[key] = obj
        for name, index_of in self._index_of.items():
            index = self._indexes[name]
            for value in index_of(obj):
                index.setdefault(value, {})[key] = None
        return old

    def remove(self, key: objects.Key) -> T | None:
        """Forget an object; gives what was known of it."""
        old = self._objects.pop(key, None)
        if old is None:
            return None
        for name, index_of in self._index_of.items():
            index = self._indexes[name]
            for value in index_of(old):
                found = index.get(value)
                if found is not None:
                    found.pop(key, None)
                    if not found:
                        del index[value]
        return old
