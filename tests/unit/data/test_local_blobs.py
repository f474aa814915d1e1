"""Blobs are stored whole or not at all, checked when read, and kept while they are renewed."""

import contextlib
import hashlib
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from kilnwork.data import errors, local_blobs
from kilnwork.kit import clock
from support import small_disks

HOUR = 3600.0
LARGE = 3 << 20


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "blobs" / "default"


@pytest.fixture(params=[True, False], ids=["durable", "volatile"])
def kept(request: pytest.FixtureRequest, directory: Path) -> local_blobs.Blobs:
    return local_blobs.Blobs(directory, durable=request.param)


def files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def age(path: Path, seconds: float) -> float:
    """Set the file's age; return its new time."""
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))
    return then


@pytest.mark.parametrize("size", [0, 1, 70_000, (1 << 20) - 1, 1 << 20, LARGE])
def test_get_returns_put_content(kept: local_blobs.Blobs, size: int) -> None:
    content = os.urandom(size)
    digest, length = kept.put([content[: size // 2], memoryview(content)[size // 2 :]])
    assert (digest, length) == (hashlib.sha256(content).digest(), size)
    for reader in (kept, local_blobs.Blobs(kept.directory, durable=False)):
        view = reader.get(digest)
        assert view.readonly
        assert view == content


def test_any_contiguous_buffer_is_a_part(kept: local_blobs.Blobs) -> None:
    doubles = memoryview(bytearray(range(16))).cast("d", (1, 2))
    empty = memoryview(b"").cast("B")
    digest, size = kept.put([bytearray(b"ab"), doubles, empty])  # type: ignore[list-item]
    assert size == 18
    assert kept.get(digest) == b"ab" + bytes(range(16))


@pytest.mark.parametrize("size", [70_000, LARGE])
def test_private_view_does_not_change_file(kept: local_blobs.Blobs, size: int) -> None:
    digest, _ = kept.put([bytes(size)])
    mine, other = kept.get(digest, private=True), kept.get(digest, private=True)
    mine[0] = 255
    assert (mine[0], other[0], kept.get(digest)[0]) == (255, 0, 0)
    assert local_blobs.Blobs(kept.directory, durable=False).get(digest) == bytes(size)


def test_blobs_are_readable_by_owner_only(kept: local_blobs.Blobs) -> None:
    before = os.umask(0)
    try:
        digest, _ = kept.put([b"secret" * 20_000])
    finally:
        os.umask(before)
    path = kept.path(digest)
    modes = [stat.S_IMODE(p.stat().st_mode) for p in (path, path.parent, kept.directory)]
    assert modes == [0o600, 0o700, 0o700]


def test_second_put_writes_nothing(kept: local_blobs.Blobs) -> None:
    digest, _ = kept.put([b"x" * 100_000])
    first = kept.path(digest).stat()
    local_blobs.Blobs(kept.directory, durable=False).put([b"x" * 100_000])
    second = kept.path(digest).stat()
    assert (first.st_ino, first.st_mtime_ns) == (second.st_ino, second.st_mtime_ns)


def test_second_put_renews_the_blob(kept: local_blobs.Blobs) -> None:
    digest, _ = kept.put([b"x" * 100_000])
    then = age(kept.path(digest), HOUR)
    kept.put([b"x" * 100_000])
    assert kept.path(digest).stat().st_mtime > then + HOUR - 10


def test_blob_is_renewed_after_clock_was_set_back(directory: Path) -> None:
    slow = clock.ManualClock(wall=1000.0)
    kept = local_blobs.Blobs(directory, durable=False, time=slow)
    digest, _ = kept.put([b"x"])
    age(kept.path(digest), -HOUR)
    assert kept.touch(digest)
    assert kept.path(digest).stat().st_mtime < age(kept.path(digest), 0) + 1


def test_missing_blob_is_named(kept: local_blobs.Blobs) -> None:
    digest = bytes(32)
    with pytest.raises(errors.BlobMissing, match=r"blob sha256:0000.* Make the value again"):
        kept.get(digest)
    assert not kept.touch(digest)


@pytest.mark.parametrize("size", [70_000, LARGE])
@pytest.mark.parametrize("how", ["flipped", "shorter", "longer", "empty"])
def test_damaged_blob_is_found_and_replaced_by_put(
    kept: local_blobs.Blobs, size: int, how: str
) -> None:
    content = os.urandom(size)
    digest, _ = kept.put([content])
    damaged = {
        "flipped": content[:-1] + bytes([content[-1] ^ 1]),
        "shorter": content[:-1],
        "longer": content + b"\0",
        "empty": b"",
    }[how]
    kept.path(digest).write_bytes(damaged)
    os.utime(kept.path(digest), (1, 1))  # the clock of a file system is coarse
    with pytest.raises(errors.BlobDamaged, match=digest.hex()):
        kept.get(digest)
    kept.put([content])
    assert kept.get(digest) == content


def test_digest_is_verified_once_per_file(kept: local_blobs.Blobs) -> None:
    digest, _ = kept.put([b"a" * 100_000])
    seen = kept.path(digest).stat()
    kept.path(digest).write_bytes(b"b" * 100_000)
    os.utime(kept.path(digest), ns=(seen.st_mtime_ns, seen.st_mtime_ns))
    assert kept.get(digest) == b"b" * 100_000  # same file, size and time: not looked at again
    with pytest.raises(errors.BlobDamaged):
        local_blobs.Blobs(kept.directory, durable=False).get(digest)


def test_many_views_do_not_exhaust_descriptors(directory: Path) -> None:
    kept = local_blobs.Blobs(directory, durable=False)
    digest, _ = kept.put([bytes(1 << 20)])
    before = open_files()
    views = [kept.get(digest) for _ in range(300)]
    assert open_files() - before <= 257
    assert views[-1] == bytes(1 << 20)


def test_writer_accepts_pieces(kept: local_blobs.Blobs) -> None:
    piece = bytearray(b"one")
    with kept.writer() as new:
        new.write(piece)
        piece[:] = b"two"
        new.write(piece)
        assert [path.name[:5] for path in files(kept.directory)] == [".new-"]
        digest, size = new.commit()
    assert (size, bytes(kept.get(digest))) == (6, b"onetwo")
    assert files(kept.directory) == [kept.path(digest)]


def test_failed_writer_leaves_nothing(kept: local_blobs.Blobs) -> None:
    with contextlib.suppress(KeyError), kept.writer() as new:
        new.write(b"x" * 200_000)
        raise KeyError
    assert files(kept.directory) == []


def test_put_on_full_disk_leaves_nothing(directory: Path) -> None:
    """With a limit of file size, write(2) fails as on a full disk."""
    script = (
        "import os, resource, signal, sys\n"
        "from pathlib import Path\n"
        "from kilnwork.data import local_blobs, errors\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "for parts in ([bytes(1 << 20)], [bytes(60_000), bytes(60_000)]):\n"
        "    try:\n"
        "        local_blobs.Blobs(Path(sys.argv[1]), durable=True).put(parts)\n"
        "    except errors.BlobNotWritten as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(directory)], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 2, done.stderr
    assert all("File too large" in line and "Free some room" in line for line in lines)
    assert files(directory) == []


def test_directory_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.BlobNotWritten, match=r"file/ns: Not a directory"):
        local_blobs.Blobs(tmp_path / "file" / "ns", durable=False).put([b"x"])


def test_concurrent_writers_of_one_blob_succeed(kept: local_blobs.Blobs) -> None:
    content, wrong = os.urandom(LARGE), []

    def write() -> None:
        mine = local_blobs.Blobs(kept.directory, durable=kept.durable)
        for _ in range(5):
            digest, _ = mine.put([content])
            if mine.get(digest) != content:
                wrong.append(digest)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(files(kept.directory)) == 1


def test_digest_text_is_parsed_back() -> None:
    digest = hashlib.sha256(b"").digest()
    assert local_blobs.text(digest).startswith("sha256:e3b0c442")
    assert local_blobs.parse(local_blobs.text(digest)) == digest


@pytest.mark.parametrize("name", ["", "sha256:", "md5:" + "0" * 64, "sha256:" + "0" * 63, "x"])
def test_invalid_digest_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"digest|hexadecimal"):
        local_blobs.parse(name)


# collection


def modified(kept: local_blobs.Blobs) -> Sequence[tuple[bytes, bool]]:
    return [(entry.digest, entry.aside) for entry in kept.entries()]


def test_only_blobs_not_renewed_are_discarded(kept: local_blobs.Blobs) -> None:
    digest, _ = kept.put([b"x"])
    now = kept.path(digest).stat().st_mtime
    assert not kept.discard(digest, before=now - HOUR)
    assert bytes(kept.get(digest)) == b"x"
    assert kept.discard(digest, before=now + 1)
    assert files(kept.directory) == []
    assert modified(kept) == []


def test_blob_set_aside_by_killed_collector_is_readable(kept: local_blobs.Blobs) -> None:
    digest, _ = kept.put([b"x"])
    path = kept.path(digest)
    path.rename(path.with_name(path.name + ".old"))
    assert modified(kept) == [(digest, True)]
    assert bytes(kept.get(digest)) == b"x"
    assert kept.touch(digest)
    assert modified(kept) == [(digest, False)]


def test_old_files_of_killed_writers_are_removed(kept: local_blobs.Blobs) -> None:
    with kept.writer() as new:
        new.write(b"x")
        left = kept.directory / ".new-0123"
        left.write_bytes(b"half")
        then = age(left, HOUR)
        kept.discard_unfinished(before=then)
        assert left.exists()
        kept.discard_unfinished(before=then + 1)
        assert not left.exists()
        digest, _ = new.commit()
    assert bytes(kept.get(digest)) == b"x"


def test_other_files_are_left_alone(kept: local_blobs.Blobs) -> None:
    digest, _ = kept.put([b"x"])
    (kept.directory / "notes").mkdir()
    (kept.path(digest).parent / "README").touch()
    (kept.path(digest).parent / "abcd").touch()
    (kept.directory / "zz").touch()
    assert modified(kept) == [(digest, False)]


def test_blobs_leave_space_for_the_journal(tmp_path: Path) -> None:
    with small_disks.mounted(tmp_path, mib=32) as disk:
        kept = local_blobs.Blobs(disk / "default", durable=True)
        digest, _ = kept.put([bytes(28 << 20)])
        with pytest.raises(errors.BlobNotWritten, match="room that is kept for the journal"):
            kept.put([b"x" * (3 << 20)])
        assert [entry.digest for entry in kept.entries()] == [digest]
        assert not [file for file in files(disk) if ".new-" in file.name]
        volatile = local_blobs.Blobs(disk / "default", durable=False)
        assert volatile.put([b"x" * (3 << 20)])[1] == 3 << 20
