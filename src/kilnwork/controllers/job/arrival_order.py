"""In which order the engine of jobs gets the Jobs of a namespace: as they came.

Used by `reconciler`, which looks at many Jobs at once. A Job whose JobConfig is copied into it is
looked at twice, and the requests in between overtake each other: without a place in line a later
one would get the room, the lock or the place in the queue of an earlier one. Bookkeeping of keys.
"""

from kilnwork.kube import objects


class ArrivalOrder:
    """A line for each namespace. Who has no place yet is at the end of it.

    A Job keeps its place from the first pass that has anything to do for its start until the engine
    has it; one for which that fails leaves, so that nobody waits for it.
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
        """Return whether others come first; then it has a place, and `leave` names it in time."""
        line = self._lines.get(key[0])
        if line is None or next(iter(line)) == key:
            return False
        self.enter(key)
        self._waiting.add(key)
        return True

    def leave(self, key: objects.Key) -> objects.Key | None:
        """Give its place up, if it has one; return who has waited for that and is first now."""
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
