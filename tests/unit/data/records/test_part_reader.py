"""Records of a part are read back and compared with the index."""

import zlib

import pytest

from kilnwork.api import filejobs
from kilnwork.data import errors
from kilnwork.data.records import part_reader

TEXT = filejobs.InputSpec(format=filejobs.Format.TEXT)
CSV = filejobs.InputSpec(format=filejobs.Format.CSV)


def part(content: bytes, lines: int, *, start: int = 7) -> filejobs.Part:
    return filejobs.Part(1, start, start + len(content), 1, lines, zlib.crc32(content))


def read(pieces: list[bytes], of: filejobs.Part, spec: filejobs.InputSpec) -> list[bytes]:
    return [record for some in part_reader.batches(pieces, of, spec) for record in some]


@pytest.mark.parametrize(
    ("spec", "content", "records"),
    [
        (TEXT, b"a\n\nb\r\nc", [b"a", b"", b"b", b"c"]),
        (TEXT, b'"a\nb"\n', [b'"a', b'b"']),
        (CSV, b'"a\nb"\nc\n', [b'"a\nb"', b"c"]),
    ],
)
@pytest.mark.parametrize("step", [1, 3, 100])
def test_records_are_read_by_format(
    spec: filejobs.InputSpec, content: bytes, records: list[bytes], step: int
) -> None:
    pieces = [content[at : at + step] for at in range(0, len(content), step)]
    assert read(pieces, part(content, len(records)), spec) == records


@pytest.mark.parametrize(
    ("stored", "lines", "reason"),
    [
        (b"a\nb\nc", 2, "it has 5 bytes instead of 4"),
        (b"a\nb", 2, "it has 3 bytes instead of 4"),
        (b"a\nc\n", 2, "its crc32 is [0-9a-f]{8} instead of [0-9a-f]{8}"),
        (b"a\nb\n", 3, "it has 2 records instead of 3"),
    ],
)
def test_part_that_differs_from_manifest_is_refused(stored: bytes, lines: int, reason: str) -> None:
    with pytest.raises(errors.InputChanged, match=reason):
        read([stored], part(b"a\nb\n", lines), TEXT)
