"""Parts are whole lines, in order and not empty, and together they are the file."""

import os
import pickle
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from kilnwork.data import errors, file_splitting, local_blobs, parts

BLOCK = 16


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use small blocks so that lines end in, at and across block boundaries."""
    monkeypatch.setattr(parts, "BLOCK_BYTES", BLOCK)


def written(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "in.txt"
    path.write_bytes(content)
    return path


def travelled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - our own bytes


def lines_of(content: bytes) -> list[bytes]:
    """Read one line at a time, by the definition of a line."""
    found = content.split(b"\n")
    return found[:-1] if found[-1] == b"" else found


def check(path: Path, content: bytes, n: int) -> list[parts.Part]:
    """Check all properties of any split; return the counted split."""
    counted = file_splitting.split(path, n)
    sought = file_splitting.split(path, n, number_lines=False)
    assert [(p.start, p.end) for p in counted] == [(p.start, p.end) for p in sought]
    assert all(p.first_line is None and p.line_count is None for p in sought)
    assert b"".join(p.bytes() for p in counted) == content
    assert [p.index for p in counted] == list(range(len(counted)))
    assert {p.count for p in counted} <= {len(counted)}
    assert len(counted) <= n
    expected = [line.removesuffix(b"\r").decode("latin-1") for line in lines_of(content)]
    number = 1
    for part in file_splitting.split(path, n, encoding="latin-1"):
        assert part.start < part.end
        assert part.first_line == number
        found = list(part)
        assert len(found) == part.line_count
        assert found == expected[number - 1 : number - 1 + len(found)]
        number += len(found)
    assert number == len(expected) + 1
    return counted


@hypothesis.given(
    lines=st.lists(st.text("ab\r\x0b\xe4", max_size=40), max_size=12),
    end=st.sampled_from([b"", b"\n", b"\r\n", b"\r"]),
    separator=st.sampled_from([b"\n", b"\r\n"]),
    n=st.integers(1, 20),
)
@hypothesis.settings(
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture], max_examples=300
)
def test_parts_of_any_file_together_are_the_file(
    tmp_path: Path, lines: list[str], end: bytes, separator: bytes, n: int
) -> None:
    content = separator.join(line.encode("latin-1") for line in lines) + end
    check(written(tmp_path, content), content, n)


@pytest.mark.parametrize(
    ("content", "n", "expected"),
    [
        (b"", 5, []),
        (b"\n", 5, [b"\n"]),
        (b"a", 5, [b"a"]),
        (b"a\nb", 2, [b"a\n", b"b"]),
        (b"a\nb\nc\n", 99, [b"a\n", b"b\n", b"c\n"]),
        (b"a\nb\nc\n", 10**12, [b"a\n", b"b\n", b"c\n"]),
        (b"a\nb\nc\nd\n", 2, [b"a\nb\n", b"c\nd\n"]),
        (b"x" * 100, 4, [b"x" * 100]),
        (b"x" * 100 + b"\n", 4, [b"x" * 100 + b"\n"]),
        (b"a\n" + b"x" * 100 + b"\nb\n", 3, [b"a\n" + b"x" * 100 + b"\n", b"b\n"]),
        (b"a\r\nb\r\n", 2, [b"a\r\n", b"b\r\n"]),
        (b"\n" * 64, 4, [b"\n" * 16] * 4),
    ],
)
def test_parts_end_at_expected_lines(
    tmp_path: Path, content: bytes, n: int, expected: list[bytes]
) -> None:
    found = check(written(tmp_path, content), content, n)
    assert [part.bytes() for part in found] == expected


def test_parts_have_similar_sizes(tmp_path: Path) -> None:
    content = b"".join(b"%d\n" % number for number in range(10_000))
    found = check(written(tmp_path, content), content, 7)
    sizes = [part.end - part.start for part in found]
    assert len(sizes) == 7
    assert max(sizes) - min(sizes) <= 10


def test_lone_carriage_returns_do_not_end_lines(tmp_path: Path) -> None:
    text = "a\rb\n\x0bc\u2028d\x85e\r\nf\r\r\ng\r"
    (part,) = file_splitting.split(written(tmp_path, text.encode()), 1)
    assert list(part) == ["a\rb", "\x0bc\u2028d\x85e", "f\r", "g"]


def test_byte_order_mark_is_not_part_of_text(tmp_path: Path) -> None:
    path = written(tmp_path, "\ufeffä\n\ufeffb\n".encode())
    for encoding in ("utf-8", "utf-8-sig", "UTF8"):
        first, second = file_splitting.split(path, 2, encoding=encoding)
        assert (list(first), list(second)) == (["ä"], ["\ufeffb"])
    assert first.bytes() == "\ufeffä\n".encode()


def test_undecodable_line_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, b"good\n" * 9 + b"b\xe4d\n" + b"good\n" * 9)
    last = file_splitting.split(path, 2)[-1]
    with pytest.raises(UnicodeDecodeError) as raised:
        list(file_splitting.split(path, 1)[0])
    assert f"In {path}, line 10." in raised.value.__notes__[0]
    assert list(file_splitting.split(path, 1, errors="replace")[0])[9] == "b\ufffdd"
    assert list(file_splitting.split(path, 1, encoding="latin-1")[0])[9] == "bäd"
    assert last.first_line == 11


def test_part_survives_pickling(tmp_path: Path) -> None:
    found = file_splitting.split(written(tmp_path, b"a\nb\n"), 2)
    for part in found:
        assert travelled(part) == part
        assert hash(travelled(part)) == hash(part)
    again = travelled(found)
    assert again[0].file is again[1].file
    with pytest.raises(AttributeError):
        found[0].start = 3  # type: ignore[misc]


def test_relative_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, b"a\n")
    monkeypatch.chdir(tmp_path)
    (part,) = file_splitting.split("in.txt", 3)
    monkeypatch.chdir("/")
    assert part.path == str(tmp_path / "in.txt")
    assert list(part) == ["a"]


def test_part_can_be_opened_as_file(tmp_path: Path) -> None:
    part = file_splitting.split(written(tmp_path, b"head\none\ntwo\ntail\n"), 3)[1]
    with part.open() as file:
        assert file.readline() == part.bytes().splitlines(keepends=True)[0]
        file.seek(0)
        assert file.read() == part.bytes()
        assert file.seek(-2, os.SEEK_END) == len(part.bytes()) - 2
        assert file.read(10) == part.bytes()[-2:]
        assert file.read() == b""
        with pytest.raises(ValueError, match="negative"):
            file.seek(-100)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\x1f\x8b\x08\0\0\0", r"in\.txt is compressed with gzip: .* gunzip --keep .*in\.txt"),
        (b"BZh91AY", "bzip2"),
        (b"\xfd7zXZ\0", "xz"),
        (b"\x28\xb5\x2f\xfd\0", "zstd"),
        (b"PK\x03\x04\0", "zip"),
        ("a\n".encode("utf-16"), "UTF-16: .* iconv"),
    ],
)
def test_file_that_cannot_be_split_is_refused(tmp_path: Path, content: bytes, what: str) -> None:
    with pytest.raises(errors.NotSplittable, match=what):
        file_splitting.split(written(tmp_path, content), 2)


def test_path_that_is_not_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(errors.NotSplittable, match="no regular file"):
        file_splitting.split(tmp_path / "pipe", 2)
    with pytest.raises(IsADirectoryError):
        file_splitting.split(tmp_path, 2)
    with pytest.raises(FileNotFoundError):
        file_splitting.split(tmp_path / "nothing", 2)


def test_encodings_with_multibyte_line_ends_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, b"a\n")
    with pytest.raises(errors.NotSplittable, match="utf-16"):
        file_splitting.split(path, 2, encoding="utf-16-le")
    with pytest.raises(LookupError):
        file_splitting.split(path, 2, encoding="nothing")
    with pytest.raises(ValueError, match="at least one part"):
        file_splitting.split(path, 0)


# the file afterwards


def test_file_that_only_grew_is_readable(tmp_path: Path) -> None:
    path = written(tmp_path, b"a\nb\n")
    found = file_splitting.split(path, 2)
    with path.open("ab") as file:
        file.write(b"c\n")
    assert [list(part) for part in found] == [["a"], ["b"]]


@pytest.mark.parametrize("content", [b"aa\nb", b"a\n", b"", b"a\nbc\n"])
def test_rewritten_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = written(tmp_path, b"a\nb\n")
    second = file_splitting.split(path, 2)[1]
    path.write_bytes(content)
    with pytest.raises(errors.FileChanged, match=r"in\.txt is not the file that was split"):
        list(second)
    with pytest.raises(errors.FileChanged):
        second.bytes()


def test_continued_last_line_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, b"a\nb")
    second = file_splitting.split(path, 2)[1]
    path.write_bytes(b"a\nbcd\n")
    os.utime(path, (1, 1))
    assert second.bytes() == b"b"  # its own bytes are there: what it was when it was split


def test_missing_file_is_explained_in_a_note(tmp_path: Path) -> None:
    path = written(tmp_path, b"a\n")
    (part,) = file_splitting.split(path, 1)
    path.unlink()
    with pytest.raises(FileNotFoundError) as raised:
        list(part)
    assert "ship=True" in raised.value.__notes__[0]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> local_blobs.Blobs:
    found = local_blobs.Blobs(tmp_path / "blobs", durable=False)
    monkeypatch.setattr(local_blobs, "locate", lambda: found)
    return found


@pytest.mark.parametrize("fate", ["gone", "rewritten", "same"])
def test_copy_is_read_where_file_is_missing(
    tmp_path: Path, kept: local_blobs.Blobs, fate: str
) -> None:
    content = b"".join(b"%d\n" % number for number in range(100))
    path = written(tmp_path, content)
    found = file_splitting.split(path, 3, copy=kept)
    assert [(p.start, p.first_line) for p in found] == [
        (p.start, p.first_line) for p in file_splitting.split(path, 3)
    ]
    if fate == "gone":
        path.unlink()
    elif fate == "rewritten":
        path.write_bytes(b"other\n" * 100)
    found = travelled(found)
    assert [line for part in found for line in part] == [str(number) for number in range(100)]
    assert b"".join(part.bytes() for part in found) == content


def test_missing_copy_is_named(tmp_path: Path, kept: local_blobs.Blobs) -> None:
    path = written(tmp_path, b"a\n")
    (part,) = file_splitting.split(path, 1, copy=kept)
    path.unlink()
    assert part.file.blob is not None
    kept.path(part.file.blob).unlink()
    with pytest.raises(errors.BlobMissing, match=part.file.blob.hex()):
        list(part)


def test_copy_cannot_be_found_without_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_blobs, "locate", None)
    path = written(tmp_path, b"a\n")
    (part,) = file_splitting.split(path, 1, copy=local_blobs.Blobs(tmp_path / "b", durable=False))
    path.unlink()
    with pytest.raises(errors.BlobMissing, match="no session is open"):
        list(part)


def test_empty_file_has_no_parts_and_empty_copy(tmp_path: Path, kept: local_blobs.Blobs) -> None:
    assert file_splitting.split(written(tmp_path, b""), 4, copy=kept) == []
