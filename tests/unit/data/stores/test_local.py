"""A directory as a store: etags, killed writers, full disks."""

import contextlib
import errno
import hashlib
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.data import errors
from kilnwork.data.stores import directories, file_writing, local, port, resumable_uploads
from kilnwork.kit import clock as clocks
from support import no_hard_links, small_disks

WRITER = """
import hashlib, random, sys
from pathlib import Path
from typing import Any
from kilnwork.data.stores import local

store, chance = local.LocalStore(Path(sys.argv[1])), random.Random(sys.argv[2])
for number in range(1_000_000):
    content = chance.randbytes(chance.choice([0, 10, 5_000, 300_000]))
    key = f"out/{chance.randrange(7)}/{sys.argv[2]}-{number}={hashlib.sha256(content).hexdigest()}"
    with store.writer(key, create=chance.random() < 0.5) as new:
        for at in range(0, len(content), 4096):
            new.write(content[at : at + 4096])
        new.commit()
    print(key, flush=True)
    if chance.random() < 0.3:
        store.delete([key])
        print("-" + key, flush=True)
"""


@pytest.fixture
def store(tmp_path: Path) -> local.LocalStore:
    return local.LocalStore(tmp_path / "files")


def files_of(store: local.LocalStore) -> list[str]:
    """Return all files in its directory, including those that are not objects."""
    return sorted(path.name for path in store.directory.rglob("*") if path.is_file())


def test_etags_differ_when_the_clock_stands_still(tmp_path: Path) -> None:
    store = local.LocalStore(tmp_path / "files", clock=clocks.ManualClock())
    etags = [store.put("job.json", content).etag for content in (b"a", b"b", b"a", b"b")]
    assert len(set(etags)) == 4


def test_files_are_readable_by_owner_only(store: local.LocalStore) -> None:
    store.put("a/b/c", b"secret")
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in [store.directory, *store.directory.rglob("*")]
    }
    assert modes == {"files": 0o700, "a": 0o700, "b": 0o700, "c": 0o600, ".lock": 0o600}


def test_early_sync_keeps_the_whole_object(
    store: local.LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_writing, "BEGIN_BYTES", 5000)
    with store.writer("large") as new:
        for number in range(100):
            new.write(bytes([number]) * 1234)
        new.commit()
    with store.read("large") as found:
        assert b"".join(found) == b"".join(bytes([number]) * 1234 for number in range(100))


def test_created_objects_leave_no_lock_behind(store: local.LocalStore) -> None:
    store.put("commits/1-1", b"{}", create=True)
    assert files_of(store) == ["1-1"]


def test_key_below_an_object_is_refused(store: local.LocalStore) -> None:
    store.put("a", b"")
    with pytest.raises(errors.BadKey, match="object above"):
        store.put("a/b", b"")
    store.put("c/d", b"")
    with pytest.raises(errors.StoreError):
        store.put("c", b"")
    with pytest.raises(errors.ObjectExists):
        store.put("c", b"", create=True)
    assert [facts.key for facts in store.list()] == ["a", "c/d"]


def test_truncated_object_is_reported(store: local.LocalStore) -> None:
    with store.writer("input") as new:
        new.write(bytes(3 << 20))
        new.commit()
    with store.read("input") as reading:
        os.truncate(store.path("input"), 100)
        with pytest.raises(errors.StoreRefused, match="cut it"):
            list(reading)


@pytest.mark.parametrize("create", [True, False])
def test_removed_unfinished_file_is_reported(store: local.LocalStore, *, create: bool) -> None:
    with store.writer("a", create=create) as new:
        new.write(b"x")
        for path in store.directory.iterdir():
            path.unlink()
        with pytest.raises(errors.StoreError):
            new.commit()
    assert list(store.list()) == []


# writers that are killed


@contextlib.contextmanager
def writing(store: local.LocalStore, name: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", WRITER, str(store.directory), name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("seed", range(6))
def test_killed_writer_leaves_whole_object_or_nothing(store: local.LocalStore, seed: int) -> None:
    chance = random.Random(seed)
    reported: set[str] = set()
    for number in range(3):
        with (
            writing(store, f"{seed}-{number}-a") as first,
            writing(store, f"{seed}-{number}-b") as second,
        ):
            assert first.stdout is not None
            assert second.stdout is not None
            reported |= {first.stdout.readline().strip(), second.stdout.readline().strip()}
            time.sleep(chance.uniform(0.01, 0.15))  # so much later, wherever that is
            for process in (first, second):
                process.send_signal(signal.SIGKILL)
            for process in (first, second):
                reported.update(
                    process.communicate()[0].split("\n")[:-1]
                )  # the last line may be torn
    there = {facts.key: facts.bytes for facts in store.list()}
    for key, size in there.items():
        content = port.read_all(store, key)
        assert hashlib.sha256(content).hexdigest() == key.rpartition("=")[2]
        assert len(content) == size
    deleted = {line[1:] for line in reported if line.startswith("-")}
    kept = {line for line in reported if line and not line.startswith("-")}
    assert deleted.isdisjoint(there)
    lost = kept - deleted - there.keys()
    assert len(lost) <= 6, "only the last of each writer may be on its way out"
    found = store.sweep(before=time.time() + 1)
    assert found <= 6
    assert not [name for name in files_of(store) if name.startswith(".new-")]
    assert {facts.key for facts in store.list()} == there.keys()


def test_file_of_living_writer_is_not_swept(store: local.LocalStore) -> None:
    new = store.writer("slow")
    new.write(b"x")
    young = store.writer("young")
    young.write(b"x")
    del young  # as if it were killed: nothing is tidied up
    assert store.sweep(before=time.time() - 60) == 0
    assert store.sweep(before=time.time() + 60) == 1
    new.commit()
    assert [facts.key for facts in store.list()] == ["slow"]


def test_sweep_removes_empty_directories(store: local.LocalStore) -> None:
    store.put("a/kept", b"x")
    for key in ("a/b/c/killed", "a/killed", "other/killed"):
        new = store.writer(key)
        new.write(b"x")
        del new
    assert store.sweep(before=time.time() + 60, prefix="a/") == 2
    assert sorted(path.name for path in store.directory.iterdir()) == ["a", "other"]
    assert [path.name for path in (store.directory / "a").iterdir() if path.is_dir()] == []
    assert store.sweep(before=time.time() + 60) == 1
    assert [path.name for path in store.directory.iterdir()] == ["a"]
    assert [facts.key for facts in store.list()] == ["a/kept"]


def test_empty_directory_of_killed_writer_is_swept(store: local.LocalStore) -> None:
    """The writer was killed before it created its file there."""
    store.put("a/kept", b"x")
    (store.directory / "a" / "b" / "c").mkdir(parents=True)
    assert store.sweep(before=time.time() - 60) == 0
    assert (store.directory / "a" / "b" / "c").is_dir(), "its writer may be about to go on"
    assert store.sweep(before=time.time() + 60) == 0
    assert [path.name for path in (store.directory / "a").iterdir() if path.is_dir()] == []
    assert [facts.key for facts in store.list()] == ["a/kept"]


# full disks


def limited(store: local.LocalStore, story: str) -> str:
    """Return the output of a process that may write only files of up to 100 kB."""
    program = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from kilnwork.data import errors\n"
        "from kilnwork.data.stores import local\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "store = local.LocalStore(Path(sys.argv[1]))\n" + story
    )
    command = [sys.executable, "-c", program, str(store.directory)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def test_full_disk_is_reported_and_left_clean(store: local.LocalStore) -> None:
    said = limited(
        store,
        "try:\n"
        "    with store.writer('a/b') as new:\n"
        "        for _ in range(1000): new.write(bytes(1000))\n"
        "except errors.StoreFull as error: print(error)\n",
    )
    assert "Free some room" in said
    assert files_of(store) == []
    store.put("a/b", b"")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with small_disks.mounted(tmp_path) as made:
        yield made


def test_files_leave_space_for_journal_and_records(small_disk: Path) -> None:
    store = local.LocalStore(small_disk / "files")
    (small_disk / "ballast").write_bytes(bytes((16 << 20) - 500_000))
    with pytest.raises(errors.StoreFull, match="journal"), store.writer("out/1") as new:
        new.write(b"x")
    store.put("commits/1-1", b"{}", create=True)  # a job must still be able to fail
    (small_disk / "ballast").unlink()
    with store.writer("out/1") as new:
        new.write(b"x")
        new.commit()


def test_full_disk_shows_no_partial_object(small_disk: Path) -> None:
    store = local.LocalStore(small_disk / "files")
    store.put("job.json", b"old")
    with pytest.raises(errors.StoreFull), store.writer("out/1") as new:  # noqa: PT012 - in pieces
        for _ in range(100):
            new.write(bytes(1 << 20))
    assert files_of(store) == [".lock", "job.json"]
    with contextlib.suppress(OSError), (small_disk / "ballast").open("wb", buffering=0) as ballast:
        while True:
            ballast.write(bytes(4096))
    with pytest.raises(errors.StoreFull):
        store.put("job.json", b"new" * 10_000)
    with pytest.raises(errors.StoreFull):
        store.put("commits/1-1", b"{}", create=True)
    assert port.read_all(store, "job.json") == b"old"
    assert files_of(store) == [".lock", "job.json"]
    store.delete(["job.json"])
    assert list(store.list()) == []


# odd places


def elsewhere(store: local.LocalStore, story: str, *, number: int = errno.EOPNOTSUPP) -> str:
    """Return the output of a process in which link(2) fails with `number`."""
    if not no_hard_links.possible():
        pytest.skip("the numbers of this machine's system calls are not known here")
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from support import no_hard_links\n"
        "from kilnwork.data import errors\n"
        "from kilnwork.data.stores import local, local_resumable, port, resumable_uploads\n"
        f"no_hard_links.forbid({number})\n"
        "store = local.LocalStore(Path(sys.argv[1]))\n" + story
    )
    tests = str(Path(__file__).parents[3])
    return subprocess.run(
        [sys.executable, "-c", program, str(store.directory)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": tests},
    ).stdout


def test_one_of_many_creates_without_hard_links(store: local.LocalStore) -> None:
    said = elsewhere(
        store,
        "from concurrent import futures\n"
        "store.probe()\n"
        "def create(n):\n"
        "    try: store.put('commits/1-1', b'%d' % n, create=True)\n"
        "    except errors.ObjectExists: return None\n"
        "    return n\n"
        "with futures.ThreadPoolExecutor(16) as pool:\n"
        "    won = [n for n in pool.map(create, range(50)) if n is not None]\n"
        "print(len(won), b'%d' % won[0] == port.read_all(store, 'commits/1-1'))\n",
    )
    assert said.split() == ["1", "True"]
    assert files_of(store) == [".lock", "1-1"]


def test_upload_link_returns_false_without_hard_links(store: local.LocalStore) -> None:
    said = elsewhere(
        store,
        "upload = local_resumable.LocalResumableUpload(store, 'u')\n"
        "with resumable_uploads.append(upload, 0) as new: new.write(b'all')\n"
        "print(upload.link('job/input'), b''.join(upload.read()))\n",
    )
    assert said.split() == ["False", "b'all'"]


def test_unreachable_file_system_is_retryable(store: local.LocalStore) -> None:
    said = elsewhere(
        store,
        "try: store.put('a/b', b'', create=True)\n"
        "except errors.StoreUnreachable as error: print(error)\n",
        number=errno.ESTALE,
    )
    assert "a/b" in said
    assert "Stale file handle" in said
    assert files_of(store) == []


def test_probe_tests_the_store(store: local.LocalStore) -> None:
    store.probe()
    assert not store.directory.exists() or list(store.directory.iterdir()) == []
    store.directory.parent.mkdir(exist_ok=True)
    store.directory.rmdir()
    store.directory.write_text("a file")
    with pytest.raises(errors.StoreRefused, match="cannot keep the files of jobs"):
        store.probe()


def test_probe_refuses_unwritable_store(small_disk: Path) -> None:
    store = local.LocalStore(small_disk / "files")
    store.put("a/b", b"here")
    writer = store.writer("a/left")
    writer.write(b"x")
    del writer
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(errors.StoreRefused, match=r"cannot keep .* Read-only file system"):
        store.probe()
    for work in (
        lambda: store.put("a/c", b""),
        lambda: store.put("a/c", b"", create=True),
        lambda: store.put("new/c", b""),
        lambda: store.delete(["a/b"]),
        lambda: store.sweep(before=time.time() + 60),
        lambda: store.writer("a/c"),
        lambda: resumable_uploads.open_upload(store, "u").open_stretch(0),
    ):
        with pytest.raises(errors.StoreRefused, match="Read-only file system"):
            work()
    assert port.read_all(store, "a/b") == b"here"
    assert [facts.key for facts in store.list()] == ["a/b"]


def test_symbolic_links_are_neither_listed_nor_followed(
    store: local.LocalStore, tmp_path: Path
) -> None:
    """Deleting a job must not delete files elsewhere, and must not loop."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis").write_text("for years")
    store.put("ns/job/input", b"x")
    job = store.directory / "ns" / "job"
    (job / "out").symlink_to(tmp_path / "mine")
    (job / "round").symlink_to(store.directory)
    (job / "thesis").symlink_to(tmp_path / "mine" / "thesis")
    assert [facts.key for facts in store.list()] == ["ns/job/input"]
    assert list(store.directories("ns/job/")) == []
    assert port.clear(store, "ns/job/") == 1
    store.sweep(before=time.time() + 60)
    assert (tmp_path / "mine" / "thesis").read_text() == "for years"


def test_store_directory_may_be_a_symbolic_link(store: local.LocalStore, tmp_path: Path) -> None:
    (tmp_path / "large disk").mkdir()
    store.directory.symlink_to(tmp_path / "large disk")
    store.probe()
    store.put("ns/job/input", b"x")
    assert [facts.key for facts in store.list()] == ["ns/job/input"]
    store.delete(["ns/job/input"])
    assert store.directory.is_symlink()
    assert list((tmp_path / "large disk").iterdir()) == []


def test_removed_store_directory_is_created_again(store: local.LocalStore) -> None:
    store.put("a/b", b"here")
    writer = store.writer("a/c")
    writer.write(b"x")
    upload = resumable_uploads.append(resumable_uploads.open_upload(store, "u"), 0)
    upload.write(b"x")
    shutil.rmtree(store.directory)
    with pytest.raises(errors.ObjectMissing):
        store.read("a/b")
    with pytest.raises(errors.StoreError):
        writer.commit()
    with pytest.raises(errors.ObjectChanged):
        upload.commit()
    assert list(store.list()) == []
    assert list(store.directories()) == []
    assert store.sweep(before=time.time()) == 0
    store.delete(["a/b"])
    store.put("a/b", b"second", create=True)
    assert port.read_all(store, "a/b") == b"second"


def test_directory_removed_concurrently_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mkdir(2) reports that it exists, then another process removes it because it is empty."""
    make, raced = Path.mkdir, iter([tmp_path / "x" / "y"])

    def mkdir(path: Path, *args: Any, **kwargs: Any) -> None:
        if path == tmp_path / "x" / "y" and next(raced, None) is not None:
            raise FileExistsError(errno.EEXIST, "exists", str(path))
        make(path, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    path, descriptor = directories.open_new(tmp_path / "x" / "y", above=tmp_path)
    os.close(descriptor)
    assert path.parent == tmp_path / "x" / "y"
