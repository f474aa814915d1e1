"""The parts of any input in any pieces are those of a simple reference reader."""

import hashlib
import tracemalloc
import zlib

import hypothesis
import hypothesis.strategies as st
import pytest

from kilnwork.api import filejobs
from kilnwork.data import errors
from kilnwork.data.records import (
    checksums,
    indexes,
    intake,
    part_reader,
    unsupported_formats,
    whole_file_indexing,
)

LINES = st.lists(
    st.one_of(
        st.sampled_from(
            [b"", b"{}", b"\r", b"a\rb", b"\0", b"\xff\xfd", b"\xc2\x85", b"\x0c", b" "]
        ),
        st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")),
    ),
    max_size=60,
)
FILES = st.builds(
    lambda bom, lines, end, last: bom + end.join(lines) + last,
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    LINES,
    st.sampled_from([b"\n", b"\r\n"]),
    st.sampled_from([b"", b"\n", b"\r\n", b"\n\n"]),
).filter(lambda content: unsupported_formats.foreign(content) is None)


def pieces(content: bytes, cuts: list[int]) -> list[bytes]:
    """Cut `content` at these places."""
    ends = sorted({min(cut, len(content)) for cut in cuts} | {len(content)})
    return [content[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def taken_in(spec: filejobs.FileJobSpec, given: list[bytes]) -> tuple[bytes, filejobs.Manifest]:
    taker = intake.Intake(spec)
    stored = b"".join(block for piece in given for block in taker.feed(piece))
    rest, manifest = taker.finish()
    return stored + rest, manifest


def naive_lines(content: bytes) -> list[bytes]:
    found = [line + b"\n" for line in content.split(b"\n")]
    found[-1] = found[-1][:-1]
    return [line for line in found if line]


def naive_parts(content: bytes, spec: filejobs.FileJobSpec) -> list[filejobs.Part]:
    """Read one line at a time; double the size of parts until there are few enough."""
    lines, bytes_ = spec.items_per_part, spec.bytes_per_part
    while True:
        found: list[list[bytes]] = [[]]
        for line in naive_lines(content):
            last = found[-1]
            if len(last) == lines or (bytes_ is not None and len(b"".join(last)) >= bytes_):
                found.append(last := [])
            last.append(line)
        if len(found) <= spec.max_parts:
            break
        lines, bytes_ = lines * 2, bytes_ and bytes_ * 2
    parts: list[filejobs.Part] = []
    at, number = 0, 1
    for held in found:
        part = b"".join(held)
        if part:
            start, at = at, at + len(part)
            crc32 = zlib.crc32(part)
            parts.append(filejobs.Part(len(parts) + 1, start, at, number, len(held), crc32))
            number += len(held)
    return parts


def check(content: bytes, spec: filejobs.FileJobSpec, cuts: list[int]) -> filejobs.Manifest:
    """Check all properties of lines and parts, with any limit of parts."""
    stored, manifest = taken_in(spec, pieces(content, cuts))
    assert stored == content.removeprefix(b"\xef\xbb\xbf")
    assert manifest.bytes == len(stored)
    assert manifest.sha256 == hashlib.sha256(stored).hexdigest()
    expected = [line.removesuffix(b"\n").removesuffix(b"\r") for line in naive_lines(stored)]
    assert manifest.lines == len(expected) == sum(part.lines for part in manifest.parts)
    assert len(manifest.parts) <= spec.max_parts
    read: list[bytes] = []
    for part in manifest.parts:
        assert part.first_line == len(read) + 1
        given = pieces(stored[part.start : part.end], cuts)
        read += [record for some in part_reader.batches(given, part, spec.input) for record in some]
    assert read == expected
    return manifest


@hypothesis.given(
    FILES, st.integers(1, 9), st.integers(1, 70), st.lists(st.integers(0, 900), max_size=9)
)
def test_parts_by_lines_match_naive_reader(
    content: bytes, items: int, most: int, cuts: list[int]
) -> None:
    spec = filejobs.FileJobSpec(items_per_part=items, max_parts=most)
    manifest = check(content, spec, cuts)
    assert list(manifest.parts) == naive_parts(content.removeprefix(b"\xef\xbb\xbf"), spec)


@hypothesis.given(
    FILES, st.integers(1, 9), st.integers(1, 90), st.lists(st.integers(0, 900), max_size=9)
)
def test_parts_by_bytes_match_naive_reader(
    content: bytes, items: int, size: int, cuts: list[int]
) -> None:
    spec = filejobs.FileJobSpec(items_per_part=items, bytes_per_part=size)
    manifest = check(content, spec, cuts)
    assert list(manifest.parts) == naive_parts(content.removeprefix(b"\xef\xbb\xbf"), spec)


@hypothesis.given(FILES, st.integers(1, 9), st.integers(1, 90), st.integers(1, 9))
def test_growing_parts_lose_no_line(content: bytes, items: int, size: int, most: int) -> None:
    check(
        content, filejobs.FileJobSpec(items_per_part=items, bytes_per_part=size, max_parts=most), []
    )


def test_long_file_gets_larger_parts_instead_of_more() -> None:
    content = b"".join(b'{"id": %d}\n' % number for number in range(25_000))
    spec = filejobs.FileJobSpec(items_per_part=1)
    stored, manifest = taken_in(spec, pieces(content, list(range(0, len(content), 65_536))))
    assert stored == content
    assert [part.lines for part in manifest.parts] == [4] * 6_250
    for part in manifest.parts[::997]:
        assert part.crc32 == zlib.crc32(content[part.start : part.end])


@hypothesis.given(st.binary(max_size=2000), st.binary(max_size=2000))
def test_combined_checksum_equals_that_of_concatenation(first: bytes, second: bytes) -> None:
    found = checksums.combine(zlib.crc32(first), zlib.crc32(second), len(second))
    assert found == zlib.crc32(first + second)


def test_changed_part_is_refused_by_its_reader() -> None:
    stored, manifest = taken_in(filejobs.FileJobSpec(), [b"one\ntwo\nthree\n"])
    (part,) = manifest.parts
    spec = filejobs.InputSpec()
    for other in (b"one\ntwo\nthrEe\n", stored[:-1], stored + b"\n", b""):
        with pytest.raises(errors.InputChanged, match="part 1 of the stored input"):
            list(part_reader.batches([other], part, spec))


@pytest.mark.parametrize("pieces_of", [1, 700, 5000])
@pytest.mark.parametrize("long", [1024, 1025])
def test_line_longer_than_limit_is_refused(long: int, pieces_of: int) -> None:
    content = b"short\n" * 300 + b"x" * long + b"\nshort\n"
    spec = filejobs.FileJobSpec(input=filejobs.InputSpec(max_line_bytes=1024))
    given = pieces(content, list(range(0, len(content), pieces_of)))
    if long <= 1024:
        assert taken_in(spec, given)[1].lines == 302
    else:
        with pytest.raises(errors.InputRefused, match="line 301 is longer than 1,024") as refused:
            taken_in(spec, given)
        assert refused.value.line == 301


def test_foreign_formats_are_refused_by_name() -> None:
    for head, name in (
        (b"PK\x03\x04", "zip"),
        (b"\xff\xfea\0", "UTF-16"),
        (b"BZh91AY&SY", "bzip2"),
    ):
        with pytest.raises(errors.InputRefused, match=name):
            taken_in(filejobs.FileJobSpec(), pieces(head * 10, [1, 3]))
    assert taken_in(filejobs.FileJobSpec(), [b"BZh, said the bee\n"])[1].lines == 1


def test_line_of_16_mib_takes_no_extra_memory() -> None:
    longest = 16 << 20
    piece = b"x" * (1 << 16)
    taker = intake.Intake(filejobs.FileJobSpec(items_per_part=1))
    tracemalloc.start()
    try:
        for _ in range(longest // len(piece)):
            for _ in taker.feed(piece):
                pass
        for _ in taker.feed(b"\nshort"):
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    _, manifest = taker.finish()
    assert [(part.start, part.end) for part in manifest.parts] == [
        (0, longest + 1),
        (longest + 1, longest + 6),
    ]
    assert peak < 1 << 20
    with pytest.raises(errors.InputRefused, match="line 1 is longer than 16,777,216 bytes"):
        taken_in(filejobs.FileJobSpec(), [piece] * (longest // len(piece) + 1))


def test_offsets_beyond_4_gib_are_correct() -> None:
    start = 5 << 30
    index = indexes.index_of(filejobs.FileJobSpec(items_per_part=1), start=start)
    index.add(b"one\ntwo\n")
    parts, _ = index.finish()
    assert [(part.start, part.end) for part in parts] == [
        (start, start + 4),
        (start + 4, start + 8),
    ]


def test_empty_file_has_no_parts() -> None:
    for content in (b"", b"\xef\xbb\xbf"):
        stored, manifest = taken_in(filejobs.FileJobSpec(), [content])
        assert (stored, manifest.lines, manifest.parts) == (b"", 0, ())


def test_file_larger_than_limit_is_refused() -> None:
    taker = intake.Intake(filejobs.FileJobSpec(), most_bytes=20)
    assert b"".join(taker.feed(b"0123456789\n")) == b"0123456789\n"
    with pytest.raises(errors.InputTooLarge, match="larger than 20 bytes"):
        list(taker.feed(b"0123456789\n"))


HEADS = [magic + b"x" for magic, _ in unsupported_formats._FOREIGN] + [
    unsupported_formats.GZIP,
    b"\xef\xbb\xbf",
    b"\xef",
    b"",
]


@hypothesis.given(
    head=st.sampled_from(HEADS),
    content=FILES,
    items=st.integers(1, 20),
    size=st.none() | st.integers(1, 400),
    given=st.sampled_from([*filejobs.Format]),
    gzip=st.sampled_from([None, False]),
)
def test_stored_index_matches_intake(
    *, head: bytes, content: bytes, items: int, size: int | None, given: str, gzip: bool | None
) -> None:
    data = head + content
    spec = filejobs.FileJobSpec(
        items_per_part=items,
        bytes_per_part=size,
        input=filejobs.InputSpec(format=filejobs.Format(given), gzip=gzip, max_line_bytes=1024),
    )
    found = whole_file_indexing.manifest(data, spec)
    if found is not None:
        assert taken_in(spec, [data]) == (data, found)
    elif (
        given in ("jsonl", "text")
        and data
        and not unsupported_formats.foreign(data)
        and data[0] != 0xEF
    ):
        with_bytes = size is not None and len(data) > size
        odd = data[0] in unsupported_formats.FIRST_BYTES
        assert odd or with_bytes or len(data) > 1024 or len(naive_lines(data)) > items
