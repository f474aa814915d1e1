"""Jobs of an earlier kilnwork, which had their own database, are imported into the journal."""

import asyncio
import contextlib
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from kilnwork.jobs import errors, file_job_types, item_states, old_database_import, rows
from support.job_world import NS, CrashedHere, Fuse, World

_OLD = (Path(__file__).parents[2] / "support" / "old_jobs.sql").read_text()
_TABLES = ("job", "job_input", "job_page")


def lines(count: int) -> bytes:
    return b"".join(b'{"n":%d}\n' % n for n in range(count))


def rows_of(path: Path, table: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        return connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()  # noqa: S608


def insert(into: apsw.Connection, table: str, values: tuple[Any, ...]) -> None:
    marks = ",".join("?" * len(values))
    into.execute(f"INSERT INTO {table} VALUES ({marks})", values)  # noqa: S608


def old_job(row: rows.JobRow) -> tuple[Any, ...]:
    known = msgspec.json.decode(row.progress, type=file_job_types.FileProgress)
    files = [
        None if one is None else msgspec.json.encode(one) for one in (known.output, known.errors)
    ]
    return (
        *row[:10], known.lines, known.bytes, known.sha256, row.items, known.source, row.blobs,
        *row[13:28], known.succeeded, known.failed, known.skipped, known.done_bytes, *files,
        *row[29:33],
    )  # fmt: skip


def age(directory: Path, *, epoch: int) -> Path:
    """Move the jobs of a journal to their own database, as it is after a kill."""
    path, journal = directory / "jobs.db", directory / "journal.db"
    made = apsw.Connection(str(directory / "made.db"))
    made.pragma("journal_mode", "wal")
    made.wal_autocheckpoint(0)
    made.execute(_OLD)
    made.pragma("user_version", 1)
    for values in rows_of(journal, "job_input"):
        insert(made, "input", values)
    for values in rows_of(journal, "job"):
        insert(made, "job", old_job(rows.JobRow._make(values)))
    for job, page, packed in rows_of(journal, "job_page"):
        [(size,)] = made.execute("SELECT parts FROM job WHERE row = ?", (job,))
        found = item_states.Items(size)
        found.load_page(page, packed)
        for part in range(1, size + 1):
            if found.runs[part]:
                insert(made, "part", (job, part, found.runs[part], found.states[part], b"{}"))
    made.execute("UPDATE companion SET journal = ?", (epoch,))
    for suffix in ("", "-wal"):
        shutil.copy(directory / f"made.db{suffix}", f"{path}{suffix}")
    made.close()
    path.with_name("jobs.db.made").write_text("it was made\n")
    path.with_suffix(".lock").touch()
    with contextlib.closing(apsw.Connection(str(journal))) as emptied:
        for new in _TABLES:
            emptied.execute(f"DELETE FROM {new}")  # noqa: S608
    return path


Begun = tuple[World, str, str, dict[str, list[tuple[Any, ...]]]]


async def begun(directory: Path, *, epoch: int = 1) -> Begun:
    """A stopped world with an old database: one job has ended, one has not."""
    world = await World(directory).start()
    done = (await world.finished((await world.create(lines(8), key="k", itemsPerPart=4)).id)).id
    half = (await world.create(lines(20), itemsPerPart=4)).id
    await world.running(half, 2)
    await world.until(world._quiet, step=False)
    await world.stop()
    before = imported(directory)
    age(directory, epoch=epoch)
    return world, done, half, before


def imported(directory: Path) -> dict[str, list[tuple[Any, ...]]]:
    found = {new: rows_of(directory / "journal.db", new) for new in _TABLES[1:]}
    jobs = [rows.JobRow._make(values) for values in rows_of(directory / "journal.db", "job")]
    found["job"] = [
        (*row[:28], msgspec.json.decode(row.progress, type=file_job_types.FileProgress), *row[29:])
        for row in jobs
    ]
    return found


async def test_old_database_is_imported_once_and_renamed(tmp_path: Path) -> None:
    world, done, half, _ = await begun(tmp_path)
    await world.restart()
    assert world.view(done).phase == "Succeeded"
    assert (await world.create(lines(8), key="k", itemsPerPart=4)).id == done
    finished = await world.finished(half)
    assert (finished.run, world.result(finished)) == (1, lines(20))
    await world.stop()
    left = {path.name for path in tmp_path.glob("jobs.*")} - {"jobs.clock"}
    assert left == {"jobs.db.imported"}
    assert len(rows_of(tmp_path / "jobs.db.imported", "job")) == 2
    await world.restart()
    assert world.result(world.view(half)) == lines(20)
    assert len(world.jobs.jobs(NS)[0]) == 2
    await world.stop()


class AtCommit(Fuse):
    """Raises at the first commit, before or after it (`when`)."""

    def __init__(self, when: str) -> None:
        super().__init__()
        self._when = when

    def burn(self, what: str) -> None:
        if what == f"{self._when} commit":
            self.left = 0
        super().burn(what)


class _Stop(Exception):
    """The process was killed."""


def kills(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another crash point each time: before and after the rename."""
    rename = Path.rename
    for number in range(2):
        left = number

        def counted(path: Path, target: Path) -> Path:
            nonlocal left
            if left == 0:
                raise _Stop
            left -= 1
            made = rename(path, target)
            if left == 0:
                raise _Stop
            left -= 1
            return made

        monkeypatch.setattr(Path, "rename", counted)
        yield
        monkeypatch.setattr(Path, "rename", rename)


async def test_import_killed_at_any_point_gives_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Crash points: before and after the commit, and before and after the rename."""
    world, done, half, before = await begun(tmp_path / "first")
    for when in ("before", "after"):
        directory = shutil.copytree(tmp_path / "first", tmp_path / when)
        again = World(directory, fuse=AtCommit(when))
        again.dispatcher.tasks = dict(world.dispatcher.tasks)
        with pytest.raises(CrashedHere, match=when):
            await again.start()
        await again.stop()
        assert (imported(directory) == before) == (when == "after")
        assert (directory / "jobs.db").exists()
        await again.restart()
        assert again.view(done).phase == "Succeeded"
        assert again.result(await again.finished(half)) == lines(20)
        await again.stop()
        assert not (directory / "jobs.db").exists()
    for number, _ in enumerate(kills(monkeypatch)):
        directory = shutil.copytree(tmp_path / "first", tmp_path / f"rename-{number}")
        again = World(directory)
        again.dispatcher.tasks = dict(world.dispatcher.tasks)
        with pytest.raises(_Stop):
            await again.start()
        again.dispatcher.stop()
        assert imported(directory) == before
        monkeypatch.undo()
        again = World(directory)
        await again.start()
        assert len(again.jobs.jobs(NS)[0]) == 2
        assert again.view(done).phase == "Succeeded"
        await again.stop()
        assert not list(directory.glob("jobs.db")) + list(directory.glob("jobs.db-wal"))
    assert "not imported" not in caplog.text, "all of it was"


class AtChunk(Fuse):
    """Blocks the first commit of an import until it is released; sets `reached` first."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.released = threading.Event(), threading.Event()

    def burn(self, what: str) -> None:
        if what == "before commit":
            self.reached.set()
            assert self.released.wait(20)
        super().burn(what)


async def test_stop_does_not_wait_for_whole_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the writer has received is on disk; the next start continues after it."""
    monkeypatch.setattr(old_database_import, "MAX_JOBS", 1)
    world, done, half, before = await begun(tmp_path)
    fuse = AtChunk()
    again = World(tmp_path, fuse=fuse)
    again.dispatcher.tasks = dict(world.dispatcher.tasks)
    starting = asyncio.create_task(again.start())
    assert await asyncio.to_thread(fuse.reached.wait, 20)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    fuse.released.set()
    await again.stop()
    assert (tmp_path / "jobs.db").exists()
    stopped = imported(tmp_path)
    assert stopped["job"] == [row for row in before["job"] if row[0] == 1]
    assert stopped["job_input"] == [row for row in before["job_input"] if row[0] == 1]
    assert stopped["job_page"] == [row for row in before["job_page"] if row[0] == 1]
    await again.restart()
    assert imported(tmp_path)["job_input"] == before["job_input"]
    assert again.view(done).phase == "Succeeded"
    assert (await again.finished(half)).run == 1
    assert again.said == [f"importing 2 jobs of jobs.db, {share}% done" for share in (0, 50)]
    await again.stop()
    assert not (tmp_path / "jobs.db").exists()


@pytest.mark.parametrize("log", [False, True])
async def test_earlier_imported_file_is_not_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, log: bool
) -> None:
    """It is not paired with the log of another file either."""
    world, done, _, _ = await begun(tmp_path)
    kept = {"jobs.db.imported": b"the first one"}
    if log:
        kept["jobs.db.imported.2-wal"] = b"the log of a second one"
    for name, content in kept.items():
        (tmp_path / name).write_bytes(content)
    await world.restart()
    await world.stop()
    name = "jobs.db.imported.3" if log else "jobs.db.imported.2"
    assert {path.name for path in tmp_path.glob("jobs.db*")} == {*kept, name}
    assert len(rows_of(tmp_path / name, "job")) == 2
    assert all((tmp_path / name).read_bytes() == content for name, content in kept.items())
    with contextlib.closing(apsw.Connection(str(tmp_path / name))) as other:
        other.execute("DELETE FROM job WHERE row = 2")
    shutil.copy(tmp_path / name, tmp_path / "jobs.db")
    await world.restart()
    assert world.view(done).phase == "Succeeded"
    await world.stop()
    assert len(imported(tmp_path)["job"]) == 2
    assert "the journal has jobs of its own" in caplog.text
    assert not (tmp_path / "jobs.db").exists()


@pytest.mark.parametrize("epoch", [1000, 0])
async def test_open_parts_continue_in_new_run_with_new_journal(tmp_path: Path, epoch: int) -> None:
    """Attempt numbers are used again. `epoch` is 0 since failed starts have increased it."""
    world, _, half, _ = await begun(tmp_path, epoch=epoch)
    world.dispatcher.tasks.clear()
    await world.restart()
    done = await world.finished(half)
    assert (done.run, world.result(done)) == (2, lines(20))
    await world.stop()


@pytest.mark.parametrize("size", [0, 1, 100, 4096, -4096])
async def test_old_database_without_content_is_refused(tmp_path: Path, size: int) -> None:
    """An empty or truncated file is not a first start: it held the only copy of unstarted jobs."""
    world, done, _, _ = await begun(tmp_path)
    path = tmp_path / "jobs.db"
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        assert connection.execute("SELECT count(*) FROM job").get == 2
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    os.truncate(path, size if size >= 0 else path.stat().st_size + size)
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(errors.OldDatabaseUnreadable, match=r"move jobs\.db\* elsewhere"):
            await world.restart()
        await world.stop()
    assert path.read_bytes() == before
    for file in tmp_path.glob("jobs.db*"):
        file.unlink()
    await world.restart()
    assert world.view(done).phase == "Succeeded", "found by its files"
    await world.stop()
