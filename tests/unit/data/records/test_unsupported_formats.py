"""Files that are not lines are recognized by their first bytes."""

import bz2
import gzip
import io
import lzma
import zipfile

import pytest

from kilnwork.data.records import unsupported_formats


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", "content")
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "what", "command"),
    [
        (gzip.compress(b"a", mtime=0), "compressed with gzip", "gunzip"),
        (bz2.compress(b"a"), "compressed with bzip2", "bunzip2"),
        (lzma.compress(b"a"), "compressed with xz", "unxz"),
        (b"\x28\xb5\x2f\xfd rest of it", "compressed with zstd", "unzstd"),
        (zipped(), "zip archive", "unzip"),
        ("\ufeffa".encode("utf-16-le"), "UTF-16", "iconv"),
        ("\ufeffa".encode("utf-16-be"), "UTF-16", "iconv"),
    ],
)
def test_foreign_format_is_named_with_its_remedy(content: bytes, what: str, command: str) -> None:
    head = content[: unsupported_formats.HEAD_BYTES]
    found = unsupported_formats.foreign(head)
    assert found is not None
    assert what in found.what
    assert command in found.remedy
    assert head[0] in unsupported_formats.FIRST_BYTES


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"plain text\n", b"BZhang, Wei\n", b"BZh9 not a block", b"PK list", b"\x1f"],
)
def test_file_of_lines_is_not_foreign(content: bytes) -> None:
    assert unsupported_formats.foreign(content[: unsupported_formats.HEAD_BYTES]) is None


def test_bzip2_is_recognized_by_incomplete_head() -> None:
    assert unsupported_formats.foreign(b"BZh91AY") is not None
    assert unsupported_formats.foreign(b"BZh91AX") is None


def test_gzip_is_not_foreign_where_it_can_be_read() -> None:
    assert unsupported_formats.foreign(gzip.compress(b"a", mtime=0), gzip=True) is None
    assert unsupported_formats.foreign(bz2.compress(b"a")[:10], gzip=True) is not None
