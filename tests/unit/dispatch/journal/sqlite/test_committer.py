"""Transactions follow each other on a thread, and the log is copied beside them."""

import itertools
import queue
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from kilnwork.dispatch.journal.sqlite import committer, connections

PAGE_BYTES = 4096


class Written:
    """A file with one table, and what its committer tells."""

    def __init__(self, path: Path, *, retry_s: float = 0.01, log_pages: int = 50) -> None:
        self.path = path
        self.log = path.with_name(f"{path.name}-wal")
        self.connection = apsw.Connection(str(path))
        self.connection.pragma("journal_mode", "wal")
        self.connection.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, filling BLOB)")
        self.committed: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.failures: list[BaseException] = []
        self.committer = committer.Committer(
            self.connection, path, retry_s=retry_s, log_pages=log_pages
        )
        self.committer.start(self.committed.put, on_failure=self.failures.append)

    def insert(self, n: int) -> None:
        with connections.transaction(self.connection) as cursor:
            cursor.execute("INSERT INTO t VALUES (?, zeroblob(9000))", (n,))

    def put(self, commit: Callable[[], None]) -> None:
        """Hand over, and wait until that is reported."""
        done: list[bool] = []
        self.committer.put(commit, lambda: done.append(True))
        self.committed.get(timeout=10)()
        assert done or self.failures

    def close(self) -> int:
        """How many rows another connection finds."""
        self.committer.close()
        self.connection.close()
        reader = apsw.Connection(str(self.path))
        try:
            return int(reader.execute("SELECT count(*) FROM t").get)
        finally:
            reader.close()


def test_log_starts_over_while_commits_go_on(tmp_path: Path) -> None:
    written = Written(tmp_path / "some.db")
    longest = 0
    for n in range(1500):
        written.put(lambda n=n: written.insert(n))  # type: ignore[misc]
        longest = max(longest, written.log.stat().st_size // PAGE_BYTES)
    assert longest < 1500
    assert written.close() == 1500
    assert not written.log.exists()


def test_long_reader_does_not_block_commits(tmp_path: Path) -> None:
    written = Written(tmp_path / "some.db", log_pages=10)
    reader = apsw.Connection(str(tmp_path / "some.db"))
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM t").get == 0
    for n in range(100):
        written.put(lambda n=n: written.insert(n))  # type: ignore[misc]
    assert reader.execute("SELECT count(*) FROM t").get == 0
    reader.close()
    assert written.close() == 100


def test_copy_that_cannot_open_the_file_is_logged_and_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    written = Written(tmp_path / "some.db", log_pages=20)

    def refuse(*_: object) -> None:
        raise apsw.CantOpenError("too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(apsw, "Connection", refuse)
        for n in range(100):
            written.put(lambda n=n: written.insert(n))  # type: ignore[misc]
        written.committer.close()
    assert written.log.stat().st_size < 2 * committer.STEP_BYTES
    assert not written.failures
    messages = {(one.message, getattr(one, "error", "")) for one in caplog.records}
    assert messages == {("the log was not copied, which is tried again", "too many open files")}
    assert written.close() == 100


def test_refused_commit_is_retried(tmp_path: Path) -> None:
    written = Written(tmp_path / "some.db")
    tries = itertools.count(1)

    def commit() -> None:
        if next(tries) < 3:
            raise apsw.FullError("database or disk is full")
        assert written.committer.trouble is not None
        written.insert(1)

    written.put(commit)
    assert written.committer.trouble is None
    assert written.close() == 1


def test_close_does_not_wait_for_a_disk_that_refuses(tmp_path: Path) -> None:
    written = Written(tmp_path / "some.db", retry_s=60)

    def commit() -> None:
        raise apsw.IOError("disk I/O error")

    written.committer.put(commit, lambda: pytest.fail("nothing was written"))
    assert written.close() == 0


def test_error_that_no_retry_mends_is_reported(tmp_path: Path) -> None:
    written = Written(tmp_path / "some.db")

    def commit() -> None:
        written.insert(1)
        written.insert(1)

    written.put(commit)
    assert isinstance(written.failures[0], apsw.ConstraintError)
    assert written.close() == 1


def test_runtime_error_of_a_commit_is_reported(tmp_path: Path) -> None:
    written = Written(tmp_path / "some.db")

    def commit() -> None:
        raise RuntimeError("dictionary changed size during iteration")

    written.put(commit)
    assert isinstance(written.failures[0], RuntimeError)
    assert written.close() == 0


@pytest.mark.parametrize("is_refused", [False, True])
def test_closed_loop_ends_the_thread_with_a_warning(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    is_refused: bool,  # noqa: FBT001
) -> None:
    written = Written(tmp_path / "some.db")
    written.committer.close()

    def call_soon(_: Callable[[], None]) -> None:
        raise RuntimeError("Event loop is closed")

    def commit() -> None:
        if is_refused:
            raise apsw.ConstraintError("UNIQUE constraint failed")

    again = committer.Committer(written.connection, written.path, retry_s=0.01)
    again.start(call_soon, on_failure=written.failures.append)
    again.put(commit, lambda: pytest.fail("the loop is closed"))
    again.close()
    assert [one.message for one in caplog.records] == ["the loop ended before its writer"]
    assert written.close() == 0


def test_small_commits_do_not_make_the_log_longer(tmp_path: Path) -> None:
    written = Written(tmp_path / "some.db", log_pages=4000)
    lengths = []
    for n in range(100):
        written.put(lambda n=n: written.insert(n))  # type: ignore[misc]
        lengths.append(written.log.stat().st_size)
    assert len(set(lengths)) <= 4
    assert all(length >= 1 << 20 for length in lengths)
    assert written.close() == 100


def test_preallocated_log_is_ignored_after_a_crash(tmp_path: Path) -> None:
    written = Written(tmp_path / "some.db")
    for n in range(20):
        written.put(lambda n=n: written.insert(n))  # type: ignore[misc]
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    for name in ("some.db", "some.db-wal"):
        (crashed / name).write_bytes((tmp_path / name).read_bytes())
    after = apsw.Connection(str(crashed / "some.db"))
    assert after.execute("SELECT count(*) FROM t").get == 20
    assert after.pragma("integrity_check") == "ok"
    after.execute("INSERT INTO t VALUES (100, NULL)")
    after.close()
    assert written.close() == 20


def test_failed_preallocation_is_ignored(tmp_path: Path) -> None:
    room = committer.Preallocation(tmp_path / "nothing.db")
    room.extend(1)
    assert list(tmp_path.iterdir()) == []
