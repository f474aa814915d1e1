"""Retention of jobs: deletes jobs when their time to live has passed, and finds lost jobs in the
store again.

If an older backup of the journal was put in place, jobs in the store that the journal lacks are
added. Uploads from which no job was created are deleted by age, and so are files that killed
attempts have left in the directories of jobs. Ages are measured by a clock that cannot be set
(`kit.retention_clock`). Used by `file_job_service`.
"""

import asyncio
import logging
import uuid as uuids
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from kilnwork.api import filejobs
from kilnwork.data import blob_renewal, local_blobs, part_commits
from kilnwork.data import errors as data_errors
from kilnwork.data.stores import port, store_urls
from kilnwork.jobs import (
    errors,
    file_item_source,
    file_job_types,
    job_directory,
    live_job_state,
    row_storage,
    rows,
    step_planning,
    transitions,
)
from kilnwork.kit import clock as clocks
from kilnwork.kit import retention_clock

log = logging.getLogger(__name__)

INTERVAL_S = 10.0
"""Interval between searches for jobs whose time to live has passed."""

MAX_DELETIONS = 100
PAGE = 2000
"""Number of rows read in one step of a sweep, which takes a few milliseconds of the event loop."""

SWEEP_S = 3600.0
"""Interval between searches for files that killed writers and abandoned uploads have left, and
minimum age of files that are deleted, in seconds."""

FIRST_SWEEP_S = 300.0
"""Delay of the first sweep after the start, so that a server that never runs for an hour sweeps as
well."""

ORPHAN_S = 86_400.0
"""Age from which a directory that is not a job counts as an abandoned upload."""

_DIGEST = 32
_POLLS = 100
_Stage = live_job_state.Stage
_O = filejobs.PartOutcome


class JobService(Protocol):
    """Port to the service of file jobs, for retention."""

    store: port.Store
    ttl_s: float | None

    async def adopt(self, job: live_job_state.Job) -> None: ...

    async def delete(self, namespace: str, job: str) -> None: ...


class JobRetention:
    """Background work that deletes expired jobs and unneeded files. `blobs`: the directory of
    blobs, with a subdirectory per namespace.
    """

    def __init__(
        self,
        jobs: JobService,
        kept: row_storage.Tables,
        sources: file_item_source.FileSources,
        *,
        blobs: Path,
        clock: clocks.Clock,
        ages: retention_clock.RetentionClock,
    ) -> None:
        self._jobs, self._tables, self._clock, self._ages = jobs, kept, clock, ages
        self._blobs, self._sources = blobs, sources
        self._tidy_from = ages.old_before(ORPHAN_S)
        """Jobs that ended before this time have been tidied already."""
        self._deleting: list[bytes] = []

    async def run(self) -> None:
        """Call `expire`, `renew` and `sweep` at their intervals, and save the retention clock,
        until cancelled or until the engine has stopped."""
        swept = self._clock.monotonic() - SWEEP_S + FIRST_SWEEP_S
        renewed = -blob_renewal.RENEW_S
        await self.save_time()
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                if self._ages.sample():
                    await self.save_time()
                await self.expire()
                if self._clock.monotonic() - renewed >= blob_renewal.RENEW_S:
                    renewed = self._clock.monotonic()
                    await self.renew()
                if self._clock.monotonic() - swept >= SWEEP_S:
                    swept = self._clock.monotonic()
                    await self.sweep()
            except errors.JobsStopped:
                return
            except Exception:
                log.exception("old jobs were not looked after")

    async def expire(self) -> int:
        """Delete jobs whose time to live has passed; return the number of deleted jobs.

        The jobs are deleted in batches: the next batch waits until the last one is deleted on disk,
        since deleting all at once would fill the memory.
        """
        count = 0
        while await self._wait_deleted() and (found := await self._find_expired()):
            self._deleting = found
            for uuid in found:
                row = self._tables.find_job("uuid", uuid)
                if row is not None:
                    await self._jobs.delete(row.namespace, row.id)
                    count += 1
        return count

    async def _find_expired(self) -> list[bytes]:
        """Return the UUIDs of some jobs whose time to live has passed by the retention clock.

        By the wall clock alone there may be more.
        """
        found: list[bytes] = []
        at, last = self._clock.wall(), None
        while page := self._tables.list_expired(at, last, MAX_DELETIONS):
            found += [
                one.uuid
                for one in page
                if self._ages.age(one.finished) >= one.expires - one.finished
            ]
            if len(found) >= MAX_DELETIONS:
                break
            last = page[-1]
            await asyncio.sleep(0)
        return found[:MAX_DELETIONS]

    async def save_time(self) -> None:
        """Save the retention clock, so that the next service continues from it."""
        try:
            await asyncio.to_thread(self._ages.save)
        except OSError as error:
            log.warning("retention clock was not saved", extra={"error": str(error)})

    async def _wait_deleted(self) -> bool:
        """Wait up to `INTERVAL_S` for the deletion of the last batch; return whether it is
        complete.
        """
        for _ in range(_POLLS):
            self._deleting = [one for one in self._deleting if self._tables.find_job("uuid", one)]
            if not self._deleting:
                return True
            await asyncio.sleep(INTERVAL_S / _POLLS)
        return False

    async def renew(self) -> None:
        """Renew the blobs that mappers need, including mappers of jobs that wait or may be
        redriven.
        """
        for namespace, digests in self._tables.list_blobs():
            kept = local_blobs.Blobs(self._blobs / namespace, durable=False, time=self._clock)
            named = [digests[at : at + _DIGEST] for at in range(0, len(digests), _DIGEST)]
            await asyncio.to_thread(kept.touch_all, named)

    async def sweep(self) -> int:
        """Delete old directories that are not jobs, and files of killed attempts in the directories
        of jobs; add jobs that the journal lacks. Return the number of deleted directories."""
        young, orphaned = self._ages.old_before(SWEEP_S), self._ages.old_before(ORPHAN_S)
        store = self._jobs.store
        directories = await asyncio.to_thread(
            lambda: {uuid.bytes: prefix for prefix, uuid in _directories(store)}
        )
        ended = await self._take_known(directories, before=young)
        count = 0
        for uuid, prefix in directories.items():
            count += await self._adopt_or_clear(uuids.UUID(bytes=uuid), prefix, before=orphaned)
        await asyncio.to_thread(port.sweep, store, before=young)
        await asyncio.to_thread(_tidy, store, ended, before=young)
        self._tidy_from = young
        return count

    async def _take_known(self, directories: dict[bytes, str], *, before: float) -> list[str]:
        """Remove the directories of known jobs from `directories`; return those of known jobs that
        are to be tidied.
        """
        found, row = [], 0
        while page := self._tables.list_ends(row, PAGE):
            for _, uuid, finished in page:
                prefix = directories.pop(uuid, None)
                if prefix and finished is not None and self._tidy_from < finished <= before:
                    found.append(prefix)
            row = page[-1][0]
            await asyncio.sleep(0)
        return found

    async def _adopt_or_clear(self, uuid: uuids.UUID, prefix: str, *, before: float) -> bool:
        """Add the job of a directory if the journal lacks it, or delete the directory if it is not
        that of a job.

        Return whether the directory was deleted.
        """
        store = self._jobs.store
        try:
            file = await asyncio.to_thread(_job_file, store, prefix)
        except data_errors.ObjectMissing:
            if (uuid.int >> 80) / 1000 >= before:  # an upload may be under way
                return False
            await asyncio.to_thread(port.clear, store, prefix)
            return True
        if file is None or self._tables.find_job("uuid", uuid.bytes) is not None:
            return False
        ttl_s = self._jobs.ttl_s
        job = await asyncio.to_thread(_rebuild_job, file, uuid, self._sources, row=0, ttl_s=ttl_s)
        await self._jobs.adopt(job)
        log.warning("a job was not in the journal: taken up", extra={"job": file.id})
        return False


def _directories(store: port.Store) -> Iterator[tuple[str, uuids.UUID]]:
    """Yield prefix (with a slash) and UUID of each directory whose name looks like that of a job's
    directory.
    """
    for namespace in store.directories():
        if namespace.startswith("_"):
            continue
        for name in store.directories(f"{namespace}/"):
            try:
                yield f"{namespace}/{name}/", uuids.UUID(name)
            except ValueError:
                continue


def _job_file(store: port.Store, prefix: str) -> job_directory.JobFile | None:
    """Return the content of `job.json`, or None if it cannot be read. Raises `ObjectMissing`."""
    try:
        raw = port.read_all(store, prefix + job_directory.JOB, most=job_directory.MAX_JOB_BYTES)
        return msgspec.json.decode(raw, type=job_directory.JobFile)
    except data_errors.ObjectMissing:
        raise
    except (msgspec.MsgspecError, data_errors.DataError) as error:
        log.warning("a job cannot be read", extra={"directory": prefix, "error": str(error)})
        return None


def _tidy(store: port.Store, directories: Iterable[str], *, before: float) -> None:
    """Tidy the directories of jobs that have ended."""
    for prefix in directories:
        try:
            job_directory.tidy(_open_directory(store, prefix), after=0.0, before=before)
        except data_errors.ObjectMissing:
            continue  # the job is being deleted
        except (msgspec.MsgspecError, data_errors.DataError) as error:
            log.warning("a job was not tidied", extra={"directory": prefix, "error": str(error)})


def _open_directory(store: port.Store, prefix: str) -> port.Store:
    return store_urls.open_store(store_urls.url_inside(store.url, *prefix.strip("/").split("/")))


def rebuild(sources: file_item_source.FileSources, *, ttl_s: float | None) -> row_storage.JobWrites:
    """Return the rows of all jobs in the store, for a journal that has no jobs. `ttl_s`: see
    `file_job_service.FileJobOptions`.

    The newest commit record of each part is read. An unfinished job continues in a new run with
    all parts except those that have succeeded, or that have ended in its newest run.
    """
    count, writes, store = 0, row_storage.JobWrites(), sources.store
    found = sorted(_directories(store), key=lambda one: one[1].int)
    for prefix, uuid in found:
        try:
            file = _job_file(store, prefix)
        except data_errors.ObjectMissing:
            continue
        if file is None:
            continue
        count += 1
        _add_rows(writes, _rebuild_job(file, uuid, sources, row=count, ttl_s=ttl_s))
    if count:
        log.warning("the journal had no jobs: filled from the store", extra={"jobs": count})
    return writes


def _add_rows(writes: row_storage.JobWrites, job: live_job_state.Job) -> None:
    writes.add("insert_job", *rows.new_job_row(job, None))
    writes.add("insert_job_input", *rows.input_row(job, None))
    for page in job.items.changed_pages:
        writes.add("put_job_page", job.row, page, job.items.page(page))


def _rebuild_job(
    file: job_directory.JobFile,
    uuid: uuids.UUID,
    sources: file_item_source.FileSources,
    *,
    row: int,
    ttl_s: float | None,
) -> live_job_state.Job:
    source = sources.new(file.spec, file.manifest, source=file.source)
    job = live_job_state.Job(
        file_job_types.JobId(uuid.bytes, file.id),
        row=row,
        namespace=file.namespace,
        spec=file.spec,
        source=source,
        created=file.created,
    )
    job.user, job.ttl_s = file.user, ttl_s
    job.run = job.base_run = file.run
    job.prepared = True
    latest = part_commits.read_latest(sources.directory(file.namespace, job.id))
    end = latest.pop(0, None)
    for commit in latest.values():
        if commit.outcome is _O.SUCCEEDED or commit.run == file.run:
            step_planning.close_item(job, source.to_item_result(commit))
    if end is not None and end.run == file.run:
        job.verdict = end.outcome
        job.message = "" if end.outcome is _O.SUCCEEDED else end.message
        if end.outcome is _O.SUCCEEDED:
            source.count_result(source.to_item_result(end))
        job.stage = _Stage.FINISHED
        job.counts.cancelled = job.size - job.counts.succeeded - job.counts.failed
        job.end(end.finished)
    else:  # if the journal is lost too, attempts are numbered from 1 again
        transitions.restart_after_journal_loss(job, now=file.created)
    job.changed(file.created)
    return job
