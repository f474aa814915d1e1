"""Retention: forgets old finished tasks and their output, a few at a time.

Used by the hub. A task may be forgotten when all its runs ended long enough ago, its Task object is
deleted (or it never had one), no child of it is unfinished, no unfinished task takes its result,
and its parent was forgotten before: a tree goes from its root down. Every other task stays, however
old. When a limit on number or size is exceeded, the oldest such tasks are forgotten before their
age. Ages are measured by a clock that cannot be set (`kit.retention_clock`). Afterwards, blobs to
which nothing refers any more are collected.
"""

import asyncio
import contextlib
import itertools
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kilnwork.api import task as api_task
from kilnwork.dispatch import errors, model
from kilnwork.dispatch.hub import attempt_logs, blob_collection, commits, prune_selection
from kilnwork.dispatch.journal import task_rows
from kilnwork.dispatch.machine import inputs
from kilnwork.kit import ids, retention_clock

log = logging.getLogger(__name__)

KEEP_S = 7 * 86_400.0
"""Default seconds for which a finished task is kept: long enough to see on Monday what ran on
Friday, short enough for a small disk.
"""

MIN_AGE_S = 60.0
"""Seconds for which a task that has ended is never forgotten: jobs and drivers may be about to read
it.
"""

BATCH = 500
"""Number of rows that are checked at a time: some milliseconds of the event loop."""

PAUSE_S = 1.0
"""Seconds between two batches, so that other work hardly notices."""

ROUND_S = 600.0
"""Seconds between two rounds over everything that is old enough."""

_SAMPLES_A_ROUND = round(ROUND_S / retention_clock.SAMPLE_S)


class RetentionLimits(NamedTuple):
    """Limits on the age, number and size of the finished tasks that are kept.

    A task that exceeds any limit is forgotten, unless something still needs it (see the module).
    """

    keep_s: float = KEEP_S
    """Seconds for which a finished task is kept."""
    tasks: int | None = None
    """Maximum number of finished tasks; the newest are kept. None: no limit."""
    size_bytes: int | None = None
    """Maximum bytes of journal, output and blobs together. None: no limit."""


class Retention:
    """Forgets old tasks, their output and blobs, until cancelled."""

    def __init__(
        self,
        core: commits.Core,
        logs: attempt_logs.AttemptLogs,
        *,
        blobs: Path | None,
        limits: RetentionLimits,
        clock_file: Path | None = None,
    ) -> None:
        self._core = core
        self._logs = logs
        self._blobs = blobs
        self._collector = (
            None
            if blobs is None
            else blob_collection.Collector(blobs, self._referenced, clock=core.clock)
        )
        self._limits = limits
        self._ages = retention_clock.RetentionClock(clock_file, core.clock)

    async def run(self) -> None:
        """Forget old tasks batch by batch, forever."""
        rounds = itertools.count(1)
        await self.save_time()
        while True:
            await asyncio.sleep(retention_clock.SAMPLE_S)
            if self._ages.sample():
                await self.save_time()
            # In each round, since there may be room on the disk now.
            self._logs.mark()
            if self._collector is not None:
                self._collector.sample()
                if self._collector.is_due:
                    await self.collect_released()
            if next(rounds) % _SAMPLES_A_ROUND:
                continue
            try:
                await self.forget_all(pause_s=PAUSE_S)
                await self.collect()
            # The hub is being stopped; after the errors that are caught below, the next round may
            # succeed.
            except errors.HubStopped:
                return
            except Exception:
                log.exception("old tasks were not forgotten")

    async def save_time(self) -> None:
        """Save the time of the retention clock, from which the next dispatcher continues."""
        try:
            await asyncio.to_thread(self._ages.save)
        except OSError as error:
            log.warning("retention clock was not saved", extra={"error": str(error)})

    async def collect(self) -> None:
        """Remove all unused blobs."""
        if self._collector is not None:
            await asyncio.to_thread(self._collector.collect)

    async def collect_released(self) -> int:
        """Remove unused blobs of forgotten tasks; return how many bytes will be removed later."""
        if self._collector is None:
            return 0
        return await asyncio.to_thread(self._collector.collect_released)

    async def forget_all(self, *, pause_s: float = 0.0) -> None:
        """Forget, once, all tasks that are too old or exceed a limit."""
        asked = model.Pruning(older_s=self._limits.keep_s, keyed=True)
        await self.prune(asked, pause_s=pause_s)
        limits = self._limits
        if limits.tasks is not None:
            asked = model.Pruning(older_s=MIN_AGE_S, keep=limits.tasks, keyed=True)
            await self.prune(asked, pause_s=pause_s)
        if limits.size_bytes is not None:
            used = await asyncio.to_thread(self._used_bytes)
            excess = used - limits.size_bytes
            if excess > 0:
                asked = model.Pruning(older_s=MIN_AGE_S, free_bytes=excess, keyed=True)
                await self.prune(asked, pause_s=pause_s)

    async def prune(
        self, asked: model.Pruning, *, dry_run: bool = False, pause_s: float = 0.0
    ) -> model.Pruned:
        """Forget the finished tasks that `asked` selects, or only count them (`dry_run`)."""
        memory = self._core.machine.memory
        with memory.pins.collect(prune_selection.needed_by(memory.tasks.values())) as pinned:
            selection = prune_selection.PruneSelection(
                asked,
                over=self._count_over(asked.namespace),
                needed=pinned,
                unfinished=memory.tasks,
            )
            before = self._ages.old_before(max(asked.older_s, MIN_AGE_S))
            above = 0
            while not selection.enough:
                runs = self._core.reader.old_runs(before=before, above=above, limit=BATCH)
                printed = await asyncio.to_thread(self._logs.sizes, {run.task for run in runs})
                # The journal was read some time ago. Any task that has needed one of these since
                # has pinned it; from here to `retire` no other code runs.
                found = selection.take(runs, printed)
                if found and not dry_run:
                    await self.forget(found)
                    log.info("old tasks forgotten", extra={"tasks": len(found)})
                if len(runs) < BATCH:
                    break
                # By row, not by offset, because rows are deleted meanwhile.
                above = runs[-1].row
                await asyncio.sleep(pause_s)
        return selection.chosen

    async def forget(self, tasks: tuple[ids.TaskId, ...]) -> None:
        """Forget these tasks with their output; this is on disk when the method returns.

        The caller has checked that no other task needs them, and has not awaited anything since.
        """
        with self._core.machine.memory.pins.retire(tasks):
            # Output first: after a crash in between no output is left behind.
            self._logs.forget_tasks(tasks)
            await asyncio.to_thread(self._delete_logs, tasks)
            # Before the rows are deleted, which are the only record of the blobs.
            digests = await asyncio.to_thread(self._core.reader.blobs_of, tasks)
            self._core.apply(inputs.Forget(tasks))
            await self._core.flush()
        if self._collector is not None:
            # After the rows are deleted: until then the blobs are in use.
            self._collector.release(digests)

    def refusal(self, row: task_rows.TaskRow) -> str:
        """Return the reason for which a task cannot be forgotten now, or ""."""
        name = row.shown_name
        if row.finished is None:
            return f"task {name} is {row.state}, not over: cancel it first"
        if row.declared and not row.released:
            return f"task {name} is an object: delete that"
        memory = self._core.machine.memory
        parent = None if row.parent is None else memory.tasks.get(row.parent)
        # A new attempt of it would make this child again.
        if parent is not None:
            return f"the parent of task {name} is {parent.state} and may ask for it again"
        if row.task in prune_selection.needed_by(memory.tasks.values()):
            return f"a task that is not over takes the result of task {name}"
        for run in range(1, row.run + 1):
            states = self._core.reader.child_states(row.task, run)
            if any(not api_task.State(state).final for state, number in states if number):
                return f"a child of task {name} is not over"
        return ""

    def _count_over(self, namespace: str | None) -> int:
        counts = self._core.reader.counts(namespace)
        return sum(one.number for one in counts if one.state.final)

    def _referenced(self, digests: Sequence[bytes]) -> set[bytes]:
        return self._core.reader.referenced(digests)

    def _used_bytes(self) -> int:
        """Return the size of journal files, output and blobs. Blocks on the disk."""
        directories = [
            directory for directory in (self._logs.logs_dir, self._blobs) if directory is not None
        ]
        return self._core.store.used_bytes() + sum(map(_size_of, directories))

    def _delete_logs(self, tasks: tuple[ids.TaskId, ...]) -> None:
        for task in tasks:
            # A run that was submitted since then has its output in the same directory.
            if self._core.machine.task(task) is None:
                self._logs.delete(task)


def _size_of(directory: Path) -> int:
    """Return the size of all files below a directory."""
    found = 0
    for where, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):  # OSError: the file was deleted meanwhile
                found += os.stat(os.path.join(where, name)).st_size  # noqa: PTH116, PTH118 - many
    return found
