"""Checks the blobs of a node in the background, at the rate that the pond allows.

Used by `agent`, which is notified of damaged blobs, because runs that use them need new copies.
"""

import asyncio
import logging
import threading
from collections.abc import Callable

from kilnwork.data import local_blobs
from kilnwork.data.pond import scrubbing, store
from kilnwork.kit import clock

log = logging.getLogger(__name__)

_LOOK_S = 60.0
"""Maximum seconds between two checks whether a pass is due, since the wall clock may be set
meanwhile.
"""

_SOON_S = 1.0
"""Seconds until the work continues after a pass, or after it was interrupted by another rate."""


class _Stopped(Exception):
    """The check was interrupted, because the rate has changed or the agent stops."""


class ScrubWork:
    """Checks all blobs of the store, again and again.

    `damaged` is called in the event loop for each damaged blob.
    """

    def __init__(
        self, kept: store.PondStore, *, time: clock.Clock, damaged: Callable[[], None]
    ) -> None:
        self._scrubber = scrubbing.Scrubber(kept.blobs, time=time)
        self._clock = time
        self._damaged = damaged
        self._rate = 0
        self._stop = threading.Event()
        self._due = 0.0

    @property
    def checked(self) -> int:
        """Return the number of bytes checked since the start."""
        return self._scrubber.checked

    def use(self, rate: int) -> None:
        """Set the rate of the checks, in bytes per second; 0: no checks."""
        self._rate = rate

    async def run(self) -> None:
        """Check blobs until cancelled; a cancellation waits until the thread has ended."""
        while True:
            wait_s = _LOOK_S
            try:
                wait_s = await asyncio.to_thread(self._scrubber.wait_s)
                if self._rate and not wait_s:
                    await self._pass()
            except OSError as error:
                log.warning("blobs cannot be checked", extra={"why": str(error)})
            await asyncio.sleep(min(wait_s, _LOOK_S) or _SOON_S)

    async def _pass(self) -> None:
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(None, self._read_all, loop)
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            self._stop.set()
            await asyncio.wait({running})
            raise

    def _read_all(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = self._clock.monotonic()
        try:
            for digest in self._scrubber.run(self._pace):
                log.warning("blob is damaged", extra={"blob": local_blobs.text(digest)})
                loop.call_soon_threadsafe(self._damaged)
        except _Stopped:
            return
        log.info("all blobs were checked", extra={"bytes": self._scrubber.checked})

    def _pace(self, count: int) -> None:
        """Wait until `count` more bytes may be read at the current rate."""
        if not self._rate:
            raise _Stopped
        now = self._clock.monotonic()
        self._due = max(self._due, now) + count / self._rate
        if self._stop.wait(max(0.0, self._due - now)):
            raise _Stopped
