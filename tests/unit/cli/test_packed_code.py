"""Python code as a blob."""

from pathlib import Path

import pytest

from kilnwork.cli import errors, packed_code


def test_digest_depends_only_on_the_code(tmp_path: Path) -> None:
    file = tmp_path / "mapper.py"
    file.write_text("A = 1\n")
    first = packed_code.pack(None, files=[file])
    assert packed_code.pack(None, files=[file]) == first
    assert first.body
    file.write_text("A = 2\n")
    assert packed_code.pack(None, files=[file]).digest != first.digest


def test_directory_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidInput, match="it has no files"):
        packed_code.pack(tmp_path)


def test_missing_module_is_rejected() -> None:
    with pytest.raises(Exception, match="no_such_module_here"):
        packed_code.pack(None, modules=["no_such_module_here"])
