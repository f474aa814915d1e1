"""Fetching and pinning: damaged data never becomes a blob, received data is kept."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilnwork.data import errors, local_blobs
from kilnwork.data.pond import blob_fetch, blob_files, origins, store
from kilnwork.kit import clock
from support import ponds

CONTENT = bytes(range(256)) * 40
DIGEST = local_blobs.parse(ponds.digest_of(CONTENT))


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[store.PondStore]:
    made = ponds.opened(tmp_path / "pond")
    yield made
    made.close()


@pytest.fixture
def source() -> ponds.CountingSource:
    return ponds.CountingSource({"a": CONTENT})


def fetch(
    kept: store.PondStore, *where: origins.Origin, progress: blob_fetch.Progress | None = None
) -> blob_fetch.Fetched:
    return blob_fetch.fetch(
        kept, DIGEST, len(CONTENT), where=where, progress=progress or blob_fetch.Progress()
    )


def content_of(kept: store.PondStore) -> bytes:
    return kept.blobs.path(DIGEST).read_bytes()


def test_blob_is_fetched_and_verified(kept: store.PondStore, source: ponds.CountingSource) -> None:
    found = fetch(kept, source.origin("a"))

    assert content_of(kept) == CONTENT
    assert found == blob_fetch.Fetched(DIGEST, len(CONTENT), "lake", False, len(CONTENT))
    assert list(kept.blobs.partials()) == []


def test_peer_is_tried_before_the_source(
    kept: store.PondStore, source: ponds.CountingSource
) -> None:
    peer = ponds.CountingSource({"a": CONTENT}, name="node-1")

    found = fetch(kept, peer.origin("a", peer=True), source.origin("a"))

    assert (found.origin, found.peer) == ("node-1", True)
    assert source.opened == []


def test_interrupted_fetch_resumes_where_it_stopped(
    kept: store.PondStore, source: ponds.CountingSource
) -> None:
    source.cut = 3000
    for _ in range(3):
        with pytest.raises(errors.SourceUnreachable):
            fetch(kept, source.origin("a"))
    source.cut = None

    fetch(kept, source.origin("a"))

    assert source.opened == [("a", 0), ("a", 3000), ("a", 6000), ("a", 9000)]
    assert source.sent == len(CONTENT)
    assert content_of(kept) == CONTENT


def test_bytes_from_peer_are_not_resumed_from_source(
    kept: store.PondStore, source: ponds.CountingSource
) -> None:
    """Their bytes are never mixed unless both have the same digest or stamp."""
    peer = ponds.CountingSource({"a": CONTENT}, name="node-1")
    peer.cut = 3000

    fetch(kept, peer.origin("a", peer=True), source.origin("a"))

    assert source.opened == [("a", 0)]
    assert content_of(kept) == CONTENT


def test_interrupted_fetch_from_peer_is_resumed(
    kept: store.PondStore, source: ponds.CountingSource
) -> None:
    source.cut = 3000
    peer = ponds.CountingSource({"a": CONTENT}, name="node-1")
    with pytest.raises(errors.SourceUnreachable):
        fetch(kept, source.origin("a"))

    found = fetch(kept, peer.origin("a", peer=True))

    assert peer.opened == [("a", 3000)]
    assert found.received == len(CONTENT) - 3000


def test_damaged_blob_is_set_aside_and_fetched_again(
    kept: store.PondStore, source: ponds.CountingSource
) -> None:
    spoilt = [b"\xff" + CONTENT[1:]]
    source.damage = lambda _, content: spoilt.pop() if spoilt else content

    fetch(kept, source.origin("a"))

    assert content_of(kept) == CONTENT
    assert kept.blobs.damaged == 1
    assert len(source.opened) == 2


def test_blob_damaged_twice_is_data_corruption(
    kept: store.PondStore, source: ponds.CountingSource
) -> None:
    source.damage = lambda _, content: os.urandom(1) * 2 + os.urandom(8) + content[10:]

    with pytest.raises(errors.DataCorrupt, match="damaged 2 times"):
        fetch(kept, source.origin("a"))

    assert len(source.opened) == blob_fetch.TRIES
    assert not kept.blobs.path(DIGEST).exists()
    assert list(kept.blobs.partials()) == []


@pytest.mark.parametrize("other", [b"x" * len(CONTENT), b"x", CONTENT + b"x"])
def test_source_with_different_content_has_changed(
    kept: store.PondStore, source: ponds.CountingSource, other: bytes
) -> None:
    source.files["a"] = other

    with pytest.raises(errors.SourceChanged, match="pin it again"):
        fetch(kept, source.origin("a"))

    assert not kept.blobs.path(DIGEST).exists()


def test_source_changed_during_fetch_is_read_from_start(
    kept: store.PondStore, source: ponds.CountingSource
) -> None:
    source.cut = 3000
    with pytest.raises(errors.SourceUnreachable):
        fetch(kept, source.origin("a"))
    source.cut, source.files["a"] = None, b"x" * len(CONTENT)

    with pytest.raises(errors.SourceChanged):
        fetch(kept, source.origin("a"))
    assert source.opened[1] == ("a", 0)

    source.files["a"] = CONTENT
    fetch(kept, source.origin("a"))
    assert content_of(kept) == CONTENT


def test_peer_with_damaged_blob_is_skipped(
    kept: store.PondStore, source: ponds.CountingSource
) -> None:
    peer = ponds.CountingSource({"a": b"x" * len(CONTENT)}, name="node-1")

    found = fetch(kept, peer.origin("a", peer=True), source.origin("a"))

    assert found.origin == "lake"
    assert content_of(kept) == CONTENT


def test_damaged_partial_file_is_fetched_from_beginning(
    kept: store.PondStore, source: ponds.CountingSource
) -> None:
    source.cut = 3000
    with pytest.raises(errors.SourceUnreachable):
        fetch(kept, source.origin("a"))
    source.cut = None
    with (kept.root / "partial" / DIGEST.hex()).open("r+b") as partial:
        partial.write(b"\xff\xff")

    fetch(kept, source.origin("a"))

    assert content_of(kept) == CONTENT
    assert source.opened[-1] == ("a", 0)
    assert kept.blobs.damaged == 0


def test_blob_without_origin_leaves_nothing(kept: store.PondStore) -> None:
    with pytest.raises(errors.SourceUnreachable, match="source is not known"):
        fetch(kept)


def test_error_of_source_is_raised_over_errors_of_peers(
    kept: store.PondStore, source: ponds.CountingSource
) -> None:
    peer = ponds.CountingSource({"a": b"x" * len(CONTENT)}, name="node-1")
    source.cut = 0

    with pytest.raises(errors.SourceUnreachable, match="the connection ended"):
        fetch(kept, peer.origin("a", peer=True), source.origin("a"))


def test_bytes_of_parallel_fetches_are_not_counted(kept: store.PondStore) -> None:
    progress = blob_fetch.Progress()

    class BusySource(ponds.CountingSource):
        """A source during whose use another fetch of the same pin receives 5,000 bytes."""

        def open(self, path: str, *, offset: int = 0, stamp: str = "") -> Any:
            progress.part().add(5000)
            return super().open(path, offset=offset, stamp=stamp)

    source = BusySource({"a": CONTENT})
    assert fetch(kept, source.origin("a"), progress=progress).received == len(CONTENT)
    [listed] = source.list(origins.Selection())
    read, _ = blob_fetch.fetch_new(kept, "new", listed, source=source, progress=progress)
    assert read.received == len(CONTENT)
    assert progress.received == 2 * (len(CONTENT) + 5000)


def test_stopped_fetch_ends_and_keeps_received_bytes(
    kept: store.PondStore, source: ponds.CountingSource
) -> None:
    progress = blob_fetch.Progress()
    progress.stopped = lambda: progress.received >= 2000

    with pytest.raises(blob_fetch.Stopped):
        fetch(kept, source.origin("a"), progress=progress)

    assert dict(kept.blobs.partials()) == {DIGEST.hex(): 2000}


def test_fetch_on_full_disk_leaves_nothing(
    kept: store.PondStore, source: ponds.CountingSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: blob_files.PartialFile, piece: bytes | memoryview) -> None:
        if self.size >= 3000:
            raise OSError(errno.ENOSPC, "No space left on device")
        written(self, piece)

    written = blob_files.PartialFile.write
    monkeypatch.setattr(blob_files.PartialFile, "write", full)

    with pytest.raises(errors.PondFull, match="No space left"):
        fetch(kept, source.origin("a"))

    assert list(kept.blobs.partials()) == []
    assert list((kept.root / "partial").iterdir()) == []


@settings(max_examples=30)
@given(st.lists(st.integers(1, 4000), max_size=6), st.binary(min_size=1, max_size=9000))
def test_fetch_with_any_interruptions_gives_same_blob(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], content: bytes
) -> None:
    kept = ponds.opened(tmp_path_factory.mktemp("pond"))
    source = ponds.CountingSource({"a": content})
    digest = local_blobs.parse(ponds.digest_of(content))
    for cut in [*cuts, None]:
        source.cut = cut
        try:
            blob_fetch.fetch(
                kept,
                digest,
                len(content),
                where=[source.origin("a")],
                progress=blob_fetch.Progress(),
            )
            break
        except errors.SourceUnreachable:
            continue
    assert kept.blobs.path(digest).read_bytes() == content
    assert source.sent == len(content)
    kept.close()


# pinning


def test_source_is_pinned_as_snapshot(kept: store.PondStore) -> None:
    files = {"b": b"2", "a/x": b"1"}

    found = ponds.pin(kept, ponds.CountingSource(files))

    assert found.manifest.digest == ponds.manifest_of(files).digest
    assert found.received == 2
    assert kept.missing(found.manifest.files) == []


def test_unchanged_source_is_pinned_without_reading(kept: store.PondStore) -> None:
    source = ponds.CountingSource({"a": CONTENT, "b": b"2"})
    first = ponds.pin(kept, source)
    source.opened.clear()

    again = ponds.pin(kept, source)

    assert again.manifest.digest == first.manifest.digest
    assert source.opened == []
    assert again.received == 0


def test_only_changed_files_are_read_again(kept: store.PondStore) -> None:
    source = ponds.CountingSource({"a": CONTENT, "b": b"2"})
    ponds.pin(kept, source)
    source.opened.clear()
    source.files["b"] = b"3"
    del source.files["a"]
    source.files["c"] = CONTENT

    found = ponds.pin(kept, source)

    assert source.opened == [("b", 0), ("c", 0)]
    assert found.manifest.digest == ponds.manifest_of({"b": b"3", "c": CONTENT}).digest


def test_interrupted_pin_does_not_read_same_files_again(
    kept: store.PondStore, tmp_path: Path
) -> None:
    source = ponds.CountingSource({f"f{n}": bytes([n]) * 2500 for n in range(4)})
    source.after_open = lambda path: setattr(source, "cut", 1000 if path == "f2" else None)
    with pytest.raises(errors.SourceUnreachable):
        ponds.pin(kept, source)
    kept.close()  # as after kill -9: nothing is written at the end
    source.after_open, source.cut, source.opened = lambda _: None, None, []

    again = ponds.opened(tmp_path / "pond")
    found = ponds.pin(again, source)

    assert source.opened == [("f2", 1000), ("f3", 0)]
    assert again.missing(found.manifest.files) == []
    assert source.sent == 10_000
    again.close()


def test_source_changed_during_pin_is_read_again(
    kept: store.PondStore,
) -> None:
    source = ponds.CountingSource({"a": b"old a", "b": b"old b"})

    def change(path: str) -> None:
        if path == "b" and source.files["a"] == b"old a":
            source.files["a"] = b"new a"

    source.after_open = change

    found = ponds.pin(kept, source)

    assert found.manifest.digest == ponds.manifest_of({"a": b"new a", "b": b"old b"}).digest


def test_constantly_changing_source_is_refused(kept: store.PondStore) -> None:
    source = ponds.CountingSource({"a": b"0", "b": b"0"})
    source.after_open = lambda _: source.files.update(a=os.urandom(4))

    with pytest.raises(errors.SourceChanged, match="3 times"):
        ponds.pin(kept, source)


# files of this machine


def test_directory_is_listed_as_source(kept: store.PondStore, tmp_path: Path) -> None:
    files = {"a.csv": b"1", "d/b.csv": b"2", "d/c.txt": b"3"}
    ponds.write_files(tmp_path / "in", files)
    source = origins.FileSource("disk", tmp_path / "in")

    everything = ponds.pin(kept, source)
    csv = ponds.pin(kept, source, origins.Selection(glob="**/*.csv"))
    one = ponds.pin(kept, source, origins.Selection(paths=("d/c.txt",)))

    assert everything.manifest.digest == ponds.manifest_of(files).digest
    assert [file.path for file in csv.manifest.files] == ["a.csv", "d/b.csv"]
    assert [file.path for file in one.manifest.files] == ["d/c.txt"]
    assert one.received == 1


def test_single_file_is_listed_as_source(kept: store.PondStore, tmp_path: Path) -> None:
    (tmp_path / "only.csv").write_bytes(b"1")

    found = ponds.pin(kept, origins.FileSource("disk", tmp_path / "only.csv"))

    assert found.manifest.digest == ponds.manifest_of({"only.csv": b"1"}).digest


def test_settled_files_are_not_read_again(kept: store.PondStore, tmp_path: Path) -> None:
    ponds.write_files(tmp_path / "in", {"a": b"1", "b": b"2"})
    source = origins.FileSource("disk", tmp_path / "in")
    later = clock.ManualClock(wall=clock.SystemClock().wall() + 60)
    ponds.pin(kept, source, time=later)

    assert ponds.pin(kept, source, time=later).received == 0


def test_recently_written_file_is_read_again(kept: store.PondStore, tmp_path: Path) -> None:
    """Its times may be the same after the next write."""
    ponds.write_files(tmp_path / "in", {"a": b"1"})
    source = origins.FileSource("disk", tmp_path / "in")
    soon = clock.ManualClock(wall=(tmp_path / "in/a").stat().st_mtime)
    ponds.pin(kept, source, time=soon)

    assert ponds.pin(kept, source, time=soon).received == 1


def test_file_written_to_while_it_is_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(3 << 20))
    source = origins.FileSource("disk", tmp_path)

    with source.open("a", offset=0, stamp="") as content:
        pieces = content.pieces()
        next(pieces)
        (tmp_path / "a").write_bytes(b"x" * (3 << 20))
        with pytest.raises(errors.SourceChanged, match="written to"):
            list(pieces)


def test_links_and_pipes_of_a_source_are_refused(kept: store.PondStore, tmp_path: Path) -> None:
    ponds.write_files(tmp_path / "in", {"a": b"1"})
    ponds.write_files(tmp_path, {"secret": b"s"})
    (tmp_path / "in/link").symlink_to(tmp_path / "secret")
    with pytest.raises(errors.SourceRefused, match="in/link is a symbolic link"):
        ponds.pin(kept, origins.FileSource("disk", tmp_path / "in"))

    (tmp_path / "in/link").unlink()
    os.mkfifo(tmp_path / "in/pipe")
    with pytest.raises(errors.SourceRefused, match="in/pipe is a pipe"):
        ponds.pin(kept, origins.FileSource("disk", tmp_path / "in"))


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "linked/secret", "up/../a", "linked"])
def test_paths_outside_of_source_are_refused(
    kept: store.PondStore, tmp_path: Path, path: str
) -> None:
    ponds.write_files(tmp_path, {"in/a": b"1", "secret": b"s"})
    (tmp_path / "in/linked").symlink_to(tmp_path)
    source = origins.FileSource("disk", tmp_path / "in")

    with pytest.raises(errors.SourceRefused):
        ponds.pin(kept, source, origins.Selection(paths=(path,)))


@pytest.mark.parametrize(
    "selection", [origins.Selection(paths=("no",)), origins.Selection(glob="*.no")]
)
def test_missing_files_of_source_are_reported(
    kept: store.PondStore, tmp_path: Path, selection: origins.Selection
) -> None:
    ponds.write_files(tmp_path, {"in/a": b"1"})

    with pytest.raises(errors.SourceMissing):
        ponds.pin(kept, origins.FileSource("disk", tmp_path / "in"), selection)


def test_inline_source_lists_files_of_the_request(kept: store.PondStore) -> None:
    files = {"a": b"1", "d/b": b"2"}

    found = ponds.pin(kept, origins.InlineSource("inline", files))

    assert found.manifest.digest == ponds.manifest_of(files).digest


def test_inline_files_with_other_content_have_other_stamps(kept: store.PondStore) -> None:
    ponds.pin(kept, origins.InlineSource("inline", {"a": b"1"}))

    found = ponds.pin(kept, origins.InlineSource("inline", {"a": b"2"}))

    assert found.manifest.digest == ponds.manifest_of({"a": b"2"}).digest


@pytest.mark.parametrize(
    "selection", [origins.Selection(glob="*.zip"), origins.Selection(paths=("a", "b"))]
)
def test_missing_inline_files_are_reported(selection: origins.Selection) -> None:
    source = origins.InlineSource("inline", {"a": b"1"})

    with pytest.raises(errors.SourceMissing):
        source.list(selection)


@pytest.mark.parametrize("path", ["out", "out/d"])
def test_links_below_declared_source_are_refused(tmp_path: Path, path: str) -> None:
    ponds.write_files(tmp_path / "else", {"d/key": b"secret"})
    ponds.write_files(tmp_path / "in", {"a": b"1"})
    (tmp_path / "in" / "out").symlink_to(tmp_path / "else")
    source = origins.FileSource("disk", tmp_path / "in" / path, below=path.count("/") + 1)

    with pytest.raises(errors.SourceRefused, match="out is a symbolic link"):
        source.list(origins.Selection())
    with pytest.raises(errors.SourceRefused, match="out is a symbolic link"):
        source.open("d/key", offset=0, stamp="")


def test_declared_source_may_be_a_link(tmp_path: Path) -> None:
    ponds.write_files(tmp_path / "in", {"d/a": b"1"})
    (tmp_path / "today").symlink_to(tmp_path / "in")
    source = origins.FileSource("disk", tmp_path / "today" / "d", below=1)

    assert [one.path for one in source.list(origins.Selection())] == ["a"]
