"""CSV, JSON arrays and gzip, in any pieces, are read as by Python's own readers."""

import csv
import gzip
import hashlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import msgspec
import pytest

from kilnwork.api import filejobs
from kilnwork.data import errors
from kilnwork.data.records import (
    csv_rows,
    in_place_indexing,
    intake,
    json_arrays,
    manifest_encoding,
    part_reader,
    reread_thread,
    unsupported_formats,
    values,
)

CUTS = st.lists(st.integers(0, 600), max_size=9)
CELLS = st.text(st.sampled_from('ab,;"\n\r \0é'), max_size=8).map(
    lambda cell: cell.replace("\r", "\r\n")
)
"""No lone CR: Python's csv takes it for a line end, and we do not."""


def pieces(content: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({min(cut, len(content)) for cut in cuts} | {len(content)})
    return [content[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def taken_in(spec: filejobs.FileJobSpec, given: list[bytes]) -> tuple[bytes, filejobs.Manifest]:
    taker = intake.Intake(spec)
    kept = b"".join(block for piece in given for block in taker.feed(piece))
    rest, manifest = taker.finish()
    kept += rest
    assert manifest_encoding.decode(manifest_encoding.encode(manifest)) == manifest
    assert (manifest.bytes, manifest.sha256) == (len(kept), hashlib.sha256(kept).hexdigest())
    return kept, manifest


def read(
    spec: filejobs.FileJobSpec, kept: bytes, manifest: filejobs.Manifest, cuts: list[int]
) -> list[bytes]:
    found: list[bytes] = []
    for part in manifest.parts:
        assert part.first_line == len(found) + 1
        for some in part_reader.batches(
            pieces(kept[part.start : part.end], cuts), part, spec.input
        ):
            found += some
    return found


def csv_of(table: list[list[str]], delimiter: str, end: str, quoting: Any) -> bytes:
    file = io.StringIO()
    csv.writer(file, delimiter=delimiter, lineterminator=end, quoting=quoting).writerows(table)
    return file.getvalue().encode()


@hypothesis.given(
    st.integers(1, 4).flatmap(
        lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), max_size=12)
    ),
    st.sampled_from(",;\t"),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.booleans(),
    st.integers(1, 5),
    CUTS,
)
def test_written_csv_rows_are_read_back(
    table: list[list[str]],
    delimiter: str,
    end: str,
    quoting: Any,
    ended: bool,  # noqa: FBT001
    items: int,
    cuts: list[int],
) -> None:
    header = [f"column {n}" for n in range(len(table[0]) if table else 1)]
    content = csv_of([header, *table], delimiter, end, quoting)
    if not ended:
        content = content.removesuffix(end.encode())
    given = filejobs.InputSpec(format=filejobs.Format.CSV, delimiter=delimiter)
    spec = filejobs.FileJobSpec(input=given, items_per_part=items)
    kept, manifest = taken_in(spec, pieces(content, cuts))
    assert kept == content
    assert manifest.header == tuple(header)
    assert manifest.lines == len(table)
    assert [part.lines for part in manifest.parts[:-1]] == [items] * (len(manifest.parts) - 1)
    decode = values.decoder(given, manifest.header)
    found = [list(decode(row).values()) for row in read(spec, kept, manifest, cuts)]
    assert found == table


@hypothesis.given(st.text(st.sampled_from('ab,"\n'), max_size=60), CUTS)
def test_csv_rows_of_any_text_match_python_csv(text: str, cuts: list[int]) -> None:
    content = b"one,two,three\n" + text.encode()
    spec = filejobs.FileJobSpec(input=filejobs.InputSpec(format=filejobs.Format.CSV))
    try:
        expected = list(csv.reader(io.StringIO(text, newline=""), strict=False))
    except csv.Error:
        expected = []
    dialect = csv_rows.CsvDialect(",")
    try:
        kept, manifest = taken_in(spec, pieces(content, cuts))
    except errors.InputRefused as refused:
        assert "never closed" in str(refused)  # noqa: PT017
        closed = list(csv.reader(io.StringIO(text + '"', newline="")))
        assert len(closed) == len(expected)
        return
    found = [dialect.cells(row) for row in read(spec, kept, manifest, cuts)]
    assert [[cell.decode() for cell in row] for row in found] == [row or [""] for row in expected]


def test_row_with_wrong_number_of_cells_is_bad_record() -> None:
    spec = filejobs.InputSpec(format=filejobs.Format.CSV)
    decode = values.decoder(spec, ("a", "b"))
    assert decode(b'"x, y",2') == {"a": "x, y", "b": "2"}
    for row, reason in ((b"1", "1 columns instead of 2"), (b"1,\xff", "not UTF-8")):
        with pytest.raises(errors.BadRecord, match=reason):
            decode(row)


@pytest.mark.parametrize(
    ("content", "reason", "line"),
    [
        (b'a,b\n1,2\n3,"4\n5,6\n', "quote that opens in row 2 is never closed", 2),
        (b"a,a\n1,2\n", "two columns are named 'a'", None),
        (b"\n1,2\n", "names no column", None),
        (b"\xff\n1\n", "header of the file is not UTF-8", None),
        (b"a\n" + b"x" * 1025 + b"\n", "(row|line) 1 is longer than 1,024", 1),
        (b'a\n1\n"' + b"x\n" * 1025 + b'"\n', "row 2 is longer than 1,024", 2),
        (b'a\n"1"\n"2"\n' + b"x" * 1025 + b"\n3\n", "(row|line) 3 is longer than 1,024", 3),
    ],
)
def test_invalid_csv_is_refused_with_row_number(
    content: bytes, reason: str, line: int | None
) -> None:
    given = filejobs.InputSpec(format=filejobs.Format.CSV, max_line_bytes=1024)
    for step in (1, 100, len(content)):
        with pytest.raises(errors.InputRefused, match=reason) as refused:
            taken_in(filejobs.FileJobSpec(input=given), pieces(content, list(range(0, 4000, step))))
        assert refused.value.line == line


def test_delimiter_must_be_one_ascii_character() -> None:
    for delimiter in ('"', "\n", "\r", "§"):
        with pytest.raises(errors.InputRefused, match=r"input\.delimiter is"):
            csv_rows.CsvDialect(delimiter)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)
ALIKE = st.recursive(
    st.sampled_from([0, "},{", '"a":', ","]),
    lambda inner: st.fixed_dictionaries({"a": st.lists(inner, max_size=3)}),
    max_leaves=6,
).map(lambda value: {"a": value})
ARRAYS = st.lists(JSON, max_size=12) | st.lists(ALIKE, max_size=12)
LAYOUTS = st.sampled_from(
    [(None, (",", ":")), (None, (", ", ": ")), (2, (",", ": ")), (0, (" ,", ":"))]
)


@pytest.fixture(params=[1, 40, 1 << 17])
def tried_at(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Try the faster way from this number of bytes on."""
    monkeypatch.setattr(json_arrays, "_ALIKE_BYTES", request.param)


@pytest.mark.usefixtures("tried_at")
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(ARRAYS, LAYOUTS, st.sampled_from(["", " \r\n\t"]), st.booleans(), CUTS)
def test_array_elements_match_python_json(
    elements: list[Any],
    layout: tuple[int | None, tuple[str, str]],
    around: str,
    ascii_only: bool,  # noqa: FBT001
    cuts: list[int],
) -> None:
    indent, separators = layout
    text = json.dumps(elements, indent=indent, separators=separators, ensure_ascii=ascii_only)
    spec = filejobs.FileJobSpec(
        input=filejobs.InputSpec(format=filejobs.Format.JSON), items_per_part=2
    )
    content = (around + text.replace("\n", "\r\n") + around).encode("utf-8", "surrogatepass")
    kept, manifest = taken_in(spec, pieces(content, cuts))
    found = read(spec, kept, manifest, cuts)
    assert [json.loads(one.decode("utf-8", "surrogatepass")) for one in found] == elements
    assert manifest.lines == len(elements)
    assert kept.count(b"\n") == len(elements)


@pytest.mark.usefixtures("tried_at")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1}\n{"a": 2}', r"does not begin with \["),
        ("[1, 2", "ends before its ]"),
        ("[1, 2] [3]", "."),
        ("[1,, 2]", "."),
        ("[1, 2,]", "."),
        ("[,]", "."),
        ('["a\nb"]', "."),
        ('["a]', "."),
        ("[" * 100_000 + "]" * 100_000, "."),
        ('[{"a":' + "7" * 3000 + "}]", "longer than 1,024"),
        ("[1, 2}", "element 2 .* ends with }"),
        ("[1, 2, , 3]", "element 3 .* is empty"),
        ("nonsense", r"does not begin with \["),
        ("  x", r"does not begin with \["),
    ],
)
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_json_other_than_array_is_refused(text: str, reason: str, step: int) -> None:
    given = filejobs.InputSpec(format=filejobs.Format.JSON, max_line_bytes=1024)
    content = text.encode()
    if step == 1 and len(content) > 10_000:
        step = 1000
    cuts = list(range(0, len(content), step))
    with pytest.raises(errors.InputRefused, match=reason):
        taken_in(filejobs.FileJobSpec(input=given), pieces(content, cuts))


@pytest.mark.usefixtures("tried_at")
@pytest.mark.parametrize("content", [b"", b" \n", b"[]", b" [ ] ", b"\xef\xbb\xbf[]\n"])
def test_empty_array_has_no_parts(content: bytes) -> None:
    spec = filejobs.FileJobSpec(input=filejobs.InputSpec(format=filejobs.Format.JSON))
    assert taken_in(spec, [content])[1].parts == ()


@pytest.mark.usefixtures("tried_at")
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_invalid_element_is_bad_record(step: int) -> None:
    spec = filejobs.FileJobSpec(input=filejobs.InputSpec(format=filejobs.Format.JSON))
    content = b'[1, NaN, "\\ud800", "\xff", 1\n2, {"a" 1}, [1,], {"a": [1}, {]}]'
    kept, _ = taken_in(spec, pieces(content, list(range(0, len(content), step))))
    assert kept == b'1\nNaN\n"\\ud800"\n"\xff"\n1 2\n{"a" 1}\n[1,]\n{"a": [1}, {]}\n'
    for line in kept.splitlines()[1:]:
        with pytest.raises(errors.BadRecord, match="not JSON"):
            values.decoder(spec.input)(line)


@hypothesis.given(
    st.lists(st.binary(max_size=200), min_size=1, max_size=4), CUTS, st.integers(0, 9)
)
def test_concatenated_gzip_members_are_one_file(
    members: list[bytes], cuts: list[int], zeros: int
) -> None:
    packed = b"".join(gzip.compress(member) for member in members) + b"\0" * zeros
    spec = filejobs.FileJobSpec(input=filejobs.InputSpec(format=filejobs.Format.TEXT))
    kept, manifest = taken_in(spec, pieces(packed, cuts))
    plain = b"".join(members).removeprefix(b"\xef\xbb\xbf")
    assert kept == plain
    assert b"".join(read(spec, kept, manifest, cuts)) == b"".join(
        line.removesuffix(b"\r") for line in plain.split(b"\n")
    )


def test_truncated_or_damaged_gzip_is_refused() -> None:
    packed = gzip.compress(b"one\ntwo\n" * 100)
    for content, reason in (
        (packed[:-1], "ends early"),
        (packed[:-8] + b"\xff" * 8, "damaged"),
        (packed + b"rest", "damaged"),
    ):
        with pytest.raises(errors.InputRefused, match=reason):
            taken_in(filejobs.FileJobSpec(), [content])
    forced = filejobs.FileJobSpec(input=filejobs.InputSpec(gzip=True))
    with pytest.raises(errors.InputRefused, match="not compressed with gzip"):
        taken_in(forced, [b"plain text\n"])
    as_it_is = filejobs.FileJobSpec(input=filejobs.InputSpec(gzip=False))
    assert taken_in(as_it_is, [packed])[0] == packed


def test_gzip_bomb_is_unpacked_in_small_pieces_up_to_limit() -> None:
    packed = gzip.compress(b"\n" * (64 << 20), 9)
    taker = intake.Intake(filejobs.FileJobSpec(max_parts=3, items_per_part=1), most_bytes=40 << 20)
    sizes: list[int] = []
    with pytest.raises(errors.InputTooLarge, match="larger than 41,943,040 bytes"):
        sizes.extend(len(piece) for piece in taker.feed(packed))
    assert max(sizes) <= 1 << 20
    assert (40 << 20) - max(sizes) < sum(sizes) <= 40 << 20


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[bytes], int]]:
    """An open file with this content; one file for all tests, since only one is used at a time."""
    path = tmp_path_factory.mktemp("there") / "file"

    def made(content: bytes) -> int:
        path.write_bytes(content)
        return file.fileno()

    path.touch()
    with path.open("rb", buffering=0) as file:
        yield made


@hypothesis.given(
    st.binary(max_size=300),
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    CUTS,
    st.integers(unsupported_formats.HEAD_BYTES, 90),
)
def test_stored_file_has_same_parts_as_intake(
    there: Callable[[bytes], int], rest: bytes, mark: bytes, cuts: list[int], block: int
) -> None:
    content = mark + b"begins like this\n" + rest
    file = there(content)

    def indexed(spec: filejobs.FileJobSpec, *, digest: bool) -> filejobs.Manifest:
        with in_place_indexing.Indexing(file, spec, digest=digest, block_bytes=block) as indexing:
            while indexing.index_bytes(100):
                pass
            return manifest_encoding.checked(indexing.finish())

    for format_ in (filejobs.Format.TEXT, filejobs.Format.CSV):
        spec = filejobs.FileJobSpec(input=filejobs.InputSpec(format=format_), items_per_part=2)
        try:
            _, sent = taken_in(spec, pieces(content, cuts))
        except errors.InputRefused:
            with pytest.raises(errors.InputRefused):
                indexed(spec, digest=True)
            continue
        found = indexed(spec, digest=True)
        assert indexed(spec, digest=False) == msgspec.structs.replace(found, sha256="")
        assert found.sha256 == hashlib.sha256(content).hexdigest()
        assert (found.bytes, found.lines, found.header) == (len(content), sent.lines, sent.header)
        assert [(p.start - len(mark), p.end - len(mark), *_rest(p)) for p in found.parts] == [
            (p.start, p.end, *_rest(p)) for p in sent.parts
        ]


def _rest(part: filejobs.Part) -> tuple[int, ...]:
    return part.number, part.first_line, part.lines, part.crc32


def test_long_file_is_indexed_by_two_threads(there: Callable[[bytes], int]) -> None:
    """It is longer than one batch of the second thread, and its parts grow meanwhile."""
    content = b"".join(b"%d,%s\n" % (n, b"x" * (n % 50)) for n in range(700_000))
    spec = filejobs.FileJobSpec(
        input=filejobs.InputSpec(format=filejobs.Format.TEXT), items_per_part=100, max_parts=900
    )
    _, sent = taken_in(spec, pieces(content, list(range(0, len(content), 100_000))))
    assert len(content) > 2 * reread_thread.TOGETHER_BYTES
    assert in_place_indexing.manifest(there(content), spec) == sent
    assert in_place_indexing.manifest(there(content), spec, digest=False).parts == sent.parts


def test_file_that_needs_rewriting_is_not_indexed_in_place(
    there: Callable[[bytes], int],
) -> None:
    array = filejobs.FileJobSpec(input=filejobs.InputSpec(format=filejobs.Format.JSON))
    packed = gzip.compress(b"one\n")
    assert in_place_indexing.needs_rewriting(packed, filejobs.InputSpec())
    assert in_place_indexing.needs_rewriting(b"[]", array.input)
    assert not in_place_indexing.needs_rewriting(b"one\n", filejobs.InputSpec())
    for content, spec in ((b"[]", array), (packed, filejobs.FileJobSpec())):
        with pytest.raises(errors.InputRefused):
            in_place_indexing.manifest(there(content), spec)


def test_file_is_indexed_in_steps(there: Callable[[bytes], int]) -> None:
    file = there(b"line\n" * 20)
    with in_place_indexing.Indexing(file, filejobs.FileJobSpec(), block_bytes=15) as indexing:
        assert [indexing.index_bytes(count) for count in (1, 30, 40, 40, 1)] == [15, 30, 45, 10, 0]
        assert indexing.finish() == in_place_indexing.manifest(file, filejobs.FileJobSpec())


@pytest.mark.parametrize("digest", [True, False])
def test_file_truncated_during_indexing_is_reported(
    there: Callable[[bytes], int], *, digest: bool
) -> None:
    with in_place_indexing.Indexing(
        there(b"line\n" * 20), filejobs.FileJobSpec(), digest=digest, block_bytes=50
    ) as indexing:
        assert indexing.index_bytes(50) == 50
        there(b"line\n")
        with pytest.raises(errors.FileChanged, match="became shorter"):
            indexing.finish()


def test_inconsistent_manifest_is_refused() -> None:
    _, good = taken_in(filejobs.FileJobSpec(items_per_part=1), [b"one\ntwo\n"])
    text = manifest_encoding.encode(good).decode()
    for before, after in (
        ('"bytes":8', '"bytes":9'),
        ('"lines":2', '"lines":3'),
        ("[1,0,4", "[1,0,3"),
        ("[2,4", "[3,4"),
        ('"version":1', '"version":2'),
        ("}", ""),
    ):
        assert before in text
        with pytest.raises(errors.ManifestDamaged, match="not what was written"):
            manifest_encoding.decode(text.replace(before, after).encode())


def test_manifest_of_sample_has_stable_encoding() -> None:
    """Later versions read these manifests, so their encoding must not change unnoticed."""
    sample = Path(__file__).parents[3] / "examples" / "30-upload" / "sample_small_work.json"
    _, manifest = taken_in(filejobs.FileJobSpec(items_per_part=10), [sample.read_bytes()])
    assert manifest_encoding.encode(manifest) == (
        b'{"format":"jsonl","bytes":1251,"lines":21,'
        b'"sha256":"5362022d10491bfae03f4d6e120fcc1cba6f7f1b44c9d81d5b978f2bc690fab8",'
        b'"parts":[[1,0,591,1,10,2470192898],[2,591,1191,11,10,879536259],'
        b'[3,1191,1251,21,1,3066527239]],"header":null,"version":1}'
    )
