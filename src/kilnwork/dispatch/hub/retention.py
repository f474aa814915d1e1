"""How long what is over is kept: old tasks are forgotten with their output, a few at a time.

Used by the hub. A task may go when every run of it ended `keep_s` ago, its Task object is gone (or
it never had one), no child of it is unfinished, and its parent has gone before: a tree goes from
its root. Everything else stays, however old. Ages are those of a clock that cannot be set
(`kit.retention_clock`). Then blobs are collected that nothing refers to any more.
"""

import asyncio
import itertools
import logging
from pathlib import Path

from kilnwork.dispatch import errors
from kilnwork.dispatch.hub import attempt_logs, blob_collection, commits
from kilnwork.dispatch.machine import inputs
from kilnwork.kit import ids, retention_clock

log = logging.getLogger(__name__)

KEEP_S = 7 * 86_400.0
"""Long enough to look on Monday at what ran on Friday, short enough for a small disk."""

BATCH = 500
"""Rows looked at in one go: some milliseconds of the event loop."""

PAUSE_S = 1.0
"""Between two batches, so that work that is under way hardly notices."""

ROUND_S = 600.0
"""Between two looks at everything that is old enough."""

_SAMPLES_A_ROUND = round(ROUND_S / retention_clock.SAMPLE_S)


class Retention:
    """Forgets, until cancelled."""

    def __init__(
        self,
        core: commits.Core,
        logs: attempt_logs.AttemptLogs,
        *,
        blobs: Path | None,
        keep_s: float = KEEP_S,
        clock_file: Path | None = None,
    ) -> None:
        self._core = core
        self._logs = logs
        self._blobs = blobs
        self._collector: blob_collection.Collector | None = None
        self._keep_s = keep_s
        self._ages = retention_clock.RetentionClock(clock_file, core.clock)

    async def run(self) -> None:
        """Look at all that is old, batch by batch, again and again."""
        rounds = itertools.count(1)
        await self.save_time()
        while True:
            await asyncio.sleep(retention_clock.SAMPLE_S)
            if self._ages.sample():
                await self.save_time()
            if next(rounds) % _SAMPLES_A_ROUND:
                continue
            try:
                await self.forget_all(pause_s=PAUSE_S)
                await self.collect()
            except errors.HubStopped:
                return
            except Exception:
                log.exception("old tasks were not forgotten")

    async def save_time(self) -> None:
        """Write the clock of ages down; the next dispatcher goes on with it."""
        try:
            await asyncio.to_thread(self._ages.save)
        except OSError as error:
            log.warning("retention clock was not saved", extra={"error": str(error)})

    async def collect(self) -> None:
        """One look at all blobs; those that were seen unused before go."""
        if self._blobs is None:
            return
        if self._collector is None:
            referenced = self._core.reader.referenced
            self._collector = blob_collection.Collector(
                self._blobs, referenced, clock=self._core.clock
            )
        await asyncio.to_thread(self._collector.collect)

    async def forget_all(self, *, pause_s: float = 0.0) -> None:
        """One look at all that is old."""
        row = await self._forget_some(above=0)
        while row:
            await asyncio.sleep(pause_s)
            row = await self._forget_some(above=row)

    async def _forget_some(self, *, above: int) -> int:
        """Look at one batch of rows; the row to go on above, 0 when there are no more."""
        before = self._ages.old_before(self._keep_s)
        rows = self._core.reader.old_runs(before=before, above=above, limit=BATCH)
        found = tuple(dict.fromkeys(task for _, task, forgettable in rows if forgettable))
        if found:
            # Output first: after a crash in between no output is left behind.
            await asyncio.to_thread(self._delete_logs, found)
            self._core.apply(inputs.Forget(found))
            await self._core.flush()
            log.info("old tasks forgotten", extra={"tasks": len(found)})
        return rows[-1][0] if len(rows) == BATCH else 0

    def _delete_logs(self, tasks: tuple[ids.TaskId, ...]) -> None:
        for task in tasks:
            self._logs.delete(task)
