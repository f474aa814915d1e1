"""Shards and snapshots as functions of steps read them."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

import kilnwork as kiln
from kilnwork.data import errors, local_blobs
from kilnwork.data.pond import manifest, shards
from kilnwork.kit import digests

FILES = {
    "a.csv": "id,book\n1,fx\n2,rates\n3,fx\n",
    "deep/b.csv": 'id,book\n4,"a, b"\n5,rates\n',
    "c.jsonl": '{"id": "6", "book": "fx"}\n\n{"id": "7", "book": "none"}\n',
}


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> manifest.Manifest:
    """A snapshot named trades, as a worker sees it."""
    monkeypatch.setenv("KILN_DATA", str(tmp_path))
    files = []
    for path, text in FILES.items():
        file = tmp_path / "trades" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        digest = local_blobs.text(digests.sha256_of((text.encode(),)))
        files.append(manifest.File(path=path, size=len(text), mode=0o644, digest=digest))
    return manifest.Manifest(files)


def documents(of: manifest.Manifest, scheme: shards.Scheme, count: int | None) -> list[Any]:
    planned = shards.plan(of, scheme, count, snapshot="trades")
    return [msgspec.to_builtins(one) for one in planned]


def ids(records: Any) -> list[str]:
    return [str(one["id"]) for one in records]


@pytest.mark.parametrize("count", [1, 2, 5, 40])
@pytest.mark.parametrize(
    "scheme",
    [
        shards.Scheme(by="range"),
        shards.Scheme(by="range", unit="rows"),
        shards.Scheme(by="hash"),
        shards.Scheme(by="hash", key="book"),
        shards.Scheme(by="files"),
    ],
)
def test_each_record_is_in_one_shard(
    found: manifest.Manifest, scheme: shards.Scheme, count: int
) -> None:
    made = [kiln.Shard(document) for document in documents(found, scheme, count)]
    assert sorted(one for shard in made for one in ids(shard.records())) == list("1234567")
    assert [shard.index for shard in made] == list(range(count))
    assert {shard.digest for shard in made} == {found.digest}


def test_records_are_converted_by_the_file_name(found: manifest.Manifest, tmp_path: Path) -> None:
    first, second, third = map(kiln.Shard, documents(found, shards.Scheme(by="files"), None))
    assert next(first.records()) == {"id": "1", "book": "fx"}
    assert list(second.lines()) == [b'{"id": "6", "book": "fx"}', b'{"id": "7", "book": "none"}']
    assert list(third.records()) == [{"id": "4", "book": "a, b"}, {"id": "5", "book": "rates"}]
    assert third.files == [tmp_path / "trades" / "deep" / "b.csv"]
    assert kiln.Shard(third).id == third.id
    (tmp_path / "trades" / "a.csv").write_text("id,book\n1\n")
    with pytest.raises(errors.BadRecord, match=r"a.csv: a line has 1 fields, and the header has 2"):
        list(first.records())


def test_a_snapshot_divides_itself_as_the_pond_would(found: manifest.Manifest) -> None:
    snapshot = kiln.Snapshot({"name": "trades", "digest": found.digest, "bytes": found.size})
    for scheme, count in ((shards.Scheme(by="range"), 3), (shards.Scheme(by="files"), None)):
        made = snapshot.shards(count, by=scheme.by)  # type: ignore[arg-type]  # one of them
        assert [one.id for one in made] == [d["id"] for d in documents(found, scheme, count)]
    keyed = snapshot.shards(2, by="hash", key="book")
    assert [one.id for one in keyed] == [
        document["id"] for document in documents(found, shards.Scheme(by="hash", key="book"), 2)
    ]
    assert ids(snapshot.records()) == list("1236745")
    assert snapshot.path("c.jsonl").is_file()
    with pytest.raises(FileNotFoundError, match="snapshot trades has no file 'x'"):
        snapshot.path("x")


def test_value_that_is_no_document_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match="is no document of a shard, as `each` over data gives it"):
        kiln.Shard({"name": "trades"})
    with pytest.raises(TypeError, match="is no document of a snapshot"):
        kiln.Snapshot({"index": 1})
    monkeypatch.delenv("KILN_DATA", raising=False)
    snapshot = kiln.Snapshot({"name": "trades", "digest": "sha256:0", "bytes": 1})
    with pytest.raises(kiln.ConfigurationError, match="KILN_DATA is not set"):
        assert snapshot.files
