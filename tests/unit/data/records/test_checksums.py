"""Checksums of consecutive parts, and the checksum of two parts combined from their own."""

import zlib

import pytest

from kilnwork.data.records import checksums


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (b"", b""),
        (b"", b"abc"),
        (b"abc", b""),
        (b"a", b"b"),
        (b"abc", bytes(255)),
        (b"abc", bytes(256)),
        (b"abc", bytes(257)),
        (b"\xff" * 1000, b"xyz" * 30_000),
    ],
)
def test_combined_checksum_equals_that_of_concatenation(first: bytes, second: bytes) -> None:
    made = checksums.combine(zlib.crc32(first), zlib.crc32(second), len(second))
    assert made == zlib.crc32(first + second)


def test_each_part_has_its_own_checksum() -> None:
    sums = checksums.PartChecksums()
    sums.add(b"on")
    sums.add(memoryview(b"e"))
    sums.end()
    sums.end()
    sums.add(b"two")
    sums.skip(3)
    sums.settle()
    assert sums.ended == [zlib.crc32(b"one"), 0]
    assert sums.open == zlib.crc32(b"two")
