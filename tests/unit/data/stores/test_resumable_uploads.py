"""Uploads continue where they stopped, in one file and in pieces."""

import contextlib
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from kilnwork.data import errors
from kilnwork.data.stores import local, local_resumable, port, resumable_uploads

Opened = Callable[[local.LocalStore, str], resumable_uploads.ResumableUpload]


@pytest.fixture(
    params=[resumable_uploads.open_upload, resumable_uploads.StretchUpload],
    ids=["one file", "pieces"],
)
def opened(request: pytest.FixtureRequest) -> Opened:
    """Opened as in a directory and as in other stores."""
    found: Opened = request.param
    return found


@pytest.fixture
def store(tmp_path: Path) -> local.LocalStore:
    return local.LocalStore(tmp_path / "files")


def test_upload_continues_after_kept_bytes(store: local.LocalStore, opened: Opened) -> None:
    content = os.urandom(3_000_000)
    upload = opened(store, "_uploads/ns/1")
    assert upload.size() == 0
    at = 0
    for size in (1, 0, 999_999, 2_500_000 - 1_000_000, 500_000):
        with resumable_uploads.append(
            opened(store, "_uploads/ns/1"), at, piece_bytes=1_000_000
        ) as new:
            for start in range(at, at + size, 64 << 10):
                new.write(memoryview(content)[start : min(start + (64 << 10), at + size)])
        at += size
        assert upload.size() == new.offset == at
    assert b"".join(upload.read()) == content
    upload.clear()
    assert upload.size() == 0
    assert list(store.list()) == []


def test_bytes_of_interrupted_client_are_kept(store: local.LocalStore, opened: Opened) -> None:
    upload = opened(store, "u")
    with pytest.raises(ConnectionError), resumable_uploads.append(upload, 0) as new:  # noqa: PT012 - it breaks inside
        new.write(b"half")
        raise ConnectionError
    assert upload.size() == 4
    assert b"".join(upload.read()) == b"half"


def test_wrong_offset_is_refused_with_size(store: local.LocalStore, opened: Opened) -> None:
    upload = opened(store, "u")
    with resumable_uploads.append(upload, 0) as new:
        new.write(b"12345")
    for offset in (0, 4, 6):
        with pytest.raises(errors.ObjectChanged, match="send from 5"):
            resumable_uploads.append(upload, offset)


def test_one_of_two_concurrent_appenders_wins(store: local.LocalStore, opened: Opened) -> None:
    upload = opened(store, "u")
    one, other = resumable_uploads.append(upload, 0), resumable_uploads.append(upload, 0)
    one.write(b"one")
    other.write(b"other")
    won: list[bytes] = []
    for name, appender in ((b"one", one), (b"other", other)):
        with contextlib.suppress(errors.ObjectChanged):
            appender.commit()
            won.append(name)
    assert [b"".join(opened(store, "u").read())] == won


def test_committed_stretches_survive_a_kill(store: local.LocalStore, opened: Opened) -> None:
    new = resumable_uploads.append(opened(store, "u"), 0, piece_bytes=10)
    for _ in range(7):
        new.write(b"four")
    del new  # without a commit of the last four bytes
    assert opened(store, "u").size() == 24


def test_newest_appender_excludes_earlier_ones(store: local.LocalStore) -> None:
    """A client that returns does not wait until its old connection is closed."""
    old = resumable_uploads.append(resumable_uploads.open_upload(store, "u"), 0)
    old.write(b"what came")
    new = resumable_uploads.append(resumable_uploads.open_upload(store, "u"), 0)
    new.write(b"new")
    with pytest.raises(errors.ObjectChanged, match="another client"):
        old.write(b" and is too late")
    old.abort()
    assert new.commit() == 3
    assert b"".join(resumable_uploads.open_upload(store, "u").read()) == b"new"


def test_unconfirmed_bytes_are_overwritten(store: local.LocalStore) -> None:
    lost = resumable_uploads.append(resumable_uploads.open_upload(store, "u"), 0)
    lost.write(b"more than will come")
    del lost  # as if it were killed
    upload = resumable_uploads.open_upload(store, "u")
    assert upload.size() == 0
    with resumable_uploads.append(upload, 0) as new:
        new.write(b"all")
    assert isinstance(upload, local_resumable.LocalResumableUpload)
    assert upload.link("job/input")
    assert port.read_all(store, "job/input") == b"all"


def test_linked_file_shares_content_and_outlives_upload(store: local.LocalStore) -> None:
    upload = local_resumable.LocalResumableUpload(store, "_uploads/u")
    with resumable_uploads.append(upload, 0, piece_bytes=4) as new:
        for _ in range(3):
            new.write(b"all of it ")
    late = resumable_uploads.append(resumable_uploads.open_upload(store, "_uploads/u"), 30)
    for job in ("one", "two"):
        assert upload.link(f"{job}/input")
    with pytest.raises(errors.ObjectExists):
        upload.link("one/input")
    with pytest.raises(errors.ObjectChanged):
        late.write(b"what would change the input of jobs")
    places = [store.path(key) for key in ("_uploads/u/bytes", "one/input", "two/input")]
    assert len({path.stat().st_ino for path in places}) == 1
    store.put("one/input", b"replaced")
    upload.clear()
    assert port.read_all(store, "one/input") == b"replaced"
    assert port.read_all(store, "two/input") == b"all of it " * 3
    assert [facts.key for facts in store.list()] == ["one/input", "two/input"]


def test_append_to_removed_upload_is_refused(store: local.LocalStore) -> None:
    new = resumable_uploads.append(resumable_uploads.open_upload(store, "u"), 0)
    new.write(b"one")
    resumable_uploads.open_upload(store, "u").clear()
    with pytest.raises(errors.ObjectChanged):
        new.write(b"two")
    new.abort()
    assert resumable_uploads.open_upload(store, "u").size() == 0


@pytest.mark.parametrize("seed", range(3))
def test_killed_writer_leaves_confirmed_bytes(store: local.LocalStore, seed: int) -> None:
    """At any time: the confirmed bytes are stored and are those that were written."""
    chosen = random.Random(seed)
    content = chosen.randbytes(1 << 20)
    at = 0
    while at < len(content):
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            new = resumable_uploads.append(
                resumable_uploads.open_upload(store, "u"), at, piece_bytes=50_000
            )
            for start in range(at, len(content), 10_000):
                new.write(content[start : start + 10_000])
                os.write(writer, b"%d\n" % resumable_uploads.open_upload(store, "u").size())
            new.commit()
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as confirmed:
            for _ in range(chosen.randrange(1, 30)):
                at = max(at, int(confirmed.readline() or b"0"))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        size = resumable_uploads.open_upload(store, "u").size()
        assert at <= size
        assert b"".join(resumable_uploads.open_upload(store, "u").read()) == content[:size], (
            f"seed {seed}"
        )
        at = size
    assert local_resumable.LocalResumableUpload(store, "u").link("job/input")
    assert port.read_all(store, "job/input") == content
