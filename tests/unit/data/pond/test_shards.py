"""Every file, byte and record is in exactly one shard, and always in the same one."""

import itertools
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilnwork.data import errors
from kilnwork.data.pond import manifest, shard_records, shards
from support import ponds

SIZES = st.lists(st.integers(0, 500), min_size=0, max_size=30)
COUNTS = st.integers(1, 40)
WHOLE = st.sampled_from(["files", "hash"])


def snapshot(sizes: list[int]) -> manifest.Manifest:
    return ponds.manifest_of({f"d{i % 3}/f{i:03}": bytes(size) for i, size in enumerate(sizes)})


@given(SIZES, COUNTS, WHOLE)
def test_every_file_is_in_exactly_one_shard(sizes: list[int], count: int, by: str) -> None:
    made = snapshot(sizes)

    found = shards.plan(made, shards.Scheme(by=by), count)

    assert len(found) == count
    paths = [path for shard in found for path in shard.paths]
    assert sorted(paths) == [file.path for file in made.files]
    assert all(file.range is None for shard in found for file in shard.files)


@given(SIZES, COUNTS)
def test_every_byte_is_in_exactly_one_range(sizes: list[int], count: int) -> None:
    made = snapshot(sizes)

    found = shards.plan(made, shards.Scheme(by="range"), count)

    assert len(found) == count
    for file in made.files:
        spans = sorted(
            (0, file.size) if part.range is None else part.range
            for shard in found
            for part in shard.files
            if part.path == file.path
        )
        assert spans[0][0] == 0
        assert spans[-1][1] == file.size
        assert all(a[1] == b[0] for a, b in itertools.pairwise(spans))
    total, each = made.size, [shard.size for shard in found]
    assert max(each) - min(each) <= 1 or total == 0


@given(st.dictionaries(st.from_regex(r"[a-z]{1,4}", fullmatch=True), st.integers(0, 99)), COUNTS)
def test_shards_do_not_depend_on_the_order_of_files(sizes: dict[str, int], count: int) -> None:
    files = {path: bytes(size) for path, size in sizes.items()}
    turned = dict(reversed(files.items()))
    scheme = shards.Scheme(by="range")

    assert shards.plan(ponds.manifest_of(files), scheme, count) == shards.plan(
        ponds.manifest_of(turned), scheme, count
    )


@given(SIZES, COUNTS)
def test_no_shard_of_files_is_empty_if_there_are_enough(sizes: list[int], count: int) -> None:
    found = shards.plan(snapshot(sizes), shards.Scheme(by="files"), count)

    filled = sum(1 for shard in found if shard.files)
    assert filled == min(count, len(sizes))
    order = [path for shard in found for path in shard.paths]
    assert order == sorted(order)


def test_shards_of_files_have_similar_sizes() -> None:
    found = shards.plan(snapshot([100] * 12), shards.Scheme(by="files"), 4)

    assert [shard.size for shard in found] == [300] * 4


@given(SIZES, COUNTS)
def test_shard_ids_depend_on_digest_scheme_and_count(sizes: list[int], count: int) -> None:
    scheme = shards.Scheme(by="files")
    ids = [shard.id for shard in shards.plan(snapshot(sizes), scheme, count)]

    assert ids == [shard.id for shard in shards.plan(snapshot(sizes), scheme, count, snapshot="x")]
    assert len(set(ids)) == count
    others = shards.plan(snapshot(sizes), scheme, count + 1)
    assert not {shard.id for shard in others} & set(ids)


def test_number_of_shards_does_not_change_needed_blobs() -> None:
    made = snapshot([100] * 60)
    scheme = shards.Scheme(by="range")

    few, many = shards.plan(made, scheme, 50), shards.plan(made, scheme, 500)

    assert {p for s in few for p in s.paths} == {p for s in many for p in s.paths}


def test_each_pattern_has_its_own_shard() -> None:
    made = ponds.manifest_of({"a/1.csv": b"", "a/2.txt": b"", "b/1.csv": b""})

    found = shards.plan(made, shards.Scheme(by="glob", patterns=("a/*.csv", "**")))

    assert [shard.paths for shard in found] == [("a/1.csv",), ("a/2.txt", "b/1.csv")]
    with pytest.raises(errors.ManifestRefused, match=r"b/1.csv.* in no shard"):
        shards.plan(made, shards.Scheme(by="glob", patterns=("a/*",)))


@pytest.mark.parametrize(
    ("scheme", "count"),
    [
        (shards.Scheme(by="range"), None),
        (shards.Scheme(by="files"), 0),
        (shards.Scheme(by="files"), 100_001),
        (shards.Scheme(by="files", key="id"), 3),
        (shards.Scheme(by="glob"), None),
        (shards.Scheme(by="hash", patterns=("*",)), 3),
        (shards.Scheme(by="files", unit="rows"), 3),
        (shards.Scheme(by="glob", patterns=("*",)), 3),
    ],
)
def test_invalid_schemes_are_refused(scheme: shards.Scheme, count: int | None) -> None:
    with pytest.raises(errors.ManifestRefused):
        shards.plan(snapshot([1]), scheme, count)


@given(st.lists(st.binary(max_size=12).filter(lambda b: b"\n" not in b), max_size=40), COUNTS)
def test_every_record_is_in_exactly_one_range(
    tmp_path_factory: pytest.TempPathFactory, rows: list[bytes], count: int
) -> None:
    directory = tmp_path_factory.mktemp("records")
    content = b"".join(row + b"\n" for row in rows).removesuffix(b"\n" if count % 2 else b"")
    (directory / "f").write_bytes(content)
    made = ponds.manifest_of({"f": content})

    found = shards.plan(made, shards.Scheme(by="range"), count)

    got = [line for shard in found for line in shard_records.of_shard(shard, directory)]
    assert got == content.removesuffix(b"\n").split(b"\n") if content else got == []


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 9))
def test_every_record_with_a_key_is_in_exactly_one_shard(
    tmp_path_factory: pytest.TempPathFactory, keys: list[int], count: int
) -> None:
    directory = tmp_path_factory.mktemp("keys")
    rows = [json.dumps({"id": key, "n": n}) for n, key in enumerate(keys)]
    files = {
        "a.ndjson": "".join(row + "\n" for row in rows).encode(),
        "b.csv": ("n,id\n" + "".join(f"{n},{key}\n" for n, key in enumerate(keys))).encode(),
    }
    ponds.write_files(directory, files)
    made = ponds.manifest_of(files)

    found = shards.plan(made, shards.Scheme(by="hash", key="id"), count)

    got = [[line.decode() for line in shard_records.of_shard(shard, directory)] for shard in found]
    csv_rows = [f"{n},{key}" for n, key in enumerate(keys)]
    assert sorted(line for lines in got for line in lines) == sorted(rows + csv_rows)
    where = {
        (json.loads(line)["id"] if line.startswith("{") else int(line.split(",")[1])): shard
        for shard, lines in enumerate(got)
        for line in lines
    }
    for shard, lines in enumerate(got):
        for line in lines:
            key = json.loads(line)["id"] if line.startswith("{") else int(line.split(",")[1])
            assert where[key] == shard


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.ndjson", b'{"x": 1}\n', "line 1 has no field 'id'"),
        ("a.ndjson", b"no json\n", "line 1 is no JSON"),
        ("a.csv", b"x,y\n1,2\n", "no column 'id'"),
        ("a.csv", b"x,id\n1\n", "line 2 has no column 'id'"),
        ("a.csv", b'x,id\n"1\n2",3\n', "line 2: a field is not closed"),
    ],
)
def test_records_without_the_key_are_refused(
    tmp_path: Path, name: str, content: bytes, why: str
) -> None:
    (tmp_path / name).write_bytes(content)
    made = ponds.manifest_of({name: content})
    [shard] = shards.plan(made, shards.Scheme(by="hash", key="id"), 1)

    with pytest.raises(errors.BadRecord, match=why):
        list(shard_records.of_shard(shard, tmp_path))


ROWS = st.lists(st.text('ab,; \r"', max_size=6), max_size=12)


@given(
    st.dictionaries(
        st.sampled_from(["a.csv", "b.ndjson", "c/d.csv", "e", "f.csv"]),
        st.tuples(ROWS, st.booleans()),
    ),
    COUNTS,
)
def test_every_row_is_in_exactly_one_range_of_rows(
    tmp_path_factory: pytest.TempPathFactory,
    files: dict[str, tuple[list[str], bool]],
    count: int,
) -> None:
    """In the order of files and lines, in equal numbers, without the headers of CSV files."""
    directory = tmp_path_factory.mktemp("rows")
    content: dict[str, bytes] = {}
    expected: list[bytes] = []
    for path, (rows, ends) in sorted(files.items()):
        lines = [row.encode() for row in rows]
        if path.endswith(".csv"):
            lines = [line.replace(b'"', b"") for line in lines]
        whole = b"\n".join(lines) + (b"\n" if ends and lines else b"")
        (directory / path).parent.mkdir(exist_ok=True)
        (directory / path).write_bytes(whole)
        content[path] = whole
        kept = whole.removesuffix(b"\n").split(b"\n") if whole else []
        expected += kept[1:] if path.endswith(".csv") else kept

    found = shards.plan(ponds.manifest_of(content), shards.Scheme(by="range", unit="rows"), count)
    got = [list(shard_records.of_shard(shard, directory)) for shard in found]

    assert [line for lines in got for line in lines] == expected
    assert max(map(len, got)) - min(map(len, got)) <= 1
    assert [shard.index for shard in found] == list(range(count))


@pytest.mark.parametrize("unit", ["bytes", "rows"])
def test_csv_rows_across_several_lines_are_refused(tmp_path: Path, unit: str) -> None:
    content = b'id,text\n1,"one\nline"\n2,"two ""quoted"" words"\n'
    (tmp_path / "a.csv").write_bytes(content)
    scheme = shards.Scheme(by="range", unit=unit)

    for count in (1, 2, 5):
        found = shards.plan(ponds.manifest_of({"a.csv": content}), scheme, count)
        read = itertools.chain.from_iterable(shard_records.of_shard(s, tmp_path) for s in found)
        with pytest.raises(errors.BadRecord, match="a field is not closed on its line"):
            list(read)


def test_rows_beyond_the_first_block_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_records, "_BLOCK_BYTES", 7)
    rows = [b"%d" % number for number in range(1000)]
    content = b"id\n" + b"\n".join(rows)
    (tmp_path / "a.csv").write_bytes(content)
    found = shards.plan(
        ponds.manifest_of({"a.csv": content}), shards.Scheme(by="range", unit="rows"), 7
    )
    assert [line for shard in found for line in shard_records.of_shard(shard, tmp_path)] == rows


def test_decoded_scheme_gives_same_shard_ids() -> None:
    """Defaults have the same effect whether they are written or not."""
    made = snapshot([10, 10])
    text = b'{"by": "range", "key": "", "patterns": [], "unit": "bytes"}'
    read = msgspec.json.decode(text, type=shards.Scheme)
    assert shards.plan(made, read, 2) == shards.plan(made, shards.Scheme(by="range"), 2)


def test_unit_changes_shard_ids() -> None:
    made = snapshot([10, 10])
    of_bytes = shards.plan(made, shards.Scheme(by="range"), 2)
    of_rows = shards.plan(made, shards.Scheme(by="range", unit="rows"), 2)
    assert of_bytes[0].id != of_rows[0].id
    assert [shard.paths for shard in of_rows] == [tuple(file.path for file in made.files)] * 2
