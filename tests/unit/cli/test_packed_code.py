"""Python code as a blob."""

from pathlib import Path

import pytest

from kilnwork.cli import errors, packed_code


def test_the_same_code_has_the_same_digest_and_other_code_another(tmp_path: Path) -> None:
    file = tmp_path / "mapper.py"
    file.write_text("A = 1\n")
    first = packed_code.pack(None, files=[file])
    assert packed_code.pack(None, files=[file]) == first
    assert first.body
    file.write_text("A = 2\n")
    assert packed_code.pack(None, files=[file]).digest != first.digest


def test_a_directory_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.Unusable, match="it has no files"):
        packed_code.pack(tmp_path)


def test_a_module_that_is_not_there_is_refused() -> None:
    with pytest.raises(Exception, match="no_such_module_here"):
        packed_code.pack(None, modules=["no_such_module_here"])
