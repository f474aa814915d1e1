"""Polling: waits for a condition on a server, asking at growing intervals.

Used by the handles of Jobs and of SyncSet runs. Not for tasks, whose end the link reports.
"""

import threading
from collections.abc import Callable

from kilnwork.kit import backoff, clock, ids

_BETWEEN = backoff.Backoff(base_s=0.05, max_s=2.0, factor=1.5, jitter=0.2)


def wait_until(done: Callable[[], bool], timeout_s: float | None, *, time: clock.Clock) -> bool:
    """Wait until `done()` returns True, for at most `timeout_s` seconds; return whether it did.

    None: without limit. `done` is called at least once.
    """
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
