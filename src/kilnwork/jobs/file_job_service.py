"""Service of file jobs for the server: creates, changes, lists and deletes file jobs.

There is one service per dispatcher, on the dispatcher's event loop; its tables are in the
dispatcher's journal. A coroutine method returns when its effect is on disk. Reading methods do not
block: they read memory, or rows of one index.
"""

import asyncio
import logging
import uuid as uuids
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from kilnwork.api import filejobs
from kilnwork.data.stores import port, store_urls
from kilnwork.jobs import (
    engine,
    errors,
    file_item_source,
    file_job_types,
    idempotency_key_filter,
    job_cleanup,
    live_job_state,
    old_database_import,
    part_listing,
    row_storage,
    rows,
    task_hub,
    transitions,
)
from kilnwork.kit import clock as clocks
from kilnwork.kit import coroutines, ids, retention_clock

log = logging.getLogger(__name__)

MAX_INLINE = 64 * 1024
"""Maximum size in bytes of an input that is kept in the journal until its job begins."""

MAX_VIEWS = 4096
"""Maximum number of cached views of jobs that are not in memory."""

MAX_AMBIGUOUS = 5
"""Maximum number of jobs listed in the error about an ambiguous short id."""

_NEWEST = 1 << 62
_KIND = file_item_source.FileItems.kind


@dataclass(frozen=True, slots=True)
class FileJobOptions:
    """Optional settings of the service of file jobs."""

    worker_url: str | None = None
    """URL under which workers open the store; None: the store's own."""
    opened: Callable[[str], port.Store] = store_urls.open_store
    """Opens a store by URL."""
    ttl_s: float | None = 7 * 86_400.0
    """How long finished jobs whose spec has no time to live are kept with their data; None:
    forever."""


DEFAULTS = FileJobOptions()


class FileJobs:
    """Service of the file jobs in a data directory.

    Call `load`, start the engine, then call `start`, in a running event loop. Files are below
    `data/files`. `moved_by`: the engine that advances the jobs, not started yet. Methods that take
    a job's id, UUID or name raise `SeveralJobs` if a short id is ambiguous. Methods that change a
    job raise `JobsStopped`.
    """

    def __init__(
        self,
        data: Path,
        hub: task_hub.TaskHub,
        moved_by: engine.Engine,
        *,
        clock: clocks.Clock,
        options: FileJobOptions = DEFAULTS,
    ) -> None:
        self.store: port.Store = options.opened((data / "files").absolute().as_uri())
        """Store of all files; those of a job are below `where(view)`."""
        self._tables, self._hub = row_storage.Tables(hub.select), hub
        self._clock, self._data, self.ttl_s = clock, data, options.ttl_s
        self._sources = file_item_source.FileSources(
            self.store,
            worker_url=options.worker_url,
            opened=options.opened,
            clock=clock,
            ttl_s=options.ttl_s,
        )
        self._engine = moved_by
        moved_by.register(_KIND, self._sources, self)
        self._views: OrderedDict[str, file_job_types.JobView] = OrderedDict()
        self._keys: dict[tuple[str, str, str], tuple[bytes, live_job_state.Job]] = {}
        self._used_keys = idempotency_key_filter.KeyFilter()
        self._background = coroutines.BackgroundWork("jobs-upkeep")
        self.ages = retention_clock.RetentionClock(data / "jobs.clock", clock)
        """Retention clock, for the age of jobs and uploads."""

    async def load(self, *, say: old_database_import.Say = lambda text: None) -> None:
        """Bring the journal's tables of jobs up to date, before the engine starts. The dispatcher
        must be running.

        `say` is called with a description of each slow operation. Raises `OldDatabaseUnreadable`,
        and `StoreRefused` if files cannot be stored.
        """
        await asyncio.to_thread(port.probe, self.store)
        await old_database_import.take_over(self._data / "jobs.db", self._hub, say=say)
        if self._tables.empty:
            found = await asyncio.to_thread(job_cleanup.rebuild, self._sources, ttl_s=self.ttl_s)
            await self._hub.write(found.statements())
        self._used_keys.fill(self._tables.list_keys())

    def start(self) -> None:
        """Start the retention of jobs. The engine must be running."""
        self.upkeep = job_cleanup.JobRetention(
            self,
            self._tables,
            self._sources,
            blobs=self._data / "blobs",
            clock=self._clock,
            ages=self.ages,
        )
        self._background.start("upkeep", self.upkeep.run())

    async def stop(self) -> None:
        """Stop the retention of jobs; stop the engine next."""
        await self._background.stop()
        if hasattr(self, "upkeep"):
            await self.upkeep.save_time()

    @property
    def trouble(self) -> str | None:
        """The reason why the service has stopped, or None if it is running.

        Errors in writing the journal are reported by the dispatcher.
        """
        return None if self._engine.stopped is None else str(self._engine.stopped)

    def new_id(self) -> file_job_types.JobId:
        """Return the id of a new job. Put a large input at `NAMESPACE/JobId.dashed/input` of the
        store before the job is created."""
        uuid = bytes(ids.new_task_id())
        month = _month(int(self._clock.wall()) // 3600)
        number = int.from_bytes(uuid[8:], "big") & (1 << 62) - 1
        return file_job_types.JobId(uuid, f"{month}-{number}")

    def find_by_key(
        self, namespace: str, key: file_job_types.IdempotencyKey
    ) -> file_job_types.JobView | None:
        """Return the job that was created with this idempotency key, or None. Raises `KeyUsed` if
        it was created by a different request."""
        name = (namespace, key.user, key.text)
        pending = self._keys.get(name)
        if pending is not None:
            fingerprint, job = pending
            found = job.view or rows.view(job)
        elif name not in self._used_keys or (row := self._tables.find_job("key", *name)) is None:
            return None
        else:
            fingerprint, found = row.fingerprint or b"", self._newest_view(row)
        if fingerprint != key.fingerprint:
            raise errors.KeyUsed(found.id, fingerprint)
        return found

    async def create(self, new: file_job_types.NewJob) -> tuple[file_job_types.JobView, bool]:
        """Create a job, and return its view and True. The job is on disk when this returns.

        If the idempotency key was used for the same request before, return the existing job and
        False. Raises `InvalidJob` (the message begins with the path of the field), `KeyUsed`,
        `JobsStopped`.
        """
        self._engine.check_running()
        file_item_source.check_spec(new.spec, new.manifest)
        if new.inline is not None and len(new.inline) != new.manifest.bytes:
            raise errors.InvalidJob(
                f"inline: {len(new.inline)} bytes, but the manifest has {new.manifest.bytes}"
            )
        if new.inline is not None and len(new.inline) > MAX_INLINE:
            raise errors.InvalidJob(
                f"inline: {len(new.inline)} bytes; more than {MAX_INLINE} belong into the store"
            )
        key = new.key
        if key is not None and (found := self.find_by_key(new.namespace, key)) is not None:
            pending = self._keys.get((new.namespace, key.user, key.text))
            if pending is not None:
                found = await self._engine.wait_stored(pending[1])
            return found, False
        self._check()
        job = self._new_job(new)
        if key is None:
            return await self._engine.wait_stored(job), True
        name = (new.namespace, key.user, key.text)
        self._keys[name] = (key.fingerprint, job)
        self._used_keys.add(name)
        try:
            return await self._engine.wait_stored(job), True
        finally:
            self._keys.pop(name, None)

    async def adopt(self, job: live_job_state.Job) -> None:
        """Add a job that is in the store but not in the journal, for example because the journal is
        an older backup."""
        job.row = self._engine.new_row()
        self._engine.add(job, None, None)
        await self._engine.wait_stored(job)

    def _check(self) -> None:
        """Raise `JobsStopped` at once if the journal cannot be written, so that callers do not wait
        for space on the disk.
        """
        self._engine.check_running()
        if self._hub.refused is not None:
            raise errors.JobsStopped(
                f"nothing can be written to the journal: {self._hub.refused}; ask "
                "again when the server's disk can be written to"
            )

    def _new_job(self, new: file_job_types.NewJob) -> live_job_state.Job:
        job = live_job_state.Job(
            new.id,
            row=self._engine.new_row(),
            namespace=new.namespace,
            spec=new.spec,
            source=self._sources.new(new.spec, new.manifest, source=new.source),
            created=self._clock.wall(),
        )
        job.user, job.fresh = new.user, True
        job.changed(job.created)
        self._engine.add(job, new.key, new.inline)
        return job

    def job(self, namespace: str, ref: str) -> file_job_types.JobView | None:
        """Return the job with this id (short or long) or UUID, or else the newest job of that name;
        None if there is no such job.

        Raises `SeveralJobs`.
        """
        live = self._engine.by_text.get(ref)
        if live is not None and live.source.kind != _KIND:
            return None
        found = self._views.get(ref) if live is None else live.view
        if found is None and (row := self._lookup_row(namespace, ref)) is not None:
            found = self._newest_view(row)
        if found is None or found.namespace != namespace or found.deleting:
            return None
        return found

    def jobs(
        self,
        namespace: str | None,
        *,
        wanted: file_job_types.JobQuery = file_job_types.ANY,
        limit: int = 100,
        below: str | None = None,
    ) -> tuple[list[file_job_types.JobView], str | None]:
        """Return a page of jobs, newest first, and the value of `below` for the next page, None
        after the last page.

        `namespace` None stands for all namespaces. Raises ValueError if `below` is not a number.
        """
        end = _NEWEST if below is None else int(below)
        every, space = ("", (namespace,)) if namespace is not None else ("_everywhere", ())
        if wanted.name is not None:
            found = self._tables.list_jobs(f"jobs_of_name{every}", *space, wanted.name, end, limit)
        elif wanted.phase is not None:
            asked = (*space, wanted.phase.value, end, limit)
            found = self._tables.list_jobs(f"jobs_in_phase{every}", *asked)
        else:
            found = self._tables.list_jobs(f"jobs{every}", *space, end, limit)
        following = str(found[-1].row) if len(found) == limit else None
        views = [self._newest_view(row) for row in found]
        if wanted.phase is not None:
            views = [view for view in views if view.phase is wanted.phase]
        return views, following

    def counts(self) -> list[tuple[str, str, int]]:
        """Return the number of jobs by namespace and phase, as triples."""
        return self._tables.count_phases()

    def manifest(self, namespace: str, job: str) -> filejobs.Manifest:
        """Return the manifest of a job's input. Raises `NoSuchJob`."""
        row = self._find_row(namespace, job)
        return self._open_listing(row).manifest

    def small_input(self, namespace: str, job: str) -> bytes | None:
        """Return the input of a job while it is only in the journal and not in the store, else
        None. Raises `NoSuchJob`.
        """
        return self._tables.find_inline_input(self._find_row(namespace, job).row)

    async def parts(
        self,
        namespace: str,
        job: str,
        *,
        after: int = 0,
        limit: int = 100,
        state: file_job_types.PartState | None = None,
    ) -> list[file_job_types.PartView]:
        """Return up to `limit` parts of a job with numbers above `after`, in order. Raises
        `NoSuchJob`, `StoreError`.
        """
        found = self._open_listing(self._find_row(namespace, job))
        return await found.parts(after=after, limit=limit, state=state)

    async def part(self, namespace: str, job: str, number: int) -> file_job_types.PartView | None:
        """Return a part by its number, or None if there is no such part. Raises as `parts`."""
        found = await self.parts(namespace, job, after=number - 1, limit=1)
        return found[0] if found and found[0].part.number == number else None

    async def commits(self, namespace: str, job: str) -> list[filejobs.Commit]:
        """Return the commit records of all ended parts of a job, in order.

        The files that the records name are in the job's directory. Raises as `parts`, and
        `ObjectMissing` if a part that succeeded has no record.
        """
        return await self._open_listing(self._find_row(namespace, job)).read_commits()

    async def cancel(
        self, namespace: str, job: str, *, message: str = ""
    ) -> file_job_types.JobView:
        """Cancel a job: no further part commits, committed parts stay. Does nothing if the job has
        ended or is ending. Raises `NoSuchJob`.
        """
        found = self._load(namespace, job)
        transitions.cancel(found, message, now=self._clock.wall())
        return await self._engine.wait_stored(found)

    async def pause(self, namespace: str, job: str) -> file_job_types.JobView:
        """Pause a job: no further parts start, running parts continue. Raises `NoSuchJob`,
        `NotNow`."""
        return await self.adjust(namespace, job, file_job_types.Adjustment(suspend=True))

    async def resume(self, namespace: str, job: str) -> file_job_types.JobView:
        """Resume a paused job. Raises `NoSuchJob`, `NotNow`."""
        return await self.adjust(namespace, job, file_job_types.Adjustment(suspend=False))

    async def adjust(
        self, namespace: str, job: str, change: file_job_types.Adjustment
    ) -> file_job_types.JobView:
        """Change settings of an existing job. Raises `NoSuchJob`, `NotNow`, `InvalidJob`."""
        found = self._load(namespace, job)
        try:
            transitions.adjust(found, change, now=self._clock.wall())
        finally:
            self._engine.wake(found)
        return await self._engine.wait_stored(found)

    async def redrive(self, namespace: str, job: str) -> file_job_types.JobView:
        """Begin a new run of a failed or cancelled job for the parts that have not succeeded; a
        paused job is resumed. Raises `NoSuchJob`, `NotNow`.
        """
        found = self._load(namespace, job)
        try:
            transitions.redrive(found, now=self._clock.wall())
        finally:
            self._engine.wake(found)
        return await self._engine.wait_stored(found)

    async def delete(self, namespace: str, job: str) -> None:
        """Delete a job. When this returns, no client can see the job any more. Raises `NoSuchJob`.

        Its tasks are stopped and its files deleted soon after that, or at the next start if the
        process crashes before.
        """
        found = self._load(namespace, job)
        transitions.delete(found, now=self._clock.wall())
        await self._engine.wait_stored(found)

    async def wait_for_change(
        self, namespace: str, job: str, *, version: int, timeout_s: float, over: bool = False
    ) -> file_job_types.JobView | None:
        """Wait until the version of a job is above `version`, and return the job's view, or None if
        the job is deleted.

        With `over`, wait until the job has ended. After `timeout_s`, return the current view.
        """
        view = self.job(namespace, job)
        if view is None or (view.phase.final if over else view.version > version):
            return view
        self._engine.check_running()
        await self._engine.waiters.wait_for_change(view.uuid, timeout_s, over=over)
        return self.job(namespace, job)

    def where(self, view: file_job_types.JobView) -> str:
        """Return the prefix of a job's objects in the store, with a slash at the end."""
        return f"{view.directory}/"

    def _newest_view(self, row: rows.JobRow) -> file_job_types.JobView:
        """Return the newest view of the job in a row: from memory if the job is there, else from
        the row.
        """
        live = self._engine.live.get(row.uuid)
        if live is not None and live.view is not None:
            return live.view
        seen = self._views.get(row.id)
        if seen is not None and seen.version == row.version:
            return seen
        view = rows.row_view(row, self._engine.sources[row.source])
        self._cache_view(view)
        return view

    def _cache_view(self, view: file_job_types.JobView) -> None:
        """Cache the view of a job that is not in memory, and so does not change."""
        self._views[view.id] = view
        if len(self._views) > MAX_VIEWS:
            self._views.popitem(last=False)

    def on_job_changed(self, job: live_job_state.Job) -> None:
        """Do nothing: the engine notifies the waiters (`engine.JobListener`)."""

    def on_job_released(self, job: live_job_state.Job) -> None:
        """Keep the view of a job that was dropped from memory (`engine.JobListener`)."""
        self._views.pop(job.id.text, None)
        if job.view is not None:
            self._cache_view(job.view)

    def _lookup_row(self, namespace: str, ref: str) -> rows.JobRow | None:
        found = self._tables.find_job("id", ref)
        if found is None and len(ref) == _UUID_LENGTH:
            try:
                found = self._tables.find_job("uuid", uuids.UUID(ref).bytes)
            except ValueError:
                found = None
            found = None if found is None or found.source != _KIND else found
        if found is None and (digits := filejobs.short_digits(ref)) is not None:
            found = self._by_short_id(namespace, digits)
        if found is None:
            found = self._tables.find_job("name", namespace, ref)
        return found

    def _by_short_id(self, namespace: str, digits: str) -> rows.JobRow | None:
        """Return the row of the job with a short id, looked up in each month since the oldest
        job.
        """
        oldest = self._tables.oldest_creation()
        if oldest is None:
            return None
        found: list[rows.JobRow] = []
        for month in _months(oldest, self._clock.wall()):
            first = f"{month}-{digits}"
            found += self._tables.list_between(
                namespace, first, f"{first}:", limit=MAX_AMBIGUOUS + 1
            )
        if len(found) > 1:
            named = ", ".join(row.id for row in found[:MAX_AMBIGUOUS])
            raise errors.SeveralJobs(f"f-{digits} could be several file jobs: {named}: write more")
        return found[0] if found else None

    def _find_row(self, namespace: str, ref: str) -> rows.JobRow:
        row = self._lookup_row(namespace, ref)
        if row is None or row.namespace != namespace or self._newest_view(row).deleting:
            raise errors.NoSuchJob(f"there is no job {ref!r} in namespace {namespace!r}")
        return row

    def _load(self, namespace: str, ref: str) -> live_job_state.Job:
        """Load a job that is to be changed into memory. The caller wakes the job after the
        change.
        """
        self._check()
        job = self._engine.load(self._find_row(namespace, ref))
        self._views.pop(job.id.text, None)
        return job

    def _open_listing(self, row: rows.JobRow) -> part_listing.PartListing:
        live = self._engine.live.get(row.uuid)
        return part_listing.PartListing(self._tables, self._sources, row, live)


@lru_cache(maxsize=1)
def _month(hours: int) -> str:
    """Return the month, in UTC, of a time in hours since the epoch."""
    return datetime.fromtimestamp(hours * 3600, UTC).strftime("%Y-%m")


def _months(first: float, last: float) -> list[str]:
    """Return the months between two times, in UTC, and one more month at each end, since clocks
    differ.
    """
    start = datetime.fromtimestamp(first, UTC)
    end = datetime.fromtimestamp(last, UTC)
    numbers = range(12 * start.year + start.month - 2, 12 * end.year + end.month + 1)
    return [f"{number // 12}-{number % 12 + 1:02}" for number in numbers]


_UUID_LENGTH = 36
