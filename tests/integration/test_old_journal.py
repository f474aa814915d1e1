"""Journals of earlier versions: readable ones are migrated, others are errors. Files are
private.
"""

import sqlite3
import stat
from pathlib import Path

import pytest

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.channel import messages
from kilnwork.dispatch import errors, model
from kilnwork.dispatch.journal.sqlite import journal, statements
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids
from support import hubs, raw_worker

SPEC = api_task.TaskSpec(command=("true",))


def a_task(name: str) -> model.Submission:
    return model.Submission(task=ids.new_task_id(), namespace="ns", name=name, spec=SPEC)


def in_journal(directory: Path, statement: str, *values: object) -> None:
    with sqlite3.connect(directory / "journal.db") as db:
        db.execute(statement, values)
    db.close()


async def test_spec_that_cannot_be_read_fails_its_task_alone(tmp_path: Path) -> None:
    bad, good = a_task("bad"), a_task("good")
    async with hubs.running(tmp_path) as first:
        for one in (bad, good):
            await first.submit(one)
    spec = b'{"command":["true"],"flux":1}'
    in_journal(tmp_path, "UPDATE task SET spec = ? WHERE name = 'bad'", spec)
    async with hubs.running(tmp_path) as second:
        await second.kill(ids.new_task_id(), reason="Killed")
        view = hubs.view(second, bad.task)
        assert (view.state, view.reason) == ("Failed", "InvalidSpec")
        assert "cannot read" in view.message
        other = hubs.view(second, good.task)
        assert other.state == "Pending"


async def test_spec_that_cannot_be_read_lets_its_attempt_end(tmp_path: Path) -> None:
    one = a_task("bad")
    async with hubs.running(tmp_path) as first:
        worker = raw_worker.RawWorker(tmp_path / "run" / "channel.sock")
        await worker.connect()
        await first.submit(one)
        run = await worker.start_next_run()
    await worker.disconnect()
    in_journal(tmp_path, "UPDATE task SET spec = ?", b"nothing")
    async with hubs.running(tmp_path) as second:
        worker.running = [run.ref]
        await worker.connect()
        await worker.expect(messages.Welcome)
        await worker.wait_until_acknowledged(worker.succeed(run.ref))
        view = hubs.view(second, one.task)
        assert view.state == "Success"
        await worker.disconnect()


async def test_journal_of_version_1_is_migrated(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "journal.db") as db:
        db.executescript(statements.MIGRATIONS[0])
        db.execute("PRAGMA user_version = 1")
        task = ids.new_task_id()
        db.execute(
            "INSERT INTO task (row, task, run, namespace, name, cluster, declared, spec, created,"
            " state, reason, message, attempt, failures, losses, excused, due) VALUES"
            " (1, ?, 1, 'ns', 't', 'default', 1, '{\"command\":[\"true\"]}', 5.0, 'Pending', '',"
            " '', 0, 0, 0, 0, 0)",
            (task,),
        )
    db.close()
    async with hubs.running(tmp_path) as dispatcher:
        view = hubs.view(dispatcher, task)
        assert (view.state, view.created, view.suspended) == ("Pending", 5.0, False)


VERSION_4 = """
INSERT INTO template VALUES (1, 'ns', '{"call":{"function":"sums:add"}}');
INSERT INTO worker VALUES (1, X'73737373737373737373737373737373', 'ns', 'default', 'w', 'u', 'n');
INSERT INTO task (row, task, run, namespace, cluster, declared, spec, created, state, reason,
    message, attempt, failures, losses, excused, due, template, arguments_type, arguments, needs,
    source, suspended, child_key)
VALUES (1, X'00000000000000000000000000000001', 1, 'ns', 'default', 0, X'', 5.0, 'Pending',
    'NoFreeSlot', '', 0, 0, 0, 0, 0.0, 1, 'application/json', X'5B5D',
    X'00000000000000000000000000000002', X'64', 1, '=k');
INSERT INTO task (row, task, run, namespace, name, cluster, declared, spec, created, pending_since,
    state, reason, message, attempt, attempt_state, failures, losses, excused, worker, reserved,
    attempt_started, started, finished, exit_code, media_type, result, stopped, due, parent,
    parent_run, parent_attempt, digest)
VALUES (2, X'00000000000000000000000000000002', 3, 'ns', 't', 'default', 1,
    '{"command":["true"],"run":3}', 5.0, 4.0, 'Running', 'Running', 'm', 2, 'Started', 1, 0, 0, 1,
    6.0, 7.0, 6.5, NULL, NULL, NULL, NULL, NULL, 0.0,
    X'00000000000000000000000000000009', 1, 2, X'AA');
PRAGMA user_version = 4;
"""
"""What the version before one declaration of tasks wrote: a call and a declared command."""


async def test_journal_of_version_4_is_migrated(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "journal.db") as db:
        for script in (*statements.MIGRATIONS[:4], VERSION_4):
            db.executescript(script)
    db.close()
    call, command = (ids.TaskId(number.to_bytes(16, "big")) for number in (1, 2))
    store = journal.Journal(tmp_path / "journal.db")
    opened = store.open()
    assert opened.saved is not None
    first, second = opened.saved.unfinished()
    assert (first.task, first.needed, first.source, first.child_key) == (
        call,
        (command,),
        b"d",
        "=k",
    )
    assert first.argument_payload == attempts.Payload(attempts.JSON, b"[]")
    assert (second.run, second.attempt, second.worker_name, second.digest) == (3, 2, "w", b"\xaa")
    store.close()
    async with hubs.running(tmp_path) as dispatcher:
        view = hubs.view(dispatcher, call)
        assert (view.state, view.suspended, view.function) == ("Pending", True, "sums:add")
        view = hubs.view(dispatcher, command)
        assert (view.state, view.run, view.attempt, view.failures) == ("Running", 3, 2, 1)
        assert (view.started, view.node) == (6.5, "n")
        assert view.parent == attempts.AttemptRef(ids.TaskId((9).to_bytes(16, "big")), 1, 2)


async def test_long_arguments_of_version_6_are_still_read(tmp_path: Path) -> None:
    """Beside those of new calls, which have a row of their own."""
    data = b"[" + b"1," * 300 + b"1]"
    with sqlite3.connect(tmp_path / "journal.db") as db:
        for script in (*statements.MIGRATIONS[:6], VERSION_4):
            db.executescript(script)
        db.execute("UPDATE task SET arguments = ? WHERE row = 1", (data,))
        db.execute("PRAGMA user_version = 6")
    db.close()
    call = ids.TaskId((1).to_bytes(16, "big"))
    for _ in range(2):
        store = journal.Journal(tmp_path / "journal.db")
        opened = store.open()
        assert opened.saved is not None
        first, _ = opened.saved.unfinished()
        assert first.argument_payload == attempts.Payload(attempts.JSON, data)
        store.close()
    async with hubs.running(tmp_path) as dispatcher:
        await dispatcher.kill(call, reason="Killed")
        await dispatcher.retry(call)
        view = dispatcher.view(call)
        assert view is not None
        assert (view.run, view.state) == (2, "Pending")
    with sqlite3.connect(tmp_path / "journal.db") as db:
        kept = db.execute("SELECT row, run, arguments FROM task WHERE task = ?", (call,)).fetchall()
        assert [(run, found) for _, run, found in kept] == [(1, data), (2, None)]
        assert db.execute("SELECT row, data FROM argument").fetchall() == [(kept[1][0], data)]
    db.close()


async def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    async with hubs.running(tmp_path) as dispatcher:
        async with raw_worker.RawWorker(tmp_path / "run" / "channel.sock") as worker:
            await dispatcher.submit(a_task("t"))
            run = await worker.expect(messages.Run)
            worker.say(messages.Log(run.ref, 0, b"secret\n"))
            await worker.expect(messages.LogKept)
        found = [tmp_path / "logs", *(tmp_path / "logs").rglob("*"), *tmp_path.glob("journal.*")]
        assert len(found) >= 6, found
        for path in found:
            wanted = 0o700 if path.is_dir() else 0o600
            assert stat.S_IMODE(path.stat().st_mode) == wanted, path


@pytest.mark.parametrize("damage", ["truncated", "garbage", "page"])
async def test_corrupt_journal_is_named_and_unchanged(tmp_path: Path, damage: str) -> None:
    async with hubs.running(tmp_path) as first:
        for number in range(30):
            await first.submit(a_task(f"t-{number}"))
    file = tmp_path / "journal.db"
    content = file.read_bytes()
    half = len(content) // 2
    broken = {
        "truncated": content[:half],
        "garbage": b"\xff" * len(content),
        "page": content[:4096] + b"\xff" * 4096 + content[8192:],
    }[damage]
    file.write_bytes(broken)
    with pytest.raises(errors.JournalUnreadable, match=r"journal\.db"):
        async with hubs.running(tmp_path):
            pass
    assert file.read_bytes() == broken


async def test_clock_turned_back_does_not_delay_retries_for_long(tmp_path: Path) -> None:
    async with hubs.running(tmp_path) as first:
        await first.submit(a_task("t"))
    far = clocks.SystemClock().wall() + 86_400
    in_journal(tmp_path, "UPDATE task SET reason = 'RetryBackoff', attempt = 1, due = ?", far)
    in_journal(tmp_path, 'UPDATE task SET spec = \'{"retry":{"maxDelaySeconds":0.1}}\'')
    async with (
        hubs.running(tmp_path),
        raw_worker.RawWorker(tmp_path / "run" / "channel.sock") as worker,
    ):
        assert (await worker.expect(messages.Run)).ref.attempt == 2
