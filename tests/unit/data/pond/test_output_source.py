"""Files of several attempts, read as one source."""

from pathlib import Path

import pytest

from kilnwork.data import errors
from kilnwork.data.pond import origins, output_source
from support import ponds

ALL = origins.Selection()


def source(directory: Path, *attempts: str) -> output_source.OutputSource:
    return output_source.OutputSource("risk-g1", directory, attempts)


def content(of: output_source.OutputSource, path: str) -> bytes:
    with of.open(path, offset=0, stamp="") as opened:
        return b"".join(bytes(piece) for piece in opened.pieces())


def test_files_of_valid_attempts_are_listed_as_one_source(tmp_path: Path) -> None:
    ponds.write_files(tmp_path / "t1.1.2", {"a.csv": b"1", "deep/b.csv": b"2"})
    ponds.write_files(tmp_path / "t1.1.1", {"a.csv": b"half"})
    ponds.write_files(tmp_path / "t2.1.1", {"c.csv": b"3"})
    of = source(tmp_path, "t1.1.2", "t2.1.1", "t3.1.1")
    assert [one.path for one in of.list(ALL)] == ["a.csv", "c.csv", "deep/b.csv"]
    assert content(of, "a.csv") == b"1"
    assert content(of, "deep/b.csv") == b"2"


def test_glob_chooses_files(tmp_path: Path) -> None:
    ponds.write_files(tmp_path / "t1.1.1", {"a.csv": b"1", "a.log": b"2"})
    [only] = source(tmp_path, "t1.1.1").list(origins.Selection(glob="*.csv"))
    assert only.path == "a.csv"


def test_same_path_of_two_tasks_is_refused(tmp_path: Path) -> None:
    ponds.write_files(tmp_path / "t1.1.1", {"a.csv": b"1"})
    ponds.write_files(tmp_path / "t2.1.1", {"a.csv": b"1"})
    with pytest.raises(errors.SourceRefused, match=r"tasks t1 and t2 have both written 'a.csv'"):
        source(tmp_path, "t1.1.1", "t2.1.1").list(ALL)


def test_source_without_written_files_is_missing(tmp_path: Path) -> None:
    (tmp_path / "t1.1.1").mkdir()
    with pytest.raises(errors.SourceMissing):
        source(tmp_path, "t1.1.1", "t2.1.1").list(ALL)


def test_directory_that_becomes_a_link_is_not_followed(tmp_path: Path) -> None:
    """A running task may replace a directory with a link while its files are listed."""
    ponds.write_files(tmp_path / "t1.1.1", {"deep/passwd": b"mine"})
    ponds.write_files(tmp_path / "secret", {"passwd": b"not mine"})
    of = source(tmp_path, "t1.1.1")
    of.list(ALL)
    (tmp_path / "t1.1.1" / "deep").rename(tmp_path / "moved")
    (tmp_path / "t1.1.1" / "deep").symlink_to(tmp_path / "secret")
    with pytest.raises(errors.SourceMissing):
        content(of, "deep/passwd")


def test_attempt_that_is_a_link_is_refused(tmp_path: Path) -> None:
    ponds.write_files(tmp_path / "secret", {"passwd": b"not mine"})
    (tmp_path / "t1.1.1").symlink_to(tmp_path / "secret")
    with pytest.raises(errors.SourceRefused, match="symbolic link"):
        source(tmp_path, "t1.1.1").list(ALL)


@pytest.mark.parametrize("name", ["..", "a/b", ""])
def test_attempts_must_be_plain_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(errors.SourceRefused, match="is no attempt of a task"):
        source(tmp_path, name)
