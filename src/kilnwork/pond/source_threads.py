"""Threads of the agent, some for each source: waiting for one that sends nothing holds up
nothing else.

Used by `fetcher` for files and by `agent` for pins. A lane is made when it is first needed; there
are as many as the DataPond has sources, and two or three of our own.
"""

import threading
from concurrent import futures

PEERS = "peers/"
"""The lane of what has no source. Names of sources have no slash."""


class Lanes:
    """See the module. `size`: threads of each lane. Safe for several threads."""

    def __init__(self, prefix: str, size: int) -> None:
        self._prefix = prefix
        self._size = size
        self._pools: dict[str, futures.ThreadPoolExecutor] = {}
        self._lock = threading.Lock()

    def pool(self, lane: str) -> futures.ThreadPoolExecutor:
        """Return the threads of a lane; ask again each time, they may be others by then."""
        with self._lock:
            found = self._pools.get(lane)
            if found is None:
                name = f"{self._prefix}-{lane}"
                found = self._pools[lane] = futures.ThreadPoolExecutor(self._size, name)
            return found

    def resize(self, size: int) -> None:
        """Have so many threads in each from now on; what was begun goes on."""
        with self._lock:
            if size == self._size:
                return
            old, self._pools, self._size = self._pools, {}, size
        for pool in old.values():
            pool.shutdown(wait=False)

    def close(self) -> None:
        """Wait for what runs, and begin nothing more."""
        for pool in self._pools.values():
            pool.shutdown(wait=True, cancel_futures=True)
