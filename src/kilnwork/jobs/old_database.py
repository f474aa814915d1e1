"""Jobs of an earlier kilnwork, which had a database of their own (`jobs.db`), move to the journal.

Used by the service before it starts. The old file is only read; its rows are one transaction of the
journal, and when that is on disk the file is renamed to `jobs.db.imported`. Killed anywhere, it may
be repeated: a journal that has jobs has them all.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw

from kilnwork.dispatch.journal.sqlite import connections
from kilnwork.dispatch.machine import instructions
from kilnwork.jobs import errors, items, tables, task_hub
from kilnwork.kit import emptied

log = logging.getLogger(__name__)

VERSION = 1
"""Of the old file (`PRAGMA user_version`): there was no other."""

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
    failures, losses, deleting, version + :lost
FROM job WHERE (finished IS NULL) = :unfinished
"""
"""In the order of `rows.JobRow`. `:lost`: the journal is another one, which will use numbers of
attempts again; what is open goes on in another run."""


async def take_over(path: Path, hub: task_hub.TaskHub) -> None:
    """Import the old database if there is one. Raises `OldDatabaseUnreadable`."""
    if await asyncio.to_thread(path.exists):
        if tables.Tables(hub.select).empty:
            try:
                await _import(path, hub)
            except (apsw.Error, emptied.Emptied) as error:
                raise errors.OldDatabaseUnreadable(
                    f"{path} cannot be read ({error}); nothing was deleted. Put a backup in its "
                    f"place, or move {path.name}* elsewhere and start again: jobs are then found "
                    "by their files, but for those that had not started"
                ) from error
        else:
            log.warning("not imported: the journal has jobs", extra={"file": path.name})
    _set_aside(path)


class _Rows:
    """Rows of the old file, read again each time: for a commit that the disk refused at first."""

    def __init__(self, read: Callable[[], Iterator[instructions.Row]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[instructions.Row]:
        return self._read()


def _jobs(old: apsw.Connection, *, lost: bool) -> Iterator[instructions.Row]:
    for unfinished in (True, False):
        given = {"unfinished": unfinished, "lost": unfinished and lost}
        yield from old.execute(_JOBS, given)


def _pages(old: apsw.Connection, *, lost: bool) -> Iterator[instructions.Row]:
    """The states of parts. What is open may have a task: whoever goes on with the job looks."""
    for row, size, finished in old.execute("SELECT row, parts, finished FROM job"):
        packed = items.Items(size)
        if finished is None:
            for item in range(1, size + 1):
                packed.set(item, items.State.SUBMITTED)
        found = old.execute("SELECT part, run, state FROM part WHERE job = ?", (row,))
        for part, run, state in found:
            if state:
                packed.set(part, items.State(state), run)
            elif not (lost and finished is None):
                packed.set(part, items.State(packed.states[part]), run)
        for page in packed.changed_pages:
            yield row, page, packed.page(page)


async def _import(path: Path, hub: task_hub.TaskHub) -> None:
    emptied.check(path)
    old = connections.reading(path)
    try:
        version = old.pragma("user_version")
        if version != VERSION:
            raise errors.OldDatabaseUnreadable(
                f"{path} has version {version}, this kilnwork knows {VERSION}: use the kilnwork "
                "that wrote it, or another directory"
            )
        found = await asyncio.to_thread(old.pragma, "quick_check")
        if found != "ok":
            raise apsw.CorruptError(str(found))
        [(journal_epoch,)] = old.execute("SELECT journal FROM companion")
        lost = hub.epoch <= journal_epoch  # it is not the journal that the jobs were in step with
        inputs = "SELECT * FROM input"
        writes = [
            ("insert_job", _Rows(lambda: _jobs(old, lost=lost))),
            ("insert_job_input", _Rows(lambda: old.execute(inputs))),
            ("put_job_page", _Rows(lambda: _pages(old, lost=lost))),
        ]
        await hub.write(writes)
        [(count,)] = old.execute("SELECT count(*) FROM job")
        log.info("imported", extra={"file": path.name, "jobs": count})
    finally:
        old.close()


def _set_aside(path: Path) -> None:
    """Rename the file and those beside it; a part of that may have been done before."""
    moved = False
    for suffix in ("", "-wal", ".made"):
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            beside.rename(path.with_name(f"{path.name}.imported{suffix}"))
            moved = True
    if moved:
        path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
        path.with_suffix(".lock").unlink(missing_ok=True)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
