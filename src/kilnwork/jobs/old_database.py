"""Jobs of an earlier kilnwork, which had a database of their own (`jobs.db`), move to the journal.

Used by the service before it starts. The old file is only read; its rows are one transaction of the
journal, and when that is on disk the file is renamed to `jobs.db.imported`. Killed anywhere, it may
be repeated: a journal that has jobs has them all.
"""

import asyncio
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import apsw

from kilnwork.dispatch.journal.sqlite import connections
from kilnwork.dispatch.machine import instructions
from kilnwork.jobs import errors, tables, task_hub
from kilnwork.kit import emptied

log = logging.getLogger(__name__)

VERSION = 1
"""Of the old file (`PRAGMA user_version`): there was no other."""

_SELECTS = {
    "insert_job": "SELECT * FROM job",
    "insert_job_input": "SELECT * FROM input",
    "put_job_part": "SELECT * FROM part",
}


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
    """All rows of a query, read again each time: for a commit that the disk refused at first."""

    def __init__(self, connection: apsw.Connection, query: str) -> None:
        self._connection, self._query = connection, query

    def __iter__(self) -> Iterator[instructions.Row]:
        return iter(self._connection.execute(self._query))


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
        writes: list[tuple[str, _Rows | list[instructions.Row]]] = [
            (statement, _Rows(old, query)) for statement, query in _SELECTS.items()
        ]
        [(journal_epoch,)] = old.execute("SELECT journal FROM companion")
        if hub.epoch <= journal_epoch:  # it is not the journal that the jobs were in step with
            writes += [("renumber_open_job_parts", [()]), ("renumber_open_jobs", [()])]
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
