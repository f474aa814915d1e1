"""An attempt's log is read while it is written and rotated."""

from contextlib import closing
from pathlib import Path

import pytest

from kilnwork.server import log_reader


def rest(reader: log_reader.LogReader) -> bytes:
    parts = []
    while data := reader.read():
        parts.append(data)
    return b"".join(parts)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "1-1.log"


def test_both_files_are_read_in_order(path: Path) -> None:
    path.with_name("1-1.log.1").write_bytes(b"a\n")
    path.write_bytes(b"b\n")
    with closing(log_reader.LogReader(path)) as reader:
        assert rest(reader) == b"a\nb\n"


def test_missing_log_is_read_once_it_exists(path: Path) -> None:
    with closing(log_reader.LogReader(path)) as reader:
        assert reader.read() == b""
        path.write_bytes(b"a\n")
        assert reader.read() == b"a\n"


def test_reader_continues_after_rename(path: Path) -> None:
    path.write_bytes(b"a\n")
    with closing(log_reader.LogReader(path)) as reader, path.open("ab", buffering=0) as writer:
        assert rest(reader) == b"a\n"
        writer.write(b"b\n")
        path.rename(path.with_name("1-1.log.1"))
        path.write_bytes(b"c\n")
        assert rest(reader) == b"b\nc\n"
        path.write_bytes(b"c\nd\n")
        assert rest(reader) == b"d\n"


@pytest.mark.parametrize(
    ("tail", "expected"),
    [(0, b""), (1, b"5\n"), (2, b"4\n5\n"), (3, b"3\n4\n5\n"), (5, b"1\n2\n3\n4\n5\n"), (9, None)],
)
def test_tail_spans_both_files(path: Path, tail: int, expected: bytes | None) -> None:
    path.with_name("1-1.log.1").write_bytes(b"1\n2\n3\n")
    path.write_bytes(b"4\n5\n")
    with closing(log_reader.LogReader(path, tail=tail)) as reader:
        assert rest(reader) == (b"1\n2\n3\n4\n5\n" if expected is None else expected)


def test_tail_of_large_file(path: Path) -> None:
    lines = [b"%d\n" % i for i in range(50_000)]
    path.write_bytes(b"".join(lines))
    with closing(log_reader.LogReader(path, tail=20_000)) as reader:
        assert rest(reader) == b"".join(lines[-20_000:])


def test_tail_counts_last_line_without_line_end(path: Path) -> None:
    path.write_bytes(b"1\n2")
    with closing(log_reader.LogReader(path, tail=1)) as reader:
        assert rest(reader) == b"2"


def test_first_line_says_how_much_was_dropped(tmp_path: Path) -> None:
    path = tmp_path / "1-1.log"
    path.write_bytes(b"newer\n")
    path.with_name("1-1.log.1").write_bytes(b"older..\n")
    path.with_name("1-1.log.rotated").write_text("1")
    with log_reader.LogReader(path) as reader:
        assert reader.read() == b"older..\n"
    path.with_name("1-1.log.rotated").write_text("3")
    with log_reader.LogReader(path) as reader:
        assert reader.read() == b"[kilnwork: the first 16 bytes of the log were dropped]\n"
        assert reader.read() == b"older..\n"
    with log_reader.LogReader(path, tail=1) as reader:
        assert reader.read() == b"newer\n"
