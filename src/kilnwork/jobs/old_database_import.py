"""Import of jobs from the separate database (`jobs.db`) of an earlier version of kilnwork into the
journal.

Used by `file_job_service` before it starts. Jobs are imported in the order of their rows, some
hundred with their inputs and parts in each transaction of the journal, so that a stop waits for one
transaction at most. The old file is only read until all jobs are on disk; then it is renamed to
`jobs.db.imported`, with a number at the end if that file exists. If the import is killed or stopped
at any point, the next start continues after the newest imported job.
"""

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator
from itertools import chain, count, islice
from pathlib import Path
from typing import NamedTuple

import apsw

from kilnwork.dispatch.journal.sqlite import connections
from kilnwork.dispatch.machine import instructions
from kilnwork.jobs import errors, item_states, row_storage, task_hub
from kilnwork.kit import database_loss_check

log = logging.getLogger(__name__)

VERSION = 1
"""Version of the old file (`PRAGMA user_version`); there was no other."""

Say = Callable[[str], None]
"""Called with a description of what is being done, if that takes long."""

MAX_JOBS, MAX_PARTS = 500, 10_000
"""Maximum number of jobs and of parts in one transaction; a job with more parts gets its own
transaction."""

PAGE = 2000
"""Number of rows of the journal read at once."""

CHECKED_PARTS = 256
"""Number of parts of a job whose tasks are looked up to find out whether the journal knows the job:
as many as could have a task at the same time."""

_JOBS = """
SELECT row, uuid, id, namespace, name, user, created, key_user, key, fingerprint, 'file', parts,
    blobs, spec, phase, stage, stored AND NOT :lost, verdict, reason, message, run + :lost,
    CASE WHEN :lost THEN run + 1 ELSE base_run END, started, finished, expires, succeeded, failed,
    cancelled,
    CAST(json_object(
        'lines', lines, 'bytes', bytes, 'sha256', sha256, 'source', source, 'succeeded', good,
        'failed', bad, 'skipped', skipped, 'done_bytes', done_bytes,
        'output', json(CAST(output AS TEXT)), 'errors', json(CAST(errors AS TEXT))
    ) AS BLOB),
    failures, losses, deleting, version + :lost, 0, NULL, succeeded
FROM job WHERE row = :row
"""
"""Columns in the order of `rows.JobRow`. `:lost`: the journal is a different one, which will reuse
attempt numbers, so that unfinished parts continue in a new run."""

_INPUTS = "SELECT * FROM input WHERE job BETWEEN ? AND ?"
_NEXT = """
SELECT row, uuid, parts, finished IS NULL, stored FROM job WHERE row > ? ORDER BY row LIMIT ?
"""


class _Job(NamedTuple):
    row: int
    uuid: bytes
    parts: int
    unfinished: int
    stored: int
    """1 if tasks of the job's run may have been submitted."""


async def take_over(path: Path, hub: task_hub.TaskHub, *, say: Say) -> None:
    """Import the old database, if there is one, then rename it. Raises `OldDatabaseUnreadable`."""
    if not await asyncio.to_thread(path.exists):
        _remove_leftovers(path)
        return
    try:
        database_loss_check.check_content(path)
        with contextlib.closing(connections.reading(path)) as old:
            await _check(old, path)
            await _import(old, path, hub, say)
    except (apsw.Error, database_loss_check.ContentLost) as error:
        raise errors.OldDatabaseUnreadable(
            f"{path} cannot be read ({error}); nothing was deleted. Put a backup in its "
            f"place, or move {path.name}* elsewhere and start again: jobs are then found "
            "by their files, but for those that had not started"
        ) from error
    await asyncio.to_thread(_set_aside, path)


async def _check(old: apsw.Connection, path: Path) -> None:
    version = old.pragma("user_version")
    if version != VERSION:
        raise errors.OldDatabaseUnreadable(
            f"{path} has version {version}, this kilnwork knows {VERSION}: use the kilnwork "
            "that wrote it, or another directory"
        )
    stopped = threading.Event()
    try:
        found = await asyncio.to_thread(_quick_check, path, stopped)
    finally:
        stopped.set()
    if found != "ok":
        raise apsw.CorruptError(found)


def _quick_check(path: Path, stopped: threading.Event) -> str:
    """Return the result of SQLite's quick_check, on a separate connection since the caller may be
    cancelled."""
    with contextlib.closing(connections.reading(path)) as connection:
        connection.set_progress_handler(stopped.is_set, 10_000)
        return str(connection.pragma("quick_check"))


async def _import(old: apsw.Connection, path: Path, hub: task_hub.TaskHub, say: Say) -> None:
    """Write the jobs of the old database that the journal lacks, unless the journal has jobs of its
    own.
    """
    newest = row_storage.Tables(hub.select).next_row() - 1
    if newest and not _are_same_jobs(old, hub):
        log.warning("not imported: the journal has jobs of its own", extra={"file": path.name})
        return
    [(total,)] = old.execute("SELECT count(*) FROM job")
    [(done,)] = old.execute("SELECT count(*) FROM job WHERE row <= ?", (newest,))
    [(journal_epoch,)] = old.execute("SELECT journal FROM companion")
    other_journal = hub.epoch <= journal_epoch
    if newest and done == total:
        return
    while some := _next_jobs(old, newest):
        say(f"importing {total} jobs of {path.name}, {done * 10 // total * 10}% done")
        first, newest = newest + 1, some[-1].row
        jobs: list[instructions.Row] = []
        pages: list[instructions.Row] = []
        for job in some:
            may_have_tasks = job.unfinished and job.stored
            lost = bool(may_have_tasks and (other_journal or not _is_known(old, hub, job)))
            jobs += old.execute(_JOBS, {"row": job.row, "lost": lost})
            pages += _pages(old, job, lost=lost)
        inputs = old.execute(_INPUTS, (first, newest)).fetchall()
        await hub.write(
            [("insert_job", jobs), ("insert_job_input", inputs), ("put_job_page", pages)]
        )
        done += len(some)
    log.info("imported", extra={"file": path.name, "jobs": total})


def _are_same_jobs(old: apsw.Connection, hub: task_hub.TaskHub) -> bool:
    """Return whether each job of the journal is the job of the same row in the old database."""
    known = dict(old.execute("SELECT uuid, row FROM job"))
    kept, row = row_storage.Tables(hub.select), 0
    while page := kept.list_ends(row, PAGE):
        if any(known.get(uuid) != number for number, uuid, _ in page):
            return False
        row = page[-1][0]
    return True


def _next_jobs(old: apsw.Connection, newest: int) -> list[_Job]:
    """Return the jobs for the next transaction; an empty list after the last job."""
    found: list[_Job] = []
    parts = 0
    for values in old.execute(_NEXT, (newest, MAX_JOBS)):
        job = _Job(*values)
        parts += job.parts
        if found and parts > MAX_PARTS:
            break
        found.append(job)
    return found


def _pages(old: apsw.Connection, job: _Job, *, lost: bool) -> Iterator[instructions.Row]:
    """Yield the pages of a job's item states.

    Every unfinished part is marked as having a task, since it may have one; the engine checks that
    when it resumes the job.
    """
    packed = item_states.Items(job.parts)
    if job.unfinished:
        for item in range(1, job.parts + 1):
            packed.set(item, item_states.ItemState.SUBMITTED)
    for part, run, state in old.execute("SELECT part, run, state FROM part WHERE job = ?", job[:1]):
        if state:
            packed.set(part, item_states.ItemState(state), run)
        elif not lost:
            packed.set(part, item_states.ItemState(packed.states[part]), run)
    for page in packed.changed_pages:
        yield job.row, page, packed.page(page)


def _is_known(old: apsw.Connection, hub: task_hub.TaskHub, job: _Job) -> bool:
    """Return whether the journal has a task of the job.

    If it has none, it is a different journal and will reuse attempt numbers. The epoch alone does
    not prove this: each start raises it, even a start that fails before the import.
    """
    query = "SELECT part FROM part WHERE job = ? AND state <> 0"
    over = {part for (part,) in old.execute(query, (job.row,))}
    open_parts = (n for n in range(1, job.parts + 1) if n not in over)
    checked = chain((0,), islice(open_parts, CHECKED_PARTS), islice(sorted(over), CHECKED_PARTS))
    return any(hub.knows(task_hub.task_id(job.uuid, part)) for part in checked)


def _set_aside(path: Path) -> None:
    """Rename the database file to an unused name.

    Its write-ahead log is copied into it first: the rename of a single file is atomic, and no later
    file of the same name can be taken for part of it.
    """
    try:
        with contextlib.closing(apsw.Connection(str(path))) as connection:
            connection.set_busy_timeout(5000)
            connection.execute(
                "SELECT 1 FROM job"
            ).fetchall()  # SQLite opens the log with the first read
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.Error as error:
        extra = {"file": path.name, "error": str(error)}
        log.warning("not set aside, which the next start tries again", extra=extra)
        return
    left = path.with_name(f"{path.name}-wal")
    if left.exists() and left.stat().st_size:
        log.warning("in use, therefore not set aside", extra={"file": path.name})
        return
    names = chain([f"{path.name}.imported"], (f"{path.name}.imported.{n}" for n in count(2)))
    path.rename(next(free for name in names if _is_free(free := path.with_name(name))))
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    _remove_leftovers(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _is_free(path: Path) -> bool:
    """Return whether there is neither a file with this name nor a write-ahead log for it."""
    return not path.exists() and not path.with_name(f"{path.name}-wal").exists()


def _remove_leftovers(path: Path) -> None:
    """Remove the marker and the lock of a database file that does not exist any more."""
    database_loss_check.marker_path(path).unlink(missing_ok=True)
    path.with_suffix(".lock").unlink(missing_ok=True)
