"""Tables of jobs read no row without need (there may be 100,000) and write no row twice."""

import re
from pathlib import Path
from typing import Any

import apsw

from kilnwork.dispatch.journal.sqlite import statements
from kilnwork.jobs import row_storage
from support import index_records

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


def tables_of(**found: list[tuple[Any, ...]]) -> row_storage.Tables:
    """Tables whose statement of that kind returns these rows; other statements return none."""
    return row_storage.Tables(lambda name, *values: found.get(name, []))


def test_tables_are_empty_until_a_job_has_a_row() -> None:
    assert tables_of(next_job_row=[(1,)]).empty
    assert not tables_of(next_job_row=[(2,)]).empty
    assert tables_of(oldest_job=[(5,)]).oldest_creation() == 5.0
    assert tables_of().oldest_creation() is None


def test_missing_row_is_none() -> None:
    assert tables_of().find_job("uuid", b"") is None
    assert tables_of().find_claim(1) is None
    assert tables_of().find_schedule(b"") is None
    assert tables_of(job_inline=[(None,)]).find_inline_input(1) is None
    assert tables_of(job_inline=[(b"x",)]).find_inline_input(1) == b"x"
    assert tables_of(job_claim=[(b"{}",)]).find_claim(1) == b"{}"


def test_list_expired_continues_after_last_job() -> None:
    asked: list[tuple[Any, ...]] = []

    def select(name: str, *values: Any) -> list[tuple[Any, ...]]:
        asked.append((name, *values))
        return [(7, b"u", 1.0, 2.0)]

    (found,) = row_storage.Tables(select).list_expired(9.0, None, 10)
    row_storage.Tables(select).list_expired(9.0, found, 10)
    assert asked == [("expired_jobs", 9.0, 0.0, 0, 10), ("expired_jobs", 9.0, 2.0, 7, 10)]


def test_job_is_inserted_once_and_then_updated() -> None:
    job, pending = index_records.job(), row_storage.PendingWrites()
    pending.add(job, None, b"input")

    def written() -> list[str]:
        writes = row_storage.JobWrites()
        pending.gather(writes, job)
        return [name for name, _ in writes.statements()]

    assert written()[:2] == ["insert_job", "insert_job_input"]
    assert written() == []
    job.dirty = True
    assert written() == ["update_job"]
    job.prepared = True
    pending.inlined.add(job.row)
    assert written() == ["forget_job_inline"]
    job.deleting = True
    assert written() == ["forget_job_key"]
