"""The result file is the task's: it may be anything."""

import os
import socket
from pathlib import Path

import pytest

from kilnwork.api import attempts
from kilnwork.worker import errors, result_file

LIMIT = attempts.MAX_INLINE_BYTES


def test_missing_file_is_no_result(tmp_path: Path) -> None:
    assert result_file.read(tmp_path / "output", output_type="json") is None


def test_json_is_kept_byte_for_byte(tmp_path: Path) -> None:
    (tmp_path / "output").write_bytes(b' {"a": 1.50}\n')
    found = result_file.read(tmp_path / "output", output_type="json")
    assert found == attempts.Payload("application/json", b' {"a": 1.50}\n')


NOT_JSON = [
    b"", b" \n", b"{", b"NaN", b'"\xff"', b"[" * 5000, b"[" * 5000 + b"]" * 5000, b"1 2",
    b"1" * 5000, b'["a", 1e999]', b'{"a":-1E+0400}', b"1" * 250 + b"e99", b"1" * 400 + b".5",
    b'["\\"", "\\\\", 1e999, ", 1e999"]',
]  # fmt: skip


@pytest.mark.parametrize("content", NOT_JSON)
def test_invalid_json_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "output").write_bytes(content)
    with pytest.raises(errors.BadResult) as refused:
        result_file.read(tmp_path / "output", output_type="json")
    assert refused.value.reason == "InvalidResult"


@pytest.mark.parametrize("before", [LIMIT, (1 << 20) - 8], ids=["short", "across-pieces"])
@pytest.mark.parametrize("content", [*NOT_JSON, b"1" * LIMIT])
def test_large_invalid_json_is_refused(tmp_path: Path, content: bytes, before: int) -> None:
    (tmp_path / "output").write_bytes(b" " * before + content + b" ")
    with pytest.raises(errors.BadResult) as refused:
        result_file.OutputFile(tmp_path / "output", output_type="json")
    assert refused.value.reason == "InvalidResult"


def test_large_json_with_numbers_in_range_is_accepted(tmp_path: Path) -> None:
    numbers = [b"1" * 4000, b"1e308", b"1e-999", b"0e999", b"0.%s1e400" % (b"0" * 300)]
    texts = [b'", 1e999, "', rb'"\\ \" 1e999, "', rb'"\\"', b'" %s "' % (b"1" * 9000)]
    content = b",".join([*numbers, *texts, b"-1e99" + b" " * LIMIT])
    (tmp_path / "output").write_bytes(b"[" + content + b"]")
    with result_file.OutputFile(tmp_path / "output", output_type="json") as found:
        assert found.size > LIMIT


def test_bytes_result_may_be_any_content_even_empty(tmp_path: Path) -> None:
    (tmp_path / "output").write_bytes(b"")
    found = result_file.read(tmp_path / "output", output_type="bytes")
    assert found == attempts.Payload("application/octet-stream", b"")


def test_size_limit_is_inclusive(tmp_path: Path) -> None:
    (tmp_path / "output").write_bytes(b"x" * LIMIT)
    found = result_file.read(tmp_path / "output", output_type="bytes")
    assert found is not None
    assert len(found.data) == LIMIT
    (tmp_path / "output").write_bytes(b"x" * (LIMIT + 1))
    with pytest.raises(errors.BadResult, match="file or object store") as refused:
        result_file.read(tmp_path / "output", output_type="bytes")
    assert refused.value.reason == "ResultTooLarge"


def test_file_that_is_not_regular_is_refused(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("directory", "pipe", "zero", "loop"):
        with pytest.raises(errors.BadResult):
            result_file.read(tmp_path / name, output_type="json")


def test_error_names_the_type_of_a_file_that_is_not_regular(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to("/etc/passwd")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
    for name, text in (("directory", "regular"), ("socket", "regular"), ("link", "symbolic link")):
        with pytest.raises(errors.BadResult, match=text):
            result_file.OutputFile(tmp_path / name, output_type="bytes")
        with pytest.raises(errors.BadResult, match=text):
            result_file.read(tmp_path / name, output_type="bytes", follow_links=False)


def test_link_is_not_followed_for_another_file_system(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("1")
    for name, target in (("here", "secret"), ("nowhere", "gone")):
        (tmp_path / name).symlink_to(target)
        with pytest.raises(errors.BadResult):
            result_file.read(tmp_path / name, output_type="json", follow_links=False)
