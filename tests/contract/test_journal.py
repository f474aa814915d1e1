"""The contract of every journal: accepted tasks are durable, one writer, final states, fencing by
epoch.

SQLite is the only one now; a second implementation must pass the same suite.
"""

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import apsw
import pytest

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.dispatch import errors, model
from kilnwork.dispatch.journal import port, task_rows
from kilnwork.dispatch.journal.sqlite import journal, queries, statements
from kilnwork.dispatch.machine import instructions, records, task_starts, transition_table
from kilnwork.kit import ids
from support import waiting

SUBMITTER = """
import asyncio, sys
from pathlib import Path
from kilnwork.api import task
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import hub
from kilnwork.dispatch.journal.sqlite import journal
from kilnwork.kit import clock, ids

class RefuseAll:
    async def verify(self, namespace, cluster, credential):
        return False

async def main(directory):
    dispatcher = hub.Hub(
        journal.Journal(directory / "journal.db"), clock=clock.SystemClock(), verifier=RefuseAll(),
        logs_dir=directory / "logs", entropy=ids.system_entropy(),
    )
    await dispatcher.start(directory / "run" / "s")
    async def submit_forever():
        while True:
            spec = task.TaskSpec(command=("true",))
            one = model.Submission(task=ids.new_task_id(), namespace="ns", name="t", spec=spec)
            await dispatcher.submit(one)
            sys.stdout.write(ids.task_text(one.task) + "\\n")
            sys.stdout.flush()
    await asyncio.gather(*(submit_forever() for _ in range(8)))

asyncio.run(main(Path(sys.argv[1])))
"""


def a_record(number: int = 1, *, run: int = 1) -> records.Task:
    submission = model.Submission(
        task=ids.TaskId(number.to_bytes(16, "big")),
        namespace="ns",
        name=f"t-{number}",
        spec=api_task.TaskSpec(command=("true",), run=run),
    )
    task = task_starts.new_run(number, submission, records.Cluster(("ns", "default")))
    task.created = 100.0
    return task


def write(store: journal.Journal, batch: instructions.Batch) -> BaseException | None:
    """Write one batch and wait; return the error if the journal failed."""
    ended = threading.Event()
    failures: list[BaseException] = []

    def failed(error: BaseException) -> None:
        failures.append(error)
        ended.set()

    store.start(lambda call: call(), on_failure=failed)
    store.write(batch, lambda _: ended.set())
    assert ended.wait(30)
    return failures[0] if failures else None


def test_written_task_and_attempts_are_read_unchanged(tmp_path: Path) -> None:
    store = journal.Journal(tmp_path / "journal.db")
    store.open()
    worker = records.Worker(
        records.Cluster(("ns", "default")), b"s" * 16, row=1, name="w", pod_uid="u", node="n"
    )
    task = a_record()
    task.state = api_task.State.SUCCESS
    task.attempt, task.attempt_state = 2, transition_table.AttemptState.SUCCEEDED
    task.worker, task.reserved, task.started = worker, 101.0, 102.0
    task.finished, task.exit_code, task.stopped = 103.0, 0, True
    task.result = attempts.Payload("application/json", b"[1]")
    task.parent = attempts.AttemptRef(ids.TaskId(b"p" * 16), 3, 4)
    task.child_key, task.digest = "=k", b"d"
    past = records.PastAttempt(1, 1, 1, 90.0, 91.0, 92.0, "Lost", "WorkerLost", "gone", 137)
    batch = instructions.Batch(dirty={task: None}, workers=[worker], past=[past])
    assert write(store, batch) is None
    reader = queries.Queries(store.path)
    view = reader.task(task.id)
    assert view is not None
    assert (view.state, view.attempt, view.worker, view.node) == ("Success", 2, "w", "n")
    assert (view.result, view.parent, view.stopped) == (task.result, task.parent, True)
    assert (view.created, view.started, view.finished) == (100.0, 102.0, 103.0)
    first, second = reader.attempts(task.id)
    assert (first.ending, first.exit_code, first.ref.attempt) == (attempts.Ending.LOST, 137, 1)
    assert (second.ending, second.worker) == (attempts.Ending.SUCCEEDED, "w")
    assert reader.child(task.parent.task, 3, "=k") is not None
    assert reader.find("ns", "t-1") == view
    assert reader.tasks("ns") == ([view], None)
    reader.close()
    store.close()


def test_journal_uid_stays_across_openings(tmp_path: Path) -> None:
    path, other = tmp_path / "journal.db", tmp_path / "other" / "journal.db"
    first = journal.Journal(path).identify()
    assert first.epoch == 0
    store = journal.Journal(path)
    store.open()
    with pytest.raises(errors.JournalLocked):
        journal.Journal(path).identify()
    store.close()
    assert journal.Journal(path).identify() == (first.uid, 1)
    assert journal.Journal(other).identify().uid != first.uid
    path.unlink()
    assert journal.Journal(path).identify().uid != first.uid


def test_journal_remembers_the_longest_lease_granted(tmp_path: Path) -> None:
    found = []
    for lease_s in (10.0, 92.0, 10.0):
        store = journal.Journal(tmp_path / "journal.db")
        found.append(store.open(lease_s=lease_s).longest_lease_s)
        store.close()
    assert found == [10.0, 92.0, 92.0]


def test_final_state_is_not_overwritten(tmp_path: Path) -> None:
    store = journal.Journal(tmp_path / "journal.db")
    store.open()
    task = a_record()
    task.state, task.finished = api_task.State.KILLED, 5.0
    assert write(store, instructions.Batch(dirty={task: None})) is None
    task.state = api_task.State.SUCCESS
    ended = threading.Event()
    store.write(instructions.Batch(dirty={task: None}), lambda _: ended.set())
    assert ended.wait(30)
    reader = queries.Queries(store.path)
    view = reader.task(task.id)
    assert view is not None
    assert view.state is api_task.State.KILLED
    reader.close()
    store.close()


def test_each_opening_raises_the_epoch(tmp_path: Path) -> None:
    seen = []
    for _ in range(3):
        store = journal.Journal(tmp_path / "journal.db")
        store.open()
        seen.append(store.epoch)
        store.close()
    assert seen == [1, 2, 3]


def test_write_with_a_stale_epoch_is_refused(tmp_path: Path) -> None:
    store = journal.Journal(tmp_path / "journal.db")
    store.open()
    other = sqlite3.connect(tmp_path / "journal.db")
    other.execute("UPDATE leadership SET epoch = epoch + 1")
    other.commit()
    other.close()
    failure = write(store, instructions.Batch(dirty={a_record(): None}))
    assert isinstance(failure, errors.StaleEpoch)
    reader = queries.Queries(store.path)
    assert list(reader.unfinished()) == []
    reader.close()
    store.close()


def test_second_opening_is_refused_with_the_holder_pid(tmp_path: Path) -> None:
    store = journal.Journal(tmp_path / "journal.db")
    store.open()
    with pytest.raises(errors.JournalLocked, match=f"in use by process {os.getpid()}"):
        journal.Journal(tmp_path / "journal.db").open()
    store.close()
    again = journal.Journal(tmp_path / "journal.db")
    again.open()
    again.close()


def test_stale_lock_file_does_not_lock_the_journal(tmp_path: Path) -> None:
    (tmp_path / "journal.lock").write_text("4711\n")
    store = journal.Journal(tmp_path / "journal.db")
    store.open()
    assert store.epoch == 1
    store.close()


def test_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "journal.db").write_bytes(b"not a database, but long enough to be one" * 100)
    with pytest.raises(errors.JournalUnreadable, match="is no journal"):
        journal.Journal(tmp_path / "journal.db").open()


@pytest.mark.parametrize("size", [0, 1, 100, 4096, 8192, -4096])
def test_truncated_journal_is_refused_and_left_untouched(tmp_path: Path, size: int) -> None:
    """An emptied or truncated journal is not taken for a first start, and its bytes stay untouched.

    A negative size is the number of bytes missing at the end.
    """
    path = tmp_path / "journal.db"
    made = journal.Journal(path)
    made.open()
    made.close()
    os.truncate(path, size if size >= 0 else path.stat().st_size + size)
    before = path.read_bytes()
    for opened in (made.open, made.identify, made.open):
        with pytest.raises(errors.JournalUnreadable, match=r"move journal\.db\* elsewhere"):
            opened()
    assert path.read_bytes() == before
    made.close()
    for file in tmp_path.glob("journal.db*"):
        file.unlink()
    made.open()
    made.close()


def test_empty_journal_beside_a_wal_is_refused_and_the_wal_kept(tmp_path: Path) -> None:
    """SQLite would remove the WAL. No mark of ours is there either, as with an older kilnwork."""
    path, log = tmp_path / "journal.db", tmp_path / "journal.db-wal"
    path.touch()
    log.write_bytes(b"some pages")
    with pytest.raises(errors.JournalUnreadable, match="held data before"):
        journal.Journal(path).open()
    assert log.read_bytes() == b"some pages"


def test_empty_file_of_an_interrupted_first_start_is_initialized(tmp_path: Path) -> None:
    """The file of a first start is empty until the first table is created."""
    (tmp_path / "journal.db").touch()
    made = journal.Journal(tmp_path / "journal.db")
    made.open()
    made.close()
    with contextlib.closing(apsw.Connection(str(tmp_path / "journal.db"))) as connection:
        assert connection.pragma("user_version") > 0


def test_journal_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    with contextlib.closing(apsw.Connection(str(tmp_path / "journal.db"))) as connection:
        connection.pragma("user_version", 99)
    with pytest.raises(errors.JournalUnreadable, match="version 99"):
        journal.Journal(tmp_path / "journal.db").open()


def test_migrations_are_numbered_without_a_gap() -> None:
    directory = Path(statements.__file__).parent / "sql"
    numbers = sorted(int(path.name[:3]) for path in directory.glob("[0-9]*.sql"))
    assert numbers == list(range(1, len(statements.MIGRATIONS) + 1))


def test_write_waits_while_the_disk_is_full(tmp_path: Path) -> None:
    store = journal.Journal(tmp_path / "journal.db", retry_s=0.01)
    store.open()
    connection = store._connection
    assert connection is not None
    connection.pragma("max_page_count", connection.pragma("page_count"))
    ended = threading.Event()
    store.start(lambda call: call(), on_failure=lambda error: None)
    many = {a_record(number): None for number in range(1, 200)}
    store.write(instructions.Batch(dirty=many), lambda _: ended.set())
    waiting.wait_until(lambda: store.trouble, what="the journal reports its trouble")
    assert not ended.is_set()
    connection.pragma("max_page_count", 1_000_000)
    assert ended.wait(30)
    assert store.trouble is None
    store.close()


@pytest.mark.parametrize("after", [5, 40, 150])
def test_sigkill_loses_no_acknowledged_submit(tmp_path: Path, after: int) -> None:
    argv = [sys.executable, "-c", SUBMITTER, str(tmp_path)]
    acknowledged = []
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            acknowledged.append(line.strip())
            if len(acknowledged) == after:
                process.send_signal(signal.SIGKILL)
    whole = [line for line in acknowledged if len(line) == 36]
    assert len(whole) >= after
    store = journal.Journal(tmp_path / "journal.db")
    store.open()
    reader = queries.Queries(store.path)
    kept = {ids.task_text(row.task) for row in reader.unfinished()}
    reader.close()
    store.close()
    assert set(whole) <= kept


async def test_commit_callbacks_are_called_in_order(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    store = journal.Journal(tmp_path / "journal.db")
    store.open()
    store.start(loop.call_soon_threadsafe, on_failure=lambda error: None)
    order: list[int] = []
    last = asyncio.Event()
    for number in range(1, 101):
        batch = instructions.Batch(dirty={a_record(number): None})

        def done(_: port.Written, number: int = number) -> None:
            order.append(number)
            if number == 100:
                last.set()

        store.write(batch, done)
    async with asyncio.timeout(30):
        await last.wait()
    assert order == list(range(1, 101))
    store.close()


def test_unused_templates_are_removed_at_the_next_opening(tmp_path: Path) -> None:
    store = journal.Journal(tmp_path / "journal.db")
    store.open()
    cluster = records.Cluster(("ns", "default"))
    code = "sha256:" + "ab" * 32
    specs = [api_task.TaskSpec(call=api_task.Call(function=name, code=code)) for name in "fg"]
    used, unused = (records.Template(n, cluster, spec) for n, spec in enumerate(specs, start=1))
    task = a_record()
    task.template, task.spec = used, used.spec
    batch = instructions.Batch(dirty={task: None}, templates=[used, unused])
    assert write(store, batch) is None
    store.close()
    again = journal.Journal(tmp_path / "journal.db")
    opened = again.open()
    assert opened.saved is not None
    assert [row for row, _, _ in opened.saved.templates()] == [1]
    assert opened.next_template_row == 2
    with contextlib.closing(apsw.Connection(str(tmp_path / "journal.db"))) as connection:
        assert connection.execute("SELECT user FROM blob_use").fetchall() == [(-1,)]
    again.close()


def test_only_short_arguments_are_stored_in_the_row_of_a_call(tmp_path: Path) -> None:
    """Longer ones have a row of their own, which is written and deleted with that of the call."""
    store = journal.Journal(tmp_path / "journal.db")
    store.open()
    template = records.Template(1, records.Cluster(("ns", "default")), api_task.TaskSpec())

    def call(number: int, data: bytes, *, row: int) -> records.Task:
        task = a_record(number)
        task.row, task.template, task.spec = row, template, template.spec
        task.arguments = attempts.Payload(attempts.JSON, data)
        return task

    short, long = b"a" * task_rows.MAX_ROW_ARGUMENTS, b"b" * (task_rows.MAX_ROW_ARGUMENTS + 1)
    first, second = call(1, short, row=1), call(2, long, row=2)
    not_kept = call(2, b"c" * 200, row=3)  # the task of row 2 has its id
    batch = instructions.Batch(
        dirty={first: None, second: None, not_kept: None}, templates=[template]
    )
    assert write(store, batch) is None
    for task, data in ((first, short), (second, long)):
        found = store.reader.task_row(task.id)
        assert found is not None
        assert found.argument_payload is not None
        assert found.argument_payload.data == found.arguments == data
    with contextlib.closing(apsw.Connection(str(store.path))) as connection:
        in_rows = connection.execute("SELECT row, length(arguments) FROM task").fetchall()
        assert in_rows == [(1, len(short)), (2, None)]
        assert connection.execute("SELECT row FROM argument").fetchall() == [(2,)]
        ended = threading.Event()
        store.write(instructions.Batch(forgotten={second.id: None}), lambda _: ended.set())
        assert ended.wait(30)
        assert connection.execute("SELECT row FROM argument").fetchall() == []
    store.close()


def test_journal_migrated_from_version_2_equals_a_fresh_one(tmp_path: Path) -> None:
    def schema(path: Path) -> list[tuple[str, str]]:
        with contextlib.closing(apsw.Connection(str(path))) as connection:
            statement = "SELECT name, sql FROM sqlite_schema ORDER BY name"
            return list(connection.execute(statement))

    with contextlib.closing(apsw.Connection(str(tmp_path / "old.db"))) as connection:
        for script in statements.MIGRATIONS[:2]:
            connection.execute(script)
        connection.pragma("user_version", 2)
    for name in ("old", "new"):
        store = journal.Journal(tmp_path / f"{name}.db")
        store.open()
        store.close()
    assert schema(tmp_path / "old.db") == schema(tmp_path / "new.db")
