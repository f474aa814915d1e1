"""Manifests have one digest for the same files; paths outside the snapshot are refused."""

import hashlib
import json
import stat
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilnwork.data import errors
from kilnwork.data.pond import globs, manifest
from support import ponds

NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF, exclude_characters="/\x7f"))
NAMES = NAMES.filter(lambda text: 0 < len(text) < 20 and text not in (".", ".."))
CONTENTS = st.dictionaries(NAMES, st.binary(max_size=20), min_size=1, max_size=8)


@given(CONTENTS, st.randoms(use_true_random=False))
def test_digest_does_not_depend_on_order_of_files(files: dict[str, bytes], random: Random) -> None:
    shuffled = list(files.items())
    random.shuffle(shuffled)

    assert ponds.manifest_of(dict(shuffled)).digest == ponds.manifest_of(files).digest


@given(CONTENTS)
def test_digest_is_that_of_canonical_json(files: dict[str, bytes]) -> None:
    made = ponds.manifest_of(files)

    document = json.loads(made.encoded)
    again = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert again.encode() == made.encoded
    assert [one["path"] for one in document["files"]] == sorted(files)
    assert made.digest == f"sha256:{hashlib.sha256(made.encoded).hexdigest()}"


@given(CONTENTS)
def test_encoded_manifest_can_be_parsed(files: dict[str, bytes]) -> None:
    made = ponds.manifest_of(files)

    found = manifest.parse(made.encoded, digest=made.digest)

    assert found.files == made.files
    assert found.size == sum(map(len, files.values()))


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../passwd", "'..'"),
        ("a/../../b", "'..'"),
        ("/etc/passwd", "absolute"),
        ("a//b", "''"),
        ("./a", "'.'"),
        ("a/", "''"),
        ("", "''"),
        ("a\x00b", "control character"),
        ("a\nb", "control character"),
        ("x" * 256, "255 bytes"),
        ("/".join(["x" * 200] * 6), "1024"),
    ],
)
def test_paths_outside_of_snapshot_are_refused(path: str, why: str) -> None:
    with pytest.raises(errors.ManifestRefused, match=r"files\[0\].path") as caught:
        ponds.manifest_of({path: b""})
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (stat.S_IFLNK, "symbolic link"),
        (stat.S_IFBLK, "block device"),
        (stat.S_IFCHR, "character device"),
        (stat.S_IFIFO, "pipe"),
        (stat.S_IFSOCK, "socket"),
        (stat.S_IFDIR, "directory"),
    ],
)
def test_links_and_devices_are_refused(kind: int, word: str) -> None:
    file = manifest.File(path="a", size=0, mode=kind | 0o644, digest=ponds.digest_of(b""))

    with pytest.raises(errors.ManifestRefused, match=word):
        manifest.Manifest([file])


@pytest.mark.parametrize("mode", [0o777, 0o4755, 0o600, 0, -1])
def test_other_modes_are_refused(mode: int) -> None:
    file = manifest.File(path="a", size=0, mode=mode, digest=ponds.digest_of(b""))

    with pytest.raises(errors.ManifestRefused, match="mode"):
        manifest.Manifest([file])


def test_duplicate_path_is_refused() -> None:
    file = ponds.manifest_of({"a": b"x"}).files[0]

    with pytest.raises(errors.ManifestRefused, match="twice"):
        manifest.Manifest([file, file])


def test_file_that_is_also_a_directory_is_refused() -> None:
    with pytest.raises(errors.ManifestRefused, match="below 'a'"):
        ponds.manifest_of({"a": b"", "a-b": b"", "a/b/c": b""})


@pytest.mark.parametrize("digest", ["sha256:00", "md5:00", "sha256:" + "A" * 64, ""])
def test_malformed_digest_is_refused(digest: str) -> None:
    with pytest.raises(errors.ManifestRefused, match="digest"):
        manifest.Manifest([manifest.File(path="a", size=0, mode=0o644, digest=digest)])


def test_manifest_with_wrong_digest_is_refused() -> None:
    made = ponds.manifest_of({"a": b"1"})

    with pytest.raises(errors.ManifestRefused, match="fetch it again"):
        manifest.parse(made.encoded, digest=ponds.manifest_of({"a": b"2"}).digest)


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document["files"].reverse(),
        lambda document: document["files"][0].update(link="/etc/passwd"),
        lambda document: document.update(format=2),
        lambda document: document["files"][0].update(size=-1),
    ],
)
def test_manifest_in_non_canonical_form_is_refused(
    change: Callable[[dict[str, Any]], None],
) -> None:
    document = json.loads(ponds.manifest_of({"a": b"1", "b": b"2"}).encoded)
    change(document)
    encoded = msgspec.json.encode(document, order="sorted")

    with pytest.raises(errors.ManifestRefused):
        manifest.parse(encoded, digest=ponds.digest_of(encoded))


def test_files_of_a_snapshot_are_chosen_by_path() -> None:
    made = ponds.manifest_of({"a": b"1", "b": b"2"})

    assert [file.path for file in made.chosen(["b"])] == ["b"]
    with pytest.raises(errors.ManifestRefused, match="'c'"):
        made.chosen(["b", "c"])


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("*.csv", "a.csv", True),
        ("*.csv", "a/b.csv", False),
        ("**/*.csv", "a.csv", True),
        ("**/*.csv", "a/b/c.csv", True),
        ("a/**", "a/b/c", True),
        ("a/**", "a", False),
        ("**", "a/b", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("[ab]*", "bx", True),
        ("[!ab]*", "bx", False),
        ("[a-c]", "b", True),
        ("a[]]b", "a]b", True),
        ("a[^]b", "a^b", True),
        ("a.c", "abc", False),
        (".*", ".hidden", True),
    ],
)
def test_pattern_matches_paths(pattern: str, path: str, fits: bool) -> None:  # noqa: FBT001 - a parameter
    assert globs.matches(pattern, path) is fits


@pytest.mark.parametrize("pattern", ["", "/a", "a//b", "../*", "a[b", "[z-a]", "x" * 2000])
def test_invalid_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(errors.ManifestRefused, match="pattern"):
        globs.matches(pattern, "a")


def test_mode_depends_on_execute_permission_of_owner(tmp_path: Path) -> None:
    (tmp_path / "a").touch(mode=0o640)
    (tmp_path / "b").touch(mode=0o750)

    assert manifest.mode_of((tmp_path / "a").stat().st_mode) == manifest.PLAIN
    assert manifest.mode_of((tmp_path / "b").stat().st_mode) == manifest.EXECUTABLE
