"""File jobs in a journal of the version before start queues continue and are listed as before."""

import contextlib
from pathlib import Path

import apsw

from kilnwork.dispatch.journal.sqlite import statements
from kilnwork.jobs import file_job_types
from support.job_world import NS, World

VERSION = 10
_COLUMNS = 33
"""Of the table of jobs then."""


def lines(count: int) -> bytes:
    return b"".join(b'{"n": %d}\n' % number for number in range(count))


def make_older(path: Path) -> None:
    """Change a journal to the format of that version."""
    older = path.with_name("older.db")
    with contextlib.closing(apsw.Connection(str(older))) as made:
        for script in statements.MIGRATIONS[:VERSION]:
            made.execute(script)
        made.execute("ATTACH ? AS now", (str(path),))
        names = [row[1] for row in made.execute("PRAGMA now.table_info(job)")][:_COLUMNS]
        listed = ", ".join(names)
        made.execute(f"INSERT INTO job SELECT {listed} FROM now.job")  # noqa: S608
        for table in ("job_input", "job_page"):
            made.execute(f"INSERT INTO {table} SELECT * FROM now.{table}")  # noqa: S608
        made.execute("UPDATE leadership SET epoch = (SELECT epoch FROM now.leadership)")
        made.execute("DETACH now")
        made.pragma("user_version", VERSION)
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)
    older.rename(path)


async def test_file_jobs_of_older_journal_continue(tmp_path: Path) -> None:
    world = await World(tmp_path).start()
    done = await world.finished((await world.create(lines(8), name="done", itemsPerPart=4)).id)
    half = (await world.create(lines(20), key="k", name="half", itemsPerPart=4)).id
    await world.running(half, 2)
    await world.until(world._quiet, step=False)
    before = world.jobs.jobs(NS)
    await world.stop()
    make_older(tmp_path / "journal.db")
    await world.start()
    assert world.view(done.id) == done
    assert [view.id for view in world.jobs.jobs(NS)[0]] == [view.id for view in before[0]]
    assert [view.id for view in world.jobs.jobs(None)[0]] == [half, done.id]
    named = world.jobs.jobs(NS, wanted=file_job_types.JobQuery(name="half"))[0]
    assert [view.id for view in named] == [half]
    found = await world.finished(half)
    assert (found.phase, found.parts.succeeded) == ("Succeeded", 5)
    assert sorted(count for _, _, count in world.jobs.counts()) == [2]
    await world.stop()
