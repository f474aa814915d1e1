"""Journals of other days: what can be read is taken up, what cannot says so. Files are private."""

import sqlite3
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kilnwork.api import task as api_task
from kilnwork.channel import messages
from kilnwork.dispatch import errors, model
from kilnwork.dispatch.hub import hub
from kilnwork.dispatch.journal.sqlite import journal, statements
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids
from support import raw_worker, verifiers

SPEC = api_task.TaskSpec(command=("true",))


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[hub.Hub]:
    dispatcher = hub.Hub(
        journal.Journal(folder / "journal.db"),
        clock=clocks.SystemClock(),
        verifier=verifiers.OneSecret(),
        logs_dir=folder / "logs",
        entropy=ids.system_entropy(),
    )
    await dispatcher.start(folder / "run" / "channel.sock")
    try:
        yield dispatcher
    finally:
        await dispatcher.stop()


def a_task(name: str) -> model.Submission:
    return model.Submission(task=ids.new_task_id(), namespace="ns", name=name, spec=SPEC)


def in_journal(folder: Path, statement: str, *values: object) -> None:
    with sqlite3.connect(folder / "journal.db") as db:
        db.execute(statement, values)
    db.close()


async def test_a_spec_that_cannot_be_read_fails_its_task_alone(tmp_path: Path) -> None:
    bad, good = a_task("bad"), a_task("good")
    async with running(tmp_path) as first:
        for one in (bad, good):
            await first.submit(one)
    spec = b'{"command":["true"],"flux":1}'
    in_journal(tmp_path, "UPDATE task SET spec = ? WHERE name = 'bad'", spec)
    async with running(tmp_path) as second:
        await second.kill(ids.new_task_id(), reason="Killed")
        view = second.view(bad.task)
        assert view is not None
        assert (view.state, view.reason) == ("Failed", "InvalidSpec")
        assert "cannot read" in view.message
        other = second.view(good.task)
        assert other is not None
        assert other.state == "Pending"


async def test_a_spec_that_cannot_be_read_lets_its_attempt_end(tmp_path: Path) -> None:
    one = a_task("bad")
    async with running(tmp_path) as first:
        worker = raw_worker.RawWorker(tmp_path / "run" / "channel.sock")
        await worker.connect()
        await first.submit(one)
        run = await worker.expect(messages.Run)
        worker.started(run.ref)
        await worker.acknowledged(1)
    await worker.disconnect()
    in_journal(tmp_path, "UPDATE task SET spec = ?", b"nothing")
    async with running(tmp_path) as second:
        worker.running = [run.ref]
        await worker.connect()
        await worker.expect(messages.Welcome)
        await worker.acknowledged(worker.succeed(run.ref))
        view = second.view(one.task)
        assert view is not None
        assert view.state == "Success"
        await worker.disconnect()


async def test_a_journal_of_version_1_is_taken_up(tmp_path: Path) -> None:
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
    async with running(tmp_path) as dispatcher:
        view = dispatcher.view(task)
        assert view is not None
        assert (view.state, view.created, view.suspended) == ("Pending", 5.0, False)


async def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    async with running(tmp_path) as dispatcher:
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
async def test_a_broken_journal_is_named_and_left_alone(tmp_path: Path, damage: str) -> None:
    async with running(tmp_path) as first:
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
        async with running(tmp_path):
            pass
    assert file.read_bytes() == broken


async def test_a_clock_turned_back_puts_no_retry_off_for_long(tmp_path: Path) -> None:
    async with running(tmp_path) as first:
        await first.submit(a_task("t"))
    far = clocks.SystemClock().wall() + 86_400
    in_journal(tmp_path, "UPDATE task SET reason = 'RetryBackoff', attempt = 1, due = ?", far)
    in_journal(tmp_path, 'UPDATE task SET spec = \'{"retry":{"maxDelaySeconds":0.1}}\'')
    async with running(tmp_path), raw_worker.RawWorker(tmp_path / "run" / "channel.sock") as worker:
        assert (await worker.expect(messages.Run)).ref.attempt == 2
