"""What is asked of the tables on the loop reads no row in vain: there may be 100,000 jobs."""

import re
from pathlib import Path

import apsw

from kilnwork.dispatch.journal.sqlite import statements

_SELECTS = {
    name: sql
    for name, sql in statements.QUERIES.items()
    if re.search(r"^SELECT", sql, re.MULTILINE) and re.search(r"\b(FROM job\b|FROM job_)", sql)
}
_WHOLE = re.compile(r"SCAN job\b|SEARCH job USING INTEGER PRIMARY KEY \(rowid[<>]")
_GOOD = re.compile(r"COVERING INDEX|INDEX (job_blobs|job_name)\b")
"""Small beside the rows, or of a few rows."""

_PAGED = {"jobs_everywhere", "job_ends", "oldest_job"}
"""Each row that they read is one that they give."""


def test_no_statement_reads_all_rows(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "journal.db"))
    for script in statements.MIGRATIONS:
        connection.execute(script)
    slow = []
    for name in _SELECTS.keys() - _PAGED:
        sql = _SELECTS[name]
        values = ("1",) * sql.count("?")
        steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
        slow += [(name, step) for step in steps if _WHOLE.match(step) and not _GOOD.search(step)]
    assert len(_SELECTS) > 15
    assert slow == []
