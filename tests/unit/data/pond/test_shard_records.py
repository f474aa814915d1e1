"""Records of a shard: each line of a file is in exactly one shard."""

from pathlib import Path

import pytest

from kilnwork.data import errors
from kilnwork.data.pond import shard_records, shards


def shard(
    *files: shards.ShardFile,
    index: int = 0,
    count: int = 1,
    where: shards.RecordFilter | None = None,
    rows: bool = False,
) -> shards.Shard:
    return shards.Shard(
        snapshot="s",
        digest="d",
        id="i",
        index=index,
        count=count,
        files=files,
        where=where,
        rows=rows,
    )


def written(directory: Path, name: str, content: bytes) -> shards.ShardFile:
    (directory / name).write_bytes(content)
    return shards.ShardFile(path=name, size=len(content))


@pytest.mark.parametrize("content", [b"", b"a\n", b"a\nbb\n\nccc\nd", b"abc", b"\n\n"])
def test_any_cuts_give_each_line_to_one_range(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    whole = list(shard_records.lines(path))
    assert whole == (content.removesuffix(b"\n").split(b"\n") if content else [])
    for cut in range(len(content) + 1):
        first, second = (
            shard_records.lines(path, (0, cut)),
            shard_records.lines(path, (cut, len(content))),
        )
        assert [*first, *second] == whole


@pytest.mark.parametrize("count", [1, 2, 3, 5, 9])
def test_shards_of_rows_divide_all_rows_equally(tmp_path: Path, count: int) -> None:
    files = [
        written(tmp_path, "a.csv", b"h\n1\n2\n3"),
        written(tmp_path, "b.txt", b"4\n5\n"),
        written(tmp_path, "c.csv", b"h\n"),
    ]
    found = [
        list(shard_records.of_shard(shard(*files, index=index, count=count, rows=True), tmp_path))
        for index in range(count)
    ]
    assert [row for rows in found for row in rows] == [b"1", b"2", b"3", b"4", b"5"]
    assert {len(rows) for rows in found} <= {5 // count, -(-5 // count)}


def test_equal_keys_in_json_and_csv_go_to_same_shard(tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(20)]
    lines = "".join(f'{{"k": "{name}"}}\n\n' for name in names)
    rows = "".join(f'1,"{name}"\r\n\r\n' for name in names)
    json_file = written(tmp_path, "a.json", lines.encode())
    csv_file = written(tmp_path, "b.csv", b"v,k\r\n" + rows.encode())
    seen: list[bytes] = []
    for index in range(3):
        where = shards.RecordFilter(key="k", index=index, count=3)
        mine = {name for name in names if shards.bucket(name, 3) == index}
        found = list(shard_records.of_shard(shard(json_file, csv_file, where=where), tmp_path))
        assert {line.split(b'"')[-2].decode() for line in found} == mine
        seen += found
    assert len(seen) == 2 * len(names)


@pytest.mark.parametrize(
    ("name", "content", "key", "reason"),
    [
        ("a.json", b'{"k": 1}\n{', "k", "line 2 is no JSON"),
        ("a.json", b"[1]\n", "k", "line 1 has no field 'k'"),
        ("a.json", b'{"a": 1}\n', "k", "line 1 has no field 'k'"),
        ("a.csv", b"a,b\n1,2\n", "k", "the header has no column 'k'"),
        ("a.csv", b"a,k\n1,2\n3\n", "k", "line 3 has no column 'k'"),
        ("a.csv", b'k\n"1\n2"\n', "k", "line 2: a field is not closed"),
        ("a.csv", b'k\n"1\n2"\n', "", "a field is not closed on its line"),
    ],
)
def test_bad_record_is_reported_with_its_place(
    tmp_path: Path, name: str, content: bytes, key: str, reason: str
) -> None:
    file = written(tmp_path, name, content)
    where = shards.RecordFilter(key=key, index=0, count=1) if key else None
    with pytest.raises(errors.BadRecord, match=reason):
        list(shard_records.of_shard(shard(file, where=where), tmp_path))
