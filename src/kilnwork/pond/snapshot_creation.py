"""Pins: each makes a snapshot of a source on this node, and stores its manifest at the manager.

Used by `agent`, which starts a `PinWork` for each pin that is ordered from this node.
"""

import asyncio
import functools
import logging
from concurrent import futures

from kilnwork.api import pond_messages
from kilnwork.data import errors
from kilnwork.data.pond import blob_fetch, source_pinning
from kilnwork.kit import clock
from kilnwork.kube import errors as kube_errors
from kilnwork.pond import deliveries

log = logging.getLogger(__name__)


class PinWork:
    """The work for one pin.

    `threads`: the pool for listing the source and waiting for it.
    """

    def __init__(
        self,
        ordered: pond_messages.PinOrder,
        place: deliveries.Place,
        *,
        threads: futures.ThreadPoolExecutor,
        time: clock.Clock,
    ) -> None:
        self.ordered = ordered
        self._place = place
        self._threads = threads
        self._clock = time
        self._over = False
        self._progress = blob_fetch.Progress(lambda: self._over)
        self._digest = ""
        self._trouble: pond_messages.PondTrouble | None = None

    async def run(self) -> None:
        """Make the pin, with retries, until the manager has the manifest or the pin has failed for
        good.
        """
        failures = 0
        try:
            while True:
                try:
                    self._digest = await self._pin()
                except blob_fetch.Stopped:
                    return
                except (errors.PondError, kube_errors.KubeError) as error:
                    failures += 1
                    self._fail(error)
                    if isinstance(error, deliveries.LASTING):
                        return
                    wait_s = deliveries.RETRY.delay_s(failures, entropy=self._place.entropy)
                    await asyncio.sleep(wait_s)
                else:
                    self._trouble = None
                    self._place.changed()
                    return
        finally:
            self._over = True

    def report(self) -> pond_messages.PinReport:
        """Return the progress of the pin."""
        return pond_messages.PinReport(
            id=self.ordered.id,
            digest=self._digest,
            bytes_done=self._progress.received,
            trouble=self._trouble,
        )

    async def _pin(self) -> str:
        fetcher = self._place.fetcher
        work = functools.partial(
            source_pinning.pin,
            self._place.store,
            fetcher.selected(self.ordered.source),
            run=functools.partial(fetcher.read_several, self.ordered.source.name),
            progress=self._progress,
            time=self._clock,
        )
        loop = asyncio.get_running_loop()
        pinned = await loop.run_in_executor(self._threads, work)
        made = pinned.manifest
        await self._place.link.put_manifest(made.encoded, made.digest)
        facts = {"source": self.ordered.source.name, "digest": made.digest, "bytes": made.size}
        log.info("snapshot pinned", extra={**facts, "read": pinned.received})
        return made.digest

    def _fail(self, error: Exception) -> None:
        now = deliveries.trouble(error)
        if now != self._trouble:
            facts = {"source": self.ordered.source.name, "why": now.message}
            log.warning("source cannot be pinned", extra=facts)
        self._trouble = now
        self._place.changed()
