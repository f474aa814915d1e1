"""Asking again and again whether something of a server is over, at a growing distance.

Used by the handles of Jobs and of runs of SyncSets. Not for tasks, which the link tells of.
"""

import threading
from collections.abc import Callable

from kilnwork.kit import backoff, clock, ids

_BETWEEN = backoff.Backoff(base_s=0.05, max_s=2.0, factor=1.5, jitter=0.2)


def wait_until(done: Callable[[], bool], timeout_s: float | None, *, time: clock.Clock) -> bool:
    """Wait until that is true, for `timeout_s` at most (None: as long as it takes); return whether
    it is. It is asked once at least."""
    until = None if timeout_s is None else time.monotonic() + timeout_s
    entropy, looks = ids.system_entropy(), 0
    while not done():
        looks += 1
        wait_s = _BETWEEN.delay_s(looks, entropy=entropy)
        if until is not None:
            left_s = until - time.monotonic()
            if left_s <= 0:
                return False
            wait_s = min(wait_s, left_s)
        threading.Event().wait(wait_s)
    return True
