"""Targets of results; a file exists only once it is complete."""

import os
from pathlib import Path

import pytest

from kilnwork.cli import downloads, errors


@pytest.mark.parametrize("target", [None, "-", "{tmp}/new", "{tmp}/old", "/dev/null"])
def test_result_may_go_to_standard_output_a_file_or_a_device(
    tmp_path: Path, target: str | None
) -> None:
    (tmp_path / "old").touch()
    downloads.check_target(target and target.format(tmp=tmp_path))


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("{tmp}", "it is a directory"),
        ("{tmp}/", "it is a directory"),
        ("{tmp}/none/", "there is no such directory"),
        ("{tmp}/none/a", "make it first"),
        ("{tmp}/old/a", "old cannot be written to"),
        ("{tmp}/" + "a" * 300, "File name too long"),
    ],
)
def test_unwritable_target_is_rejected_before_the_job_runs(
    tmp_path: Path, target: str, words: str
) -> None:
    (tmp_path / "old").touch()
    with pytest.raises(errors.InvalidInput, match=words):
        downloads.check_target(target.format(tmp=tmp_path))


def test_result_does_not_replace_its_input(tmp_path: Path) -> None:
    source, link = tmp_path / "source", tmp_path / "link"
    source.touch()
    link.symlink_to(source)
    for target in (source, link):
        with pytest.raises(errors.InvalidInput, match="this is the file to upload"):
            downloads.check_target(str(target), source=str(source))
    downloads.check_target(str(tmp_path / "other"), source=str(source))


def test_file_gets_its_name_once_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "result"
    target.write_bytes(b"old")
    with downloads.open_atomically(target) as file:
        file.write(b"new")
        file.flush()
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["result"]  # noqa: PTH208


def break_off(target: Path) -> None:
    with downloads.open_atomically(target) as file:
        file.write(b"new")
        raise RuntimeError


def test_interrupted_download_keeps_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "result"
    target.write_bytes(b"old")
    with pytest.raises(RuntimeError):
        break_off(target)
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    link.symlink_to(real)
    with downloads.open_atomically(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
