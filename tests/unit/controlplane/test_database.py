"""The durable copy of the store: what is committed is there after a restart."""

import threading
from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest

from kilnwork.controlplane import database, errors, store_types

KEY = store_types.Key("configmaps", "ns", "a")


class OpenedDatabase:
    """A database with what its thread reported."""

    def __init__(self, path: Path) -> None:
        self.committed: list[int] = []
        self.failed: list[int] = []
        self.refused = threading.Event()
        self.database = database.Database(path, committed=self._note, failed=self._fail)

    def _note(self, rows: Sequence[database.QueuedWrite]) -> None:
        self.committed += [row.change.sequence for row in rows]

    def _fail(self, epoch: int, _error: Exception) -> None:
        self.failed.append(epoch)
        self.refused.set()


def body(sequence: int) -> bytes:
    return b'{"metadata":{"name":"a","resourceVersion":"%d"}}' % sequence


def put(sequence: int, *, previous: bytes | None = None, floor: int = 0) -> database.QueuedWrite:
    action = store_types.Action.MODIFIED if previous else store_types.Action.ADDED
    change = store_types.StoreChange(sequence, action, KEY, body(sequence), previous)
    return database.QueuedWrite(change, body(sequence), floor, 0)


def remove(sequence: int, previous: bytes) -> database.QueuedWrite:
    raw = store_types.last_state(previous, sequence)
    change = store_types.StoreChange(sequence, store_types.Action.DELETED, KEY, raw, previous)
    return database.QueuedWrite(change, None, 0, 0)


def write_rows(path: Path, *rows: database.QueuedWrite) -> OpenedDatabase:
    opened = OpenedDatabase(path)
    opened.database.start()
    for row in rows:
        opened.database.put(row)
    opened.database.stop()
    return opened


def test_new_file_is_empty_and_private(tmp_path: Path) -> None:
    opened = OpenedDatabase(tmp_path / "c.db")
    assert opened.database.start() == database.Loaded([], [])
    opened.database.stop()
    assert (tmp_path / "c.db").stat().st_mode & 0o777 == 0o600


def test_objects_and_changes_are_loaded_in_order(tmp_path: Path) -> None:
    first, second = put(1), put(2, previous=body(1))
    opened = write_rows(tmp_path / "c.db", first, second)
    assert opened.committed == [1, 2]
    loaded = OpenedDatabase(tmp_path / "c.db").database.start()
    assert loaded.stored == [store_types.Stored(KEY, 2, body(2))]
    assert loaded.changes == [first.change, second.change]


def test_deleted_object_is_only_in_the_log(tmp_path: Path) -> None:
    gone = remove(2, body(1))
    write_rows(tmp_path / "c.db", put(1), gone)
    loaded = OpenedDatabase(tmp_path / "c.db").database.start()
    assert loaded.stored == []
    assert loaded.changes[-1] == gone.change


def test_changes_below_the_floor_are_deleted_in_steps(tmp_path: Path) -> None:
    path, rows = tmp_path / "c.db", [put(1)]
    rows += [put(n, previous=body(n - 1)) for n in range(2, 1001)]
    rows.append(put(1001, previous=body(1000), floor=499))
    write_rows(path, *rows)
    assert len(OpenedDatabase(path).database.start().changes) == 1001
    write_rows(path, put(1002, previous=body(1001), floor=500))
    assert OpenedDatabase(path).database.start().changes[0].sequence == 500


def test_failed_write_refuses_the_rest_of_its_epoch(tmp_path: Path) -> None:
    opened = OpenedDatabase(tmp_path / "c.db")
    opened.database.start()
    opened.database.put(put(1))
    opened.database.put(put(1))  # the number is taken
    assert opened.refused.wait(10)
    opened.database.put(put(2, previous=body(1)))
    opened.database.put(put(3, previous=body(1))._replace(epoch=1))
    opened.database.stop()
    assert opened.failed == [0]
    assert opened.committed[-1:] == [3]
    assert 2 not in opened.committed


def test_newer_schema_is_refused_naming_both_versions(tmp_path: Path) -> None:
    write_rows(tmp_path / "c.db")
    apsw.Connection(str(tmp_path / "c.db")).execute("PRAGMA user_version=2")
    with pytest.raises(errors.StoreBroken, match=r"newer kilnwork \(schema 2, this one knows 1\)"):
        OpenedDatabase(tmp_path / "c.db").database.start()


def test_file_that_is_no_database_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "c.db").write_bytes(b"x" * 8192)
    with pytest.raises(errors.StoreBroken, match="nothing was deleted"):
        OpenedDatabase(tmp_path / "c.db").database.start()
    assert (tmp_path / "c.db").read_bytes() == b"x" * 8192


def test_damaged_row_is_refused_naming_the_file_and_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    write_rows(path, put(1), remove(2, body(1)))
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE change SET previous = x'7b' WHERE sequence = 2")
    connection.close()
    opened = OpenedDatabase(path)
    with pytest.raises(errors.StoreBroken, match=r"c\.db: .*Put a backup in its place"):
        opened.database.start()
    opened.database.stop()
