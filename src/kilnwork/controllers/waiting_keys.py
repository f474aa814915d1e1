"""An index of waiting keys: from an awaited object to the keys to reconcile when it appears or
changes.

Used by reconcilers. Each pass over a key sets its awaited objects again, so that nothing becomes
stale.
"""

from collections.abc import Iterable

Key = tuple[str, str]
Awaited = tuple[str, str, str]
"""Kind, namespace and name of an awaited object."""


class WaitingKeys:
    """An index from awaited objects to the keys that wait for them."""

    def __init__(self) -> None:
        self._waiting: dict[Awaited, dict[Key, None]] = {}
        self._awaited: dict[Key, frozenset[Awaited]] = {}

    def set(self, key: Key, awaited: Iterable[Awaited]) -> None:
        """Set the objects that `key` waits for, replacing the previous ones."""
        wanted = frozenset(awaited)
        before = self._awaited.get(key, frozenset())
        if wanted == before:
            return
        for removed in before - wanted:
            self._waiting[removed].pop(key, None)
            if not self._waiting[removed]:
                del self._waiting[removed]
        for new in wanted - before:
            self._waiting.setdefault(new, {})[key] = None
        if wanted:
            self._awaited[key] = wanted
        else:
            self._awaited.pop(key, None)

    def waiting(self, kind: str, namespace: str, name: str) -> tuple[Key, ...]:
        """Return the keys that wait for an object, in the order in which they started to wait."""
        return tuple(self._waiting.get((kind, namespace, name), ()))

    def __len__(self) -> int:
        return len(self._awaited)
