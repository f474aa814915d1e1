"""A database that lost its content is no new one."""

from pathlib import Path

import apsw
import pytest

from kilnwork.kit import database_loss_check


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "journal.db"
    connection = apsw.Connection(str(made))
    connection.execute("CREATE TABLE a (x)")
    connection.close()
    return made


def test_a_database_with_tables_is_good(path: Path) -> None:
    database_loss_check.write_marker(path)
    database_loss_check.write_marker(path)
    database_loss_check.check_content(path)
    assert database_loss_check.marker_path(path).name == "journal.db.made"


def test_a_marked_database_may_not_be_empty(path: Path) -> None:
    database_loss_check.write_marker(path)
    path.write_bytes(b"")
    with pytest.raises(database_loss_check.ContentLost, match="has 0 bytes"):
        database_loss_check.check_content(path)
    path.write_bytes(b"x" * 511)
    with pytest.raises(database_loss_check.ContentLost):
        database_loss_check.check_content(path)


def test_a_log_without_its_database_is_lost_content(path: Path) -> None:
    path.write_bytes(b"")
    database_loss_check.check_content(path)
    path.with_name("journal.db-wal").write_bytes(b"x")
    with pytest.raises(database_loss_check.ContentLost):
        database_loss_check.check_content(path)


def test_a_missing_database_is_a_new_one(tmp_path: Path) -> None:
    database_loss_check.check_content(tmp_path / "journal.db")
