"""Thread pools of the agent, one per source, so that a source that hangs blocks no other.

Used by `fetcher` for files and by `agent` for pins. A lane, the pool of one source, is created when
first needed; there are as many as the DataPond has sources, and two or three for other work.
"""

import threading
from concurrent import futures

PEERS = "peers/"
"""The lane of work without a source. Names of sources have no slash."""


class Lanes:
    """The thread pools of the agent by lane; may be used from several threads.

    `size`: the number of threads of each pool.
    """

    def __init__(self, prefix: str, size: int) -> None:
        self._prefix = prefix
        self._size = size
        self._pools: dict[str, futures.ThreadPoolExecutor] = {}
        self._lock = threading.Lock()

    def pool(self, lane: str) -> futures.ThreadPoolExecutor:
        """Return the thread pool of a lane; do not keep it, since `resize` replaces the pools."""
        with self._lock:
            found = self._pools.get(lane)
            if found is None:
                name = f"{self._prefix}-{lane}"
                found = self._pools[lane] = futures.ThreadPoolExecutor(self._size, name)
            return found

    def resize(self, size: int) -> None:
        """Set the number of threads per lane; running work continues."""
        with self._lock:
            if size == self._size:
                return
            old, self._pools, self._size = self._pools, {}, size
        for pool in old.values():
            pool.shutdown(wait=False)

    def close(self) -> None:
        """Wait until running work has ended, and start no more."""
        for pool in self._pools.values():
            pool.shutdown(wait=True, cancel_futures=True)
