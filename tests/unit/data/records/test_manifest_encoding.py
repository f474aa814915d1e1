"""Manifests are read back unchanged, and refused if their sums do not match."""

import msgspec
import pytest

from kilnwork.api import filejobs
from kilnwork.data import errors
from kilnwork.data.records import manifest_encoding


def manifest(*parts: filejobs.Part, bytes_: int = 9, lines: int = 3) -> filejobs.Manifest:
    return filejobs.Manifest(
        format=filejobs.Format.TEXT, bytes=bytes_, lines=lines, sha256="0" * 64, parts=parts
    )


FIRST, SECOND = filejobs.Part(1, 3, 5, 1, 1, 0), filejobs.Part(2, 5, 9, 2, 2, 0)


@pytest.mark.parametrize(
    "good", [manifest(FIRST, SECOND), manifest(bytes_=4, lines=0), manifest(bytes_=0, lines=0)]
)
def test_encoded_manifest_is_decoded_unchanged(good: filejobs.Manifest) -> None:
    assert manifest_encoding.decode(manifest_encoding.encode(good)) == good


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (msgspec.structs.replace(manifest(FIRST, SECOND), version=2), "of version 2"),
        (manifest(SECOND, FIRST), "part 2 stands where part 1 should"),
        (manifest(FIRST, filejobs.Part(2, 6, 9, 2, 2, 0)), "bytes 6 to 9, after byte 5"),
        (manifest(FIRST, filejobs.Part(2, 5, 5, 2, 2, 0), bytes_=5), "bytes 5 to 5"),
        (manifest(FIRST, filejobs.Part(2, 5, 9, 3, 1, 0)), "1 records from 3 on"),
        (manifest(FIRST, filejobs.Part(2, 5, 9, 2, 0, 0), lines=1), "0 records from 2 on"),
        (manifest(FIRST, SECOND, bytes_=10), "end at byte 9 of 10"),
        (manifest(FIRST, SECOND, lines=4), "have 3 of 4 records"),
        (manifest(lines=1), "have 0 of 1 records"),
    ],
)
def test_inconsistent_parts_are_refused_on_encode_and_decode(
    bad: filejobs.Manifest, reason: str
) -> None:
    for refused in (
        lambda: manifest_encoding.encode(bad),
        lambda: manifest_encoding.decode(msgspec.json.encode(bad)),
    ):
        with pytest.raises(errors.ManifestDamaged, match=reason):
            refused()


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"format": "text"'])
def test_bytes_other_than_manifest_are_refused(content: bytes) -> None:
    with pytest.raises(errors.ManifestDamaged, match="not what was written"):
        manifest_encoding.decode(content)
