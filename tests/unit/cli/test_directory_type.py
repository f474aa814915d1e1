"""Directories named on the command line."""

from pathlib import Path

import click
import pytest

from kilnwork.cli import directory_type


def test_new_directory_is_accepted(tmp_path: Path) -> None:
    made = directory_type.Directory().convert(str(tmp_path / "new"), None, None)
    assert made == tmp_path / "new"


def test_empty_name_is_not_the_current_directory() -> None:
    with pytest.raises(click.BadParameter, match="is a variable empty"):
        directory_type.Directory().convert("", None, None)


def test_file_and_a_missing_directory_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(click.BadParameter, match="is a file"):
        directory_type.Directory().convert(str(tmp_path / "file"), None, None)
    with pytest.raises(click.BadParameter, match="does not exist"):
        directory_type.Directory(exists=True).convert(str(tmp_path / "new"), None, None)
