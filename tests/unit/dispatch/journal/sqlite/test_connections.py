"""Connections to the journal: private files, whole transactions, and files that are no journal."""

from pathlib import Path

import apsw
import pytest

from kilnwork.dispatch import errors
from kilnwork.dispatch.journal.sqlite import connections, statements


def test_a_new_journal_is_private_and_of_the_newest_version(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    connection = connections.writing(path)
    try:
        assert connection.pragma("user_version") == len(statements.MIGRATIONS)
        assert connection.pragma("journal_mode") == "wal"
        assert {file.stat().st_mode & 0o777 for file in tmp_path.glob("journal.db*")} == {0o600}
    finally:
        connection.close()


def test_a_transaction_is_all_or_nothing(tmp_path: Path) -> None:
    connection = connections.writing(tmp_path / "journal.db")
    connection.execute("CREATE TABLE t (n)")
    with connections.transaction(connection) as cursor:
        cursor.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(apsw.SQLError), connections.transaction(connection) as cursor:
        cursor.execute("INSERT INTO t VALUES (2); INSERT INTO missing VALUES (2)")
    assert connection.execute("SELECT n FROM t").fetchall() == [(1,)]
    reading = connections.reading(tmp_path / "journal.db")
    with pytest.raises(apsw.ReadOnlyError):
        reading.execute("INSERT INTO t VALUES (3)")
    reading.close()
    connection.close()


def test_a_newer_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    connection = connections.writing(path)
    newer = len(statements.MIGRATIONS) + 1
    connection.execute(f"PRAGMA user_version = {newer}")
    connection.close()
    with pytest.raises(errors.JournalUnreadable, match=f"has version {newer}"):
        connections.writing(path)


def test_file_that_is_no_journal_is_named_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(b"x" * 4096)
    with pytest.raises(errors.JournalUnreadable, match="is no journal of kilnwork; nothing was"):
        connections.writing(path)


def test_other_sqlite_errors_are_unchanged(tmp_path: Path) -> None:
    assert connections.readable_error(tmp_path, apsw.BusyError("locked")) is None
    with pytest.raises(apsw.BusyError), connections.readable(tmp_path):
        raise apsw.BusyError("locked")
    damaged = pytest.raises(errors.JournalUnreadable, match="is damaged")
    with damaged, connections.readable(tmp_path):
        raise apsw.CorruptError("malformed")
