"""Directories and modules travel as they are, and a slot is in one environment at a time."""

import importlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import kilnwork as kiln
from kilnwork.data import errors, local_blobs
from kilnwork.sdk import code_activation, code_packing


@pytest.fixture
def kept(tmp_path: Path) -> local_blobs.Blobs:
    return local_blobs.Blobs(tmp_path / "blobs", durable=False)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def as_before(kept: local_blobs.Blobs, cache: Path) -> Iterator[None]:
    """No environment is left over, nor a path or module of it."""
    before = list(sys.path), set(sys.modules), Path.cwd()
    yield
    with code_activation.enter(None, kept, cache):
        pass
    assert (list(sys.path), Path.cwd()) == (before[0], before[2])
    assert not {name for name in set(sys.modules) - before[1] if name.startswith("shipped_")}


def directory(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def unpacked(kept: local_blobs.Blobs, cache: Path, digest: str | None) -> dict[str, str]:
    """Files of an environment by name, as a call sees its working directory."""
    with code_activation.enter(digest, kept, cache):
        here = Path.cwd()
        return {
            path.relative_to(here).as_posix(): path.read_text()
            for path in here.rglob("*")
            if path.is_file()
        }


def test_a_directory_is_where_the_call_runs(
    tmp_path: Path, kept: local_blobs.Blobs, cache: Path
) -> None:
    files = {"shipped_a.py": "X = 1", "data/in.txt": "hello", "Ümlaut x.txt": ""}
    shipped = code_packing.pack(directory(tmp_path / "project", files), kept)
    assert unpacked(kept, cache, shipped.digest) == files
    before = Path.cwd()
    with code_activation.enter(shipped.digest, kept, cache):
        assert Path("data/in.txt").read_text() == "hello"
        assert importlib.import_module("shipped_a").X == 1
        assert importlib.import_module("shipped_a").__file__ == os.path.abspath("shipped_a.py")  # noqa: PTH100
    assert Path.cwd() == before
    assert shipped.modules == {"shipped_a"}


def test_nothing_is_shipped_as_nothing(kept: local_blobs.Blobs, cache: Path) -> None:
    assert code_packing.pack(None, kept) == (None, frozenset(), ())
    with code_activation.enter(None, kept, cache):
        pass
    assert not cache.exists()
    assert not kept.directory.exists()


def test_modules_outside_the_environment_stay_imported(
    tmp_path: Path, kept: local_blobs.Blobs, cache: Path
) -> None:
    kinds = [".git/config", ".venv/x.py", "__pycache__/a.pyc", "b/__pycache__/c.py", "b/d.pyc"]
    ignored = ["results/big.bin", "b/notes.txt", "x.log", "b/y.log", "env/pyvenv.cfg", "env/z.py"]
    files = dict.fromkeys([*kinds, *ignored, "b/keep.py", "keep.txt"], "")
    files[".kilnignore"] = "# a remark\n\n/results/\nb/notes.txt\n*.log\n"
    shipped = code_packing.pack(directory(tmp_path / "project", files), kept)
    found = unpacked(kept, cache, shipped.digest)
    assert set(found) == {"b/keep.py", "keep.txt", ".kilnignore"}


@pytest.mark.parametrize("mark", ["control.lock", "journal.lock", "owner.lock", "node-identity"])
def test_tokens_and_keys_of_a_data_directory_stay(
    tmp_path: Path, kept: local_blobs.Blobs, cache: Path, mark: str
) -> None:
    secrets = {f"lib/data/{mark}": "", "lib/data/token": "secret", "lib/data/pki/ca.key": "secret"}
    root = directory(tmp_path / "project", {"keep.py": "", "lib/keep.py": "", **secrets})
    shipped = code_packing.pack(root, kept)
    assert set(unpacked(kept, cache, shipped.digest)) == {"keep.py", "lib/keep.py"}
    assert shipped.left_out == (root / "lib" / "data",)
    with pytest.raises(errors.NotShippable, match=r"lib/data is a data directory .* tokens"):
        code_packing.pack(root / "lib" / "data", kept)


def test_the_data_directory_of_a_session_is_known(tmp_path: Path, kept: local_blobs.Blobs) -> None:
    with kiln.start(tmp_path / "project" / "data", slots=1):
        shipped = code_packing.pack(directory(tmp_path / "project", {"keep.py": ""}), kept)
    assert shipped.left_out == (tmp_path / "project" / "data",)


def test_equal_directories_make_the_same_blob(tmp_path: Path, kept: local_blobs.Blobs) -> None:
    one = directory(tmp_path / "one", {"b.py": "", "a.py": "1"})
    two = directory(tmp_path / "two", {"a.py": "1", "b.py": ""})
    os.utime(two / "a.py", (1, 1))
    first = code_packing.pack(one, kept)
    assert first == code_packing.pack(two, kept)
    (two / "a.py").write_text("2")
    assert first != code_packing.pack(two, kept)


def test_programs_stay_programs_and_files_private(
    tmp_path: Path, kept: local_blobs.Blobs, cache: Path
) -> None:
    root = directory(tmp_path / "project", {"run.sh": "#!/bin/sh\necho ran", "data": "x"})
    (root / "run.sh").chmod(0o755)
    shipped = code_packing.pack(root, kept)
    with code_activation.enter(shipped.digest, kept, cache):
        assert subprocess.check_output(["./run.sh"], text=True) == "ran\n"
        assert [oct(Path(name).stat().st_mode & 0o777) for name in (".", "data")] == [
            "0o700",
            "0o600",
        ]


def test_links_within_stay_links(tmp_path: Path, kept: local_blobs.Blobs, cache: Path) -> None:
    root = directory(tmp_path / "project", {"data/v2/x": "2"})
    (root / "data" / "newest").symlink_to("v2")
    (root / "x").symlink_to("data/newest/x")
    shipped = code_packing.pack(root, kept)
    with code_activation.enter(shipped.digest, kept, cache):
        assert Path("x").is_symlink()
        assert Path("x").read_text() == Path("data/newest/x").read_text() == "2"


@pytest.mark.parametrize("target", ["../outside", "/etc/passwd"])
def test_links_that_leave_are_refused(tmp_path: Path, kept: local_blobs.Blobs, target: str) -> None:
    root = directory(tmp_path / "project", {"a": ""})
    (tmp_path / "outside").write_text("x")
    (root / "link").symlink_to(target)
    with pytest.raises(errors.NotShippable, match=rf"link is a link to {target}.*kilnignore"):
        code_packing.pack(root, kept)
    (root / ".kilnignore").write_text("link\n")
    code_packing.pack(root, kept)


def test_error_lists_files_that_are_too_large(tmp_path: Path, kept: local_blobs.Blobs) -> None:
    root = directory(tmp_path / "project", {"a.py": ""})
    for name, size in (("big.bin", code_packing.MAX_BYTES), ("small.bin", 2 << 20)):
        with (root / name).open("wb") as file:
            file.truncate(size)
    with pytest.raises(errors.NotShippable) as caught:
        code_packing.pack(root, kept)
    text = str(caught.value)
    assert "102 MiB are more than can be shipped (100 MiB)" in text
    assert text.index("100.0 MiB  " + str(root / "big.bin")) < text.index("small.bin")
    assert ".kilnignore" in text
    assert not kept.directory.exists()


def test_strange_files_are_left_out(tmp_path: Path, kept: local_blobs.Blobs, cache: Path) -> None:
    root = directory(tmp_path / "project", {"a": "1"})
    os.mkfifo(root / "pipe")
    assert unpacked(kept, cache, code_packing.pack(root, kept).digest) == {"a": "1"}


def test_missing_directory_is_named_in_the_error(tmp_path: Path, kept: local_blobs.Blobs) -> None:
    with pytest.raises(errors.NotShippable, match="nothing' is no directory"):
        code_packing.pack(tmp_path / "nothing", kept)


def test_directories_that_are_imported_from_are_so_there(
    tmp_path: Path, kept: local_blobs.Blobs, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = directory(tmp_path / "project", {"src/shipped_p/__init__.py": "X = 3", "lib/y.txt": ""})
    monkeypatch.syspath_prepend(root / "src")
    shipped = code_packing.pack(root, kept)
    assert shipped.modules == {"src", "shipped_p"}
    monkeypatch.undo()
    with code_activation.enter(shipped.digest, kept, cache):
        assert importlib.import_module("shipped_p").X == 3


# modules


def test_modules_are_imported_from_anywhere(
    tmp_path: Path, kept: local_blobs.Blobs, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "shipped_b/__init__.py": "from shipped_b.deep import X",
        "shipped_b/deep/__init__.py": "X = 1",
        "shipped_b/data.txt": "d",
        "shipped_c.py": "Y = 2",
    }
    root = directory(tmp_path / "lib", files)
    monkeypatch.syspath_prepend(root)
    module = importlib.import_module("shipped_b.deep")
    shipped = code_packing.pack(None, kept, modules=[module, "shipped_c"])
    assert shipped.modules == {"shipped_b", "shipped_c"}
    monkeypatch.undo()
    for name in ("shipped_b", "shipped_b.deep"):
        del sys.modules[name]
    before = Path.cwd()
    with code_activation.enter(shipped.digest, kept, cache):
        assert Path.cwd() == before
        found = importlib.import_module("shipped_b")
        assert (found.X, importlib.import_module("shipped_c").Y) == (1, 2)
        assert not str(found.__file__).startswith(str(root))
        assert (Path(str(found.__file__)).parent / "data.txt").read_text() == "d"


def test_a_module_travels_by_its_file_wherever_that_is(
    tmp_path: Path, kept: local_blobs.Blobs, cache: Path
) -> None:
    root = directory(tmp_path / "somewhere", {"shipped_one.py": "X = 1", "shipped_not.py": "X = 2"})
    shipped = code_packing.pack(None, kept, files=[root / "shipped_one.py"])
    assert shipped.modules == {"shipped_one"}
    with code_activation.enter(shipped.digest, kept, cache):
        assert importlib.import_module("shipped_one").X == 1
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("shipped_not")
    with pytest.raises(FileNotFoundError):
        code_packing.pack(None, kept, files=[root / "nowhere.py"])


@pytest.mark.parametrize(
    ("module", "message"),
    [("sys", "built-in"), ("no_such_module", "no module 'no_such_module'"), ("__main__", "itself")],
)
def test_modules_that_are_no_files(kept: local_blobs.Blobs, module: str, message: str) -> None:
    with pytest.raises(errors.NotShippable, match=message):
        code_packing.pack(None, kept, modules=[module])


def test_a_program_that_is_run_by_its_modules_name_is_main_too(
    kept: local_blobs.Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m` leaves a spec in `__main__`, which names a file."""
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", importlib.util.find_spec("json.tool"))
    with pytest.raises(errors.NotShippable, match="itself"):
        code_packing.pack(None, kept, modules=["__main__"])


# slots


def versions(tmp_path: Path, kept: local_blobs.Blobs, count: int) -> list[str]:
    """Environments whose module says which it is."""
    found = []
    for number in range(count):
        files = {"shipped_v.py": f"import shipped_w\nX = {number}", "shipped_w/__init__.py": ""}
        found.append(
            code_packing.pack(directory(tmp_path / f"v{number}", files), kept).digest or ""
        )
    return found


def seen(kept: local_blobs.Blobs, cache: Path, digest: str | None) -> int:
    with code_activation.enter(digest, kept, cache):
        return int(importlib.import_module("shipped_v").X)


def test_another_environment_has_other_modules(
    tmp_path: Path, kept: local_blobs.Blobs, cache: Path
) -> None:
    one, two = versions(tmp_path, kept, 2)
    with code_activation.enter(one, kept, cache):
        first = importlib.import_module("shipped_v")
    with code_activation.enter(one, kept, cache):
        assert importlib.import_module("shipped_v") is first
    assert [seen(kept, cache, each) for each in (two, one, two)] == [1, 0, 1]
    with code_activation.enter(one, kept, cache):
        assert importlib.import_module("shipped_v") is first
    with pytest.raises(ModuleNotFoundError):
        seen(kept, cache, None)


def test_module_imported_before_is_not_used_in_the_environment(
    tmp_path: Path, kept: local_blobs.Blobs, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (digest,) = versions(tmp_path, kept, 1)
    monkeypatch.syspath_prepend(directory(tmp_path / "other", {"shipped_v.py": "X = 99"}))
    assert seen(kept, cache, None) == 99
    assert seen(kept, cache, digest) == 0
    assert seen(kept, cache, None) == 99
    del sys.modules["shipped_v"]


def test_default_cache_is_beside_the_blobs(tmp_path: Path, kept: local_blobs.Blobs) -> None:
    (digest,) = versions(tmp_path, kept, 1)
    with code_activation.enter(digest, kept):
        assert Path.cwd().is_relative_to(kept.directory)
    assert [local_blobs.text(entry.digest) for entry in kept.entries()] == [digest]


def test_a_cache_may_be_named_from_another_directory(
    tmp_path: Path, kept: local_blobs.Blobs
) -> None:
    shipped = code_packing.pack(directory(tmp_path / "project", {"a": "1"}), kept)
    (tmp_path / "here").mkdir()
    assert unpacked(kept, tmp_path / "here" / ".." / "cache", shipped.digest) == {"a": "1"}


def test_many_slots_unpack_an_environment_once(
    tmp_path: Path, kept: local_blobs.Blobs, cache: Path
) -> None:
    (digest,) = versions(tmp_path, kept, 1)
    locks: list[int] = []

    def unpack() -> None:
        locks.append(code_activation._unpacked(local_blobs.parse(digest), kept, cache)[1])

    threads = [threading.Thread(target=unpack) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for lock in locks:
        os.close(lock)
    assert len(locks) == 8
    assert [path.name for path in cache.iterdir()] == [digest.removeprefix("sha256:")]


def test_old_environments_are_removed_unless_in_use(
    tmp_path: Path, kept: local_blobs.Blobs, cache: Path
) -> None:
    found = versions(tmp_path, kept, code_activation.KEPT + 3)
    _, lock = code_activation._unpacked(local_blobs.parse(found[0]), kept, cache)
    for number, digest in enumerate(found[1:], start=1):
        seen(kept, cache, digest)
        os.utime(cache / digest.removeprefix("sha256:"), (number, number))
    os.utime(cache / found[0].removeprefix("sha256:"), (0, 0))
    there = {path.name for path in cache.iterdir()}
    assert found[0].removeprefix("sha256:") in there
    assert len(there) <= code_activation.KEPT + 1
    os.close(lock)
    assert [seen(kept, cache, digest) for digest in found] == list(range(len(found)))


def test_missing_or_damaged_blob_is_named_in_the_error(
    kept: local_blobs.Blobs, cache: Path
) -> None:
    digest, _ = kept.put([b"no archive"])
    with pytest.raises(errors.BlobDamaged, match=digest.hex()):
        code_activation.enter(local_blobs.text(digest), kept, cache)
    kept.path(digest).unlink()
    with pytest.raises(errors.BlobMissing, match=digest.hex()):
        code_activation.enter(local_blobs.text(digest), kept, cache)
    assert list(cache.iterdir()) == []


def test_environment_can_be_entered_from_a_removed_directory(
    tmp_path: Path, kept: local_blobs.Blobs, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (digest,) = versions(tmp_path, kept, 1)
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert seen(kept, cache, digest) == 0


@pytest.mark.parametrize(
    ("module", "there"),
    [("json", True), ("pytest", True), ("kilnwork_nothing", False), ("support", False)],
)
def test_installed_knows_the_modules_that_workers_have(module: str, *, there: bool) -> None:
    assert code_activation.installed(module) is there
