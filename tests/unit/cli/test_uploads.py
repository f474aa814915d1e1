"""Inspection of a file before its upload."""

import contextlib
import os
from pathlib import Path

import pytest

from kilnwork.cli import uploads


@pytest.mark.parametrize(
    ("content", "array"),
    [
        (b'[{"a": 1}, {"a": 2}]\n', True),
        (b'\n [\n{"a": 1},\n{"a": 2}\n]', True),
        (b"[" + b"1," * 100_000 + b"1]", True),
        (b"[1, 2]\n[3, 4]\n", False),
        (b'{"a": [1]}\n', False),
        (b"\x1f\x8b", False),
        (b"", False),
    ],
)
def test_json_array_is_distinguished_from_lines(
    tmp_path: Path,
    content: bytes,
    array: bool,  # noqa: FBT001
) -> None:
    (tmp_path / "file").write_bytes(content)
    source = uploads.UploadSource(str(tmp_path / "file"))
    assert source.is_array() is array
    assert source.read(1 << 20) == content
    source.close()


def test_pipe_is_not_inspected(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    held = os.open(tmp_path / "pipe", os.O_RDWR)
    os.write(held, b"[")
    source = uploads.UploadSource(str(tmp_path / "pipe"))
    assert not source.is_array()
    source.close()
    os.close(held)


def test_interrupted_upload_prints_how_to_resume(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1\n")
    with contextlib.closing(uploads.UploadSource(str(tmp_path / "file"))) as source:
        assert source.going_on("u-1") == "the same command with --resume u-1 continues it"
    os.mkfifo(tmp_path / "pipe")
    held = os.open(tmp_path / "pipe", os.O_RDWR)
    with contextlib.closing(uploads.UploadSource(str(tmp_path / "pipe"))) as source:
        said = source.going_on("u-1")
    os.close(held)
    assert said.startswith(f"{tmp_path}/pipe cannot be read again, so start again. ")
    assert "`kiln delete upload/u-1` deletes" in said
