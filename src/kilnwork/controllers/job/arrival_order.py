"""The order in which the engine gets the Jobs of a namespace: that of their arrival.

Used by `reconciler`, which looks at many Jobs at once. A Job whose JobConfig is copied into it is
looked at twice, and the requests in between overtake each other: without an order a later Job would
get the room, the lock or the place in the queue of an earlier one. It handles keys only.
"""

from kilnwork.kube import objects


class ArrivalOrder:
    """A queue of keys for each namespace; a key without a place counts as the last.

    A Job keeps its place from the first pass that does anything for its start until the engine has
    it; a Job for which that fails leaves, so that no other waits for it.
    """

    def __init__(self) -> None:
        self._lines: dict[str, dict[objects.Key, None]] = {}
        self._waiting: set[objects.Key] = set()

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def enter(self, key: objects.Key) -> None:
        """Take a place, or keep the one that it has."""
        self._lines.setdefault(key[0], {}).setdefault(key)

    def must_wait(self, key: objects.Key) -> bool:
        """Return whether other Jobs come first. If so the key gets a place, and `leave` returns it
        when it is first."""
        line = self._lines.get(key[0])
        if line is None or next(iter(line)) == key:
            return False
        self.enter(key)
        self._waiting.add(key)
        return True

    def leave(self, key: objects.Key) -> objects.Key | None:
        """Leave the queue; return the key that has waited and is first now."""
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
            return None  # its JobConfig is being copied into it: it is looked at after that
        self._waiting.discard(first)
        return first
