"""A small file of lines is indexed at once; other files are left to an intake."""

import gzip

import pytest

from kilnwork.api import filejobs
from kilnwork.data.records import intake, whole_file_indexing

TEXT = filejobs.InputSpec(format=filejobs.Format.TEXT)
LIMITED = filejobs.InputSpec(format=filejobs.Format.TEXT, max_line_bytes=1024)


@pytest.mark.parametrize("content", [b"a\n", b"a", b"a\nb\n", b"a\r\n\nb", b"x" * 1023 + b"\n"])
def test_plain_file_has_same_manifest_as_intake(content: bytes) -> None:
    spec = filejobs.FileJobSpec(input=LIMITED, items_per_part=3, bytes_per_part=1024)
    taker = intake.Intake(spec)
    kept = b"".join(taker.feed(content))
    rest, expected = taker.finish()
    assert kept + rest == content
    assert whole_file_indexing.manifest(content, spec) == expected


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(gzip.compress(b"a\n"), id="gzip"),
        pytest.param(b"\xef\xbb\xbfa\n", id="byte order mark"),
        pytest.param(b"a\n" * 4, id="more lines than a part"),
        pytest.param(b"a\n" * 3 + b"b", id="more lines than a part, the last without LF"),
        pytest.param(b"x" * 800 + b"\n", id="more bytes than a part"),
    ],
)
def test_file_that_is_not_plain_is_left_to_intake(content: bytes) -> None:
    spec = filejobs.FileJobSpec(input=TEXT, items_per_part=3, bytes_per_part=700)
    assert whole_file_indexing.manifest(content, spec) is None


def test_file_longer_than_line_limit_is_left_to_intake() -> None:
    spec = filejobs.FileJobSpec(input=LIMITED)
    assert whole_file_indexing.manifest(b"x\n" * 512, spec) is not None
    assert whole_file_indexing.manifest(b"x\n" * 512 + b"x", spec) is None


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (TEXT, True),
        (filejobs.InputSpec(format=filejobs.Format.JSONL), True),
        (filejobs.InputSpec(format=filejobs.Format.JSON), False),
        (filejobs.InputSpec(format=filejobs.Format.CSV), False),
        (filejobs.InputSpec(format=filejobs.Format.TEXT, gzip=True), False),
        (filejobs.InputSpec(format=filejobs.Format.TEXT, gzip=False), True),
    ],
)
def test_only_uncompressed_lines_may_be_plain(
    given: filejobs.InputSpec,
    plain: bool,  # noqa: FBT001
) -> None:
    spec = filejobs.FileJobSpec(input=given)
    assert whole_file_indexing.likely(spec) is plain
    assert (whole_file_indexing.manifest(b"1\n", spec) is not None) is plain
