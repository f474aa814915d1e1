"""Recorded facts on a source's files are kept over restarts of the agent; incomplete lines are
not."""

import os
from pathlib import Path

import pytest

from kilnwork.data.pond import seen_files


def seen(path: str, stamp: str = "1", digest: str = "d") -> seen_files.Seen:
    return seen_files.Seen(path=path, stamp=stamp, size=3, digest=digest)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "seen"


def test_reopened_journal_finds_newest_line_of_a_file(path: Path) -> None:
    first = seen_files.PinJournal(path)
    first.add(seen("a", "1"))
    first.add(seen("a", "2"))
    later = seen_files.PinJournal(path)
    assert later.find("a", "2") == seen("a", "2")
    assert later.find("a", "1") is None
    assert path.stat().st_mode & 0o777 == 0o600


def test_file_without_stamp_is_never_found(path: Path) -> None:
    journal = seen_files.PinJournal(path)
    journal.add(seen("a", ""))
    assert journal.find("a", "") is None
    assert journal.find("b", "1") is None


def test_incomplete_lines_are_ignored(path: Path) -> None:
    seen_files.PinJournal(path).add(seen("a"))
    whole = path.read_bytes()
    path.write_bytes(b"no json\n" + whole + b'["b","1",3,"d"]')
    journal = seen_files.PinJournal(path)
    assert journal.find("a", "1") == seen("a")
    assert journal.find("b", "1") is None


def test_record_after_an_incomplete_line_is_kept(path: Path) -> None:
    seen_files.PinJournal(path).add(seen("a"))
    with path.open("ab") as file:
        file.write(b'["b","1"')
    seen_files.PinJournal(path).add(seen("c"))
    journal = seen_files.PinJournal(path)
    assert journal.find("a", "1") == seen("a")
    assert journal.find("c", "1") == seen("c")


def test_record_after_a_short_write_is_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, line: write(file, line[:5]))
    journal = seen_files.PinJournal(path)
    journal.add(seen("a"))
    monkeypatch.undo()
    journal.add(seen("b"))
    assert seen_files.PinJournal(path).find("b", "1") == seen("b")


def test_files_removed_from_source_are_forgotten(path: Path) -> None:
    journal = seen_files.PinJournal(path)
    for name in ("a", "b"):
        journal.add(seen(name))
    journal.keep_only({"a": seen("a")})
    assert journal.find("b", "1") is None
    assert seen_files.PinJournal(path).find("b", "1") is None
    assert seen_files.PinJournal(path).find("a", "1") == seen("a")


def test_superseded_lines_are_dropped_from_the_file(path: Path) -> None:
    journal = seen_files.PinJournal(path)
    journal.add(seen("a", "1"))
    journal.add(seen("a", "2"))
    journal.keep_only({"a": seen("a", "2")})
    assert len(path.read_bytes().splitlines()) == 1
    before = path.stat()
    journal.keep_only({"a": seen("a", "2")})
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
