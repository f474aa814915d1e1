"""SQLite connections of the journal: opening, transactions, migrations, and translation of errors.

Used by `journal` and `queries`, and by `jobs.old_database_import` for another database. Knows
tables only through `statements`.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from kilnwork.dispatch import errors
from kilnwork.dispatch.journal.sqlite import statements
from kilnwork.kit import database_loss_check

_REMEDY = (
    "nothing was deleted. Put a backup in its place, or move {}* elsewhere and start again: Task "
    "objects that are not finished run again, spawned tasks are lost"
)


def writing(path: Path) -> apsw.Connection:
    """Open the connection that writes to the journal at `path`, and migrate its tables.

    Raises `JournalUnreadable`.
    """
    try:
        # Before SQLite opens the file: it takes an empty one for a new database.
        database_loss_check.check_content(path)
    except database_loss_check.ContentLost as error:
        raise errors.JournalUnreadable(f"{error}; {_REMEDY.format(path.name)}") from error
    # Before SQLite opens the file, which it would create with the mode of the umask.
    _make_private(path)
    with readable(path):
        connection = apsw.Connection(str(path))
        try:
            connection.set_busy_timeout(5000)
            connection.pragma("journal_mode", "wal")
            # NORMAL may lose the last commits in a power failure, although peers know of them
            # already.
            connection.pragma("synchronous", "full")
            # For `Journal.identify`; a `Committer` copies the log by itself.
            connection.pragma("wal_autocheckpoint", 4000)
            _migrate(connection, path)
            # Only now: from here on, an empty file is one that has lost its content.
            database_loss_check.write_marker(path)
        except BaseException:
            connection.close()
            raise
        return connection


def reading(path: Path) -> apsw.Connection:
    """Open a read-only connection to the journal at `path`."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    # Readers must wait for a moment when the log is recovered or removed (SQLITE_BUSY).
    connection.set_busy_timeout(5000)
    return connection


@contextmanager
def transaction(connection: apsw.Connection) -> Iterator[apsw.Cursor]:
    """Run the body of a `with` statement in a transaction, which an exception rolls back."""
    cursor = connection.cursor()
    # With the write lock: a transaction that asks for it after a read can fail at once, whatever
    # the busy timeout (SQLITE_BUSY_SNAPSHOT).
    cursor.execute("BEGIN IMMEDIATE")
    try:
        yield cursor
        cursor.execute("COMMIT")
    except BaseException:
        # After some errors, such as a full disk, SQLite has rolled back by itself.
        if connection.in_transaction:
            cursor.execute("ROLLBACK")
        raise


def readable_error(path: Path, error: apsw.Error) -> errors.JournalUnreadable | None:
    """Return an error of SQLite as `JournalUnreadable`, or None if it is not about the file
    itself.
    """
    if isinstance(error, apsw.NotADBError):
        return errors.JournalUnreadable(
            f"{path} is no journal of kilnwork; {_REMEDY.format(path.name)}"
        )
    if isinstance(error, apsw.CorruptError):
        return errors.JournalUnreadable(f"{path} is damaged ({error}); {_REMEDY.format(path.name)}")
    return None


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn SQLite's errors about the file at `path` into `JournalUnreadable`."""
    try:
        yield
    except apsw.Error as error:
        found = readable_error(path, error)
        if found is None:
            raise
        raise found from error


def _make_private(path: Path) -> None:
    """Make the journal readable for its owner only, whatever the umask.

    It holds arguments and results. SQLite gives the files beside it the same mode.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    for file in path.parent.glob(f"{path.name}*"):
        file.chmod(0o600)


def _migrate(connection: apsw.Connection, path: Path) -> None:
    """Migrate the tables to the newest version; each step is one transaction."""
    version = int(connection.pragma("user_version"))
    # A newer table may have columns that this version would leave out of its rows.
    if version > len(statements.MIGRATIONS):
        raise errors.JournalUnreadable(
            f"{path} has version {version}, this kilnwork knows {len(statements.MIGRATIONS)}: "
            "use the newer kilnwork, or another directory"
        )
    for number, script in enumerate(statements.MIGRATIONS[version:], start=version + 1):
        with transaction(connection) as cursor:
            cursor.execute(script)
            # In the same transaction: a step and its number are on disk together.
            cursor.execute(f"PRAGMA user_version = {number}")
