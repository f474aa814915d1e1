"""The order in which the engine gets the Jobs of a namespace: the order of their arrival.

Used by `reconciler`, which processes many Jobs concurrently. A Job that copies its JobConfig needs
two passes, and the requests in between may overtake each other: without an order a later Job could
get the capacity, the lock or the queue position of an earlier one. This module handles only keys.
"""

from kilnwork.kube import objects


class ArrivalOrder:
    """A queue of Job keys for each namespace; a key that is not in its queue counts as the last.

    A Job keeps its position from the first pass that prepares its start until it is passed to the
    engine. A Job whose preparation fails is removed, so that no other Job waits for it.
    """

    def __init__(self) -> None:
        self._lines: dict[str, dict[objects.Key, None]] = {}
        self._waiting: set[objects.Key] = set()

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def enter(self, key: objects.Key) -> None:
        """Add a Job's key to the queue of its namespace, unless it is there already."""
        self._lines.setdefault(key[0], {}).setdefault(key)

    def must_wait(self, key: objects.Key) -> bool:
        """Return whether other Jobs of the namespace come before this one.

        If so, the key is added to the queue, and `leave` returns it when it is first.
        """
        line = self._lines.get(key[0])
        if line is None or next(iter(line)) == key:
            return False
        self.enter(key)
        self._waiting.add(key)
        return True

    def leave(self, key: objects.Key) -> objects.Key | None:
        """Remove a Job's key from the queue; return the key that has waited and is now first."""
        line = self._lines.get(key[0])
        if line is None or key not in line:
            return None
        del line[key]
        self._waiting.discard(key)
        if not line:
            del self._lines[key[0]]
            return None
        first = next(iter(line))
        if first not in self._waiting:
            return None  # its JobConfig is being copied: another pass follows that
        self._waiting.discard(first)
        return first
