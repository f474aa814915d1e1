"""Malicious archives: refused as a whole, without writing a file."""

import io
import os
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kilnwork.data import errors, local_blobs
from kilnwork.sdk import code_activation, code_packing, code_unpacking

FILE, LINK, DIRECTORY = stat.S_IFREG | 0o644, stat.S_IFLNK | 0o777, stat.S_IFDIR | 0o755

Entry = tuple[str, int, bytes]


def archive(*entries: Entry, compression: int = zipfile.ZIP_STORED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", compression) as file:
        for name, mode, content in (("paths", FILE, b""), *entries):
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            entry.compress_type = compression
            file.writestr(entry, content)
    return made.getvalue()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Path]:
    """A directory with a secret beside the cache; unchanged at the end."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "secret").write_text("secret")
    yield tmp_path
    assert [path.name for path in victim.iterdir()] == ["secret"]
    assert (victim / "secret").read_text() == "secret"


def entered(world: Path, data: bytes) -> Path:
    """The cache after a call that wanted to be in this environment."""
    kept = local_blobs.Blobs(world / "blobs", durable=False)
    digest, _ = kept.put([data])
    with code_activation.enter(local_blobs.text(digest), kept, world / "cache"):
        pass
    with code_activation.enter(None, kept, world / "cache"):
        pass
    return world / "cache" / digest.hex()


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ([("work/l", LINK, b"../../../victim"), ("work/l/x", FILE, b"1")], "directory of other"),
        ([("work/l/x", FILE, b"1"), ("work/l", LINK, b"../../../victim")], "directory of other"),
        ([("work/l", LINK, b"."), ("work/l/x", FILE, b"1")], "directory of other"),
        ([("work/f", FILE, b"1"), ("work/f/x", FILE, b"1")], "directory of other"),
        ([("work/d/", DIRECTORY, b""), ("work/d", LINK, b"x")], "directory of other"),
        ([("work/l", LINK, b"../../../victim")], "leads out of it"),
        ([("work/l", LINK, b"../modules")], "leads out of it"),
        ([("work/l", LINK, b"x/../../../victim")], "leads out of it"),
        (
            [
                ("work/a/b/l", LINK, b"../../s"),
                ("work/s/f", FILE, b""),
                ("work/a/b/m", LINK, b"l/../../victim"),
            ],
            "leads out of it",
        ),
        ([("work/l", LINK, b"/etc/passwd")], "no relative path"),
        ([("work/l", LINK, b"")], "no relative path"),
        ([("work/l", LINK, b"a\0b")], "no relative path"),
        ([("work/l", LINK, b"a/" * 5000)], "target has 10000 bytes"),
        ([("/etc/x", FILE, b"1")], "called"),
        ([("work/../../victim/x", FILE, b"1")], "called"),
        ([("../victim/x", FILE, b"1")], "called"),
        ([("work//x", FILE, b"1")], "called"),
        ([("work/./x", FILE, b"1")], "called"),
        ([("work", FILE, b"1")], "not below"),
        ([("work", LINK, b"..")], "not below"),
        ([("modules", LINK, b"..")], "not below"),
        ([("other/x", FILE, b"1")], "not below"),
        ([("work/" + "x" * 256, FILE, b"1")], "more than 255 bytes"),
        ([("work/ü" + "ü" * 127, FILE, b"1")], "more than 255 bytes"),
        ([("work/x", stat.S_IFCHR | 0o666, b"")], "a character device"),
        ([("work/x", stat.S_IFBLK | 0o666, b"")], "a block device"),
        ([("work/x", stat.S_IFIFO | 0o666, b"")], "a FIFO"),
        ([("work/x", stat.S_IFSOCK | 0o666, b"")], "a socket"),
        ([("work/x", FILE | stat.S_ISUID, b"")], "setuid"),
        ([("work/x", FILE | stat.S_ISGID, b"")], "setuid, setgid"),
        ([("work/d/", DIRECTORY | stat.S_ISVTX, b"")], "sticky"),
        ([("work/x", 0o170000 | 0o644, b"")], "unknown kind"),
        ([("work/d/", LINK, b"..")], "not by both"),
        ([("work/d", DIRECTORY, b"")], "not by both"),
        ([("work/d/", DIRECTORY, b"content")], "has content"),
    ],
)
def test_entries_that_packing_never_makes_are_refused(
    world: Path, entries: list[Entry], text: str
) -> None:
    with pytest.raises(errors.BlobDamaged, match=text) as caught:
        entered(world, archive(*entries))
    assert "is not what kiln.connect(working_dir=…) has packed" in str(caught.value)
    assert list((world / "cache").iterdir()) == []


def test_a_name_twice_is_refused(world: Path) -> None:
    """A link that takes the place of a file; `zipfile` itself warns of it."""
    data = archive(("work/f", FILE, b"1"), ("work/g", LINK, b"../../../victim/secret"))
    with pytest.raises(errors.BlobDamaged, match="twice"):
        entered(world, data.replace(b"work/g", b"work/f"))
    assert list((world / "cache").iterdir()) == []


@pytest.mark.parametrize("line", ["..", "/", "work/../..", "other", "work/\0"])
def test_import_paths_lead_nowhere_else(world: Path, line: str) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        file.writestr(zipfile.ZipInfo("paths"), line)
    with pytest.raises(errors.BlobDamaged):
        entered(world, made.getvalue())
    assert list((world / "cache").iterdir()) == []


def test_a_name_with_a_nul_is_refused(world: Path) -> None:
    """Python's zipfile would take what is before it."""
    data = archive(("work/xAy", FILE, b"1")).replace(b"work/xAy", b"work/x\0y")
    with pytest.raises(errors.BlobDamaged, match="NUL"):
        entered(world, data)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (archive(("work/x", FILE, b"1" * 9), compression=zipfile.ZIP_DEFLATED), "compressed"),
        (archive(("work/x", FILE, b"content")).replace(b"content", b"CONTENT"), "CRC"),
        (archive(("work/x", FILE, b"1"))[:-30], "zip"),
        (archive(("work/x", FILE, b"1")).replace(b"paths", b"other"), "not below"),
    ],
    ids=["compressed", "damaged", "cut off", "no paths"],
)
def test_refused_archive_leaves_no_files(world: Path, data: bytes, text: str) -> None:
    with pytest.raises(errors.BlobDamaged, match=text):
        entered(world, data)
    assert list((world / "cache").iterdir()) == []


def test_files_that_claim_too_much_are_not_read(world: Path) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        file.writestr(zipfile.ZipInfo("paths"), "")
        for i in range(101):
            file.writestr(zipfile.ZipInfo(f"work/{i}"), b"\0" * (1 << 20))
    with pytest.raises(errors.BlobDamaged, match="105906176 bytes, more than 104857600"):
        entered(world, made.getvalue())


def test_directories_and_links_within_are_made(world: Path) -> None:
    data = archive(
        ("work/later", LINK, b"d/f"),
        ("work/d/f", FILE | 0o100, b"1"),
        ("work/circle", LINK, b"circle"),
        ("work/nothing", LINK, b"d/none"),
        ("work/empty/", DIRECTORY, b""),
        ("modules/m/up", LINK, b"../n.py"),
        ("work/back\\slash", FILE, b"2"),
    )
    work = entered(world, data) / "work"
    assert (work / "later").read_text() == "1"
    assert stat.S_IMODE((work / "d" / "f").stat().st_mode) == 0o700
    assert stat.S_IMODE((work / "back\\slash").stat().st_mode) == 0o600
    assert (work / "empty").is_dir()
    assert (work / "circle").is_symlink()
    assert (work / "nothing").is_symlink()


def test_two_entries_for_the_same_file_are_refused(tmp_path: Path) -> None:
    """As on a disk on which A and a are one: nothing is written over, nor through."""
    (tmp_path / "work").mkdir()
    (tmp_path / "elsewhere").write_text("unchanged")
    (tmp_path / "work" / "a").symlink_to("../elsewhere")
    with pytest.raises(code_unpacking.ArchiveRefused, match="two entries are one file"):
        code_unpacking.unpack(io.BytesIO(archive(("work/a", FILE, b"1"))), tmp_path)
    assert (tmp_path / "elsewhere").read_text() == "unchanged"


def test_names_that_are_no_text_are_not_packed(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    with open(os.fsencode(root) + b"/a\xff", "wb"):  # noqa: PTH123 - bytes
        pass
    with pytest.raises(errors.NotShippable, match="no text in UTF-8"):
        code_packing.pack(root, local_blobs.Blobs(tmp_path / "blobs", durable=False))


def test_partly_unpacked_directory_of_a_killed_worker_is_removed(world: Path) -> None:
    left = world / "cache" / ".new-0123456789abcdef"
    (left / "work").mkdir(parents=True)
    os.utime(left, (1.0, 1.0))
    young = world / "cache" / ".new-fedcba9876543210"
    young.mkdir()
    entered(world, archive(("work/x", FILE, b"1")))
    assert not left.exists()
    assert young.exists()
