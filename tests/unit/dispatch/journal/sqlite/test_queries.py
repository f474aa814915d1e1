"""Reads of the journal that a damaged file makes fail."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.dispatch import errors
from kilnwork.dispatch.journal.sqlite import connections, queries
from kilnwork.kit import ids

TASK = ids.TaskId(bytes(16))


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[queries.Queries]:
    path = tmp_path / "journal.db"
    connections.writing(path).close()
    path.write_bytes(b"no database" * 4096)
    found = queries.Queries(path)
    yield found
    found.close()


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda journal: journal.task_row(TASK), id="task_row"),
        pytest.param(lambda journal: journal.abbreviated("ns", "abc", limit=5), id="abbreviated"),
        pytest.param(lambda journal: journal.failed_dependents("ns"), id="failed_dependents"),
        pytest.param(lambda journal: journal.referenced([bytes(32)]), id="referenced"),
        pytest.param(lambda journal: journal.blobs_of([TASK]), id="blobs_of"),
        pytest.param(lambda journal: list(journal.unfinished()), id="unfinished"),
    ],
)
def test_read_of_a_damaged_file_raises_journal_unreadable(
    damaged: queries.Queries, read: Callable[[queries.Queries], Any]
) -> None:
    with pytest.raises(errors.JournalUnreadable, match="is no journal of kilnwork"):
        read(damaged)
