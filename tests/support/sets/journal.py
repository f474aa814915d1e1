"""The tasks of one SyncSet in the journal of a server that is not running.

The journal is read from a copy, so that the server finds it unchanged.
"""

import collections
import shutil
import sqlite3
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """A task that succeeded: its number of runs, and the attempt that was committed."""

    run: int
    attempt: int


def succeeded(data: Path, prefix: str) -> dict[str, Row]:
    """Return the tasks whose names begin with `prefix`, by the rest of their names.

    Raises AssertionError if two have the same name.
    """
    found: dict[str, Row] = {}
    with tempfile.TemporaryDirectory(prefix="kiln-journal-") as directory:
        for path in data.glob("journal.db*"):
            shutil.copy(path, directory)
        connection = sqlite3.connect(Path(directory) / "journal.db")
        rows = connection.execute(
            "SELECT name, run, attempt FROM task WHERE state = 'Success' AND name LIKE ? || '%'",
            (prefix,),
        )
        for name, run, attempt in rows:
            assert name not in found, f"{name} has succeeded twice"
            found[name.removeprefix(prefix)] = Row(run, attempt)
        connection.close()
    return found


def problems(
    found: Mapping[str, Row],
    names: set[str],
    *,
    committed: Mapping[str, Row],
    starts: Sequence[tuple[str, int]],
) -> list[str]:
    """Return what was lost or repeated: nothing if each task of `names` succeeded once, in its
    first run and its last attempt.

    `committed`: what the journal had before. `starts`: task and attempt of each noted start.
    """
    wrong = [f"{name} is {found.get(name)}" for name in names ^ set(found)]
    wrong += [f"{name} ran {row.run} times" for name, row in found.items() if row.run != 1]
    for name, row in committed.items():
        if found.get(name) != row:
            wrong.append(f"{name} was committed as {row}, and is {found.get(name)}")
    for (name, attempt), count in collections.Counter(starts).items():
        last = found[name].attempt if name in found else 0
        if attempt > last:
            wrong.append(f"{name} began attempt {attempt} after {last} was committed")
        if count > 1:
            wrong.append(f"{name} began attempt {attempt} {count} times")
    return wrong
