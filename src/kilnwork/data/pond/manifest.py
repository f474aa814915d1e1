"""Manifests: lists of the files of a snapshot, in a form that has exactly one digest.

Used by code that pins a source, transfers a snapshot or plans from one. The bytes of a manifest are
its canonical JSON (RFC 8785: sorted keys, no spaces) with the files ordered by path, so that equal
files have an equal digest, wherever and in whatever order they were found. Manifests come from
other machines and from users: all their paths are checked before anything is done with them.
"""

import stat
from collections.abc import Iterable

import msgspec

from kilnwork.data import errors, local_blobs
from kilnwork.kit import digests, snapshot_path_validation

FORMAT = 1
MAX_FILES = 1_000_000
MAX_BYTES = 256 << 20
"""Maximum size of an encoded manifest: a million files with paths of a hundred characters."""

PLAIN = 0o644
EXECUTABLE = 0o755


class File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file in a manifest. `size`: in bytes; `mode`: PLAIN or EXECUTABLE, as in git; `digest`:
    `sha256:…`.
    """

    path: str
    size: int
    mode: int
    digest: str


class _Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    files: tuple[File, ...]
    format: int


_encoder = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder(_Document)


class Manifest:
    """The files of one snapshot, sorted by path. `encoded`: the manifest's JSON, whose digest is
    `digest`.
    """

    __slots__ = ("digest", "encoded", "files", "size")

    def __init__(self, files: Iterable[File]) -> None:
        """Make a manifest of these files. Raises ManifestRefused for invalid paths, and for too
        many files.
        """
        self.files = tuple(sorted(files, key=_path))
        _check(self.files)
        self.encoded = _encoder.encode(_Document(files=self.files, format=FORMAT))
        if len(self.encoded) > MAX_BYTES:
            raise errors.ManifestRefused(
                f"the manifest has {len(self.encoded):,} bytes, above {MAX_BYTES:,}: make several "
                "snapshots of it"
            )
        self.digest = local_blobs.text(digests.sha256_of((self.encoded,)))
        self.size = sum(file.size for file in self.files)
        """Total size of all files in bytes."""

    def chosen(self, paths: Iterable[str] | None) -> tuple[File, ...]:
        """Return the files with these paths, or all files if `paths` is None. Raises
        ManifestRefused for a path that does not exist.
        """
        if paths is None:
            return self.files
        wanted = set(paths)
        found = tuple(file for file in self.files if file.path in wanted)
        if len(found) != len(wanted):
            lacking = min(wanted - {file.path for file in found})
            raise errors.ManifestRefused(f"snapshot {self.digest} has no file {lacking!r}")
        return found


def parse(encoded: bytes, *, digest: str) -> Manifest:
    """Decode a manifest whose digest must be `digest`. Raises ManifestRefused."""
    if len(encoded) > MAX_BYTES:
        raise errors.ManifestRefused(
            f"the manifest has {len(encoded):,} bytes, above {MAX_BYTES:,}: make several snapshots "
            "of it"
        )
    found = local_blobs.text(digests.sha256_of((encoded,)))
    if found != digest:
        raise errors.ManifestRefused(f"the manifest of {digest} has digest {found}: fetch it again")
    try:
        document = _decoder.decode(encoded)
    except msgspec.MsgspecError as error:
        raise errors.ManifestRefused(f"not a manifest: {error}") from error
    if document.format != FORMAT:
        raise errors.ManifestRefused(
            f"format: {document.format} is not known, only {FORMAT}: use a newer kilnwork"
        )
    made = Manifest(document.files)
    if made.encoded != encoded:
        raise errors.ManifestRefused(
            f"the manifest of {digest} is not in its canonical form (sorted paths and keys, no "
            "spaces): write it with kilnwork.data.pond.manifest"
        )
    return made


def mode_of(found: int) -> int:
    """Return the mode in a manifest, PLAIN or EXECUTABLE, for the `st_mode` of a regular file."""
    return EXECUTABLE if found & stat.S_IXUSR else PLAIN


_TYPES = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


def type_problem(found: int) -> str:
    """Return a text such as `is a directory` for the `st_mode` of a file that is not a regular
    file, else "".
    """
    kind = stat.S_IFMT(found)
    return "" if kind == stat.S_IFREG else f"is {_TYPES.get(kind, 'no regular file')}"


def _path(file: File) -> str:
    return file.path


def _check(files: tuple[File, ...]) -> None:
    if len(files) > MAX_FILES:
        raise errors.ManifestRefused(
            f"files: {len(files):,} are above {MAX_FILES:,}: pack small files, or make several "
            "snapshots"
        )
    paths = {file.path for file in files}
    for index, file in enumerate(files):
        if problem := _problem(file):
            raise errors.ManifestRefused(f"files[{index}].{problem}")
        if index and files[index - 1].path == file.path:
            raise errors.ManifestRefused(f"files[{index}].path: {file.path!r} is there twice")
        for parent in snapshot_path_validation.parents(file.path):
            if parent in paths:
                raise errors.ManifestRefused(
                    f"files[{index}].path: {file.path!r} is below {parent!r}, which is a file"
                )


def _problem(file: File) -> str:
    if why := snapshot_path_validation.problem(file.path):
        return f"path: {file.path!r} {why}"
    if file.mode not in (PLAIN, EXECUTABLE):
        known = 0 <= file.mode < 1 << 16 and stat.S_IFMT(file.mode)
        kind = type_problem(file.mode) if known else ""
        why = kind or f"is not {PLAIN} (0644) or {EXECUTABLE} (0755)"
        return f"mode: {file.mode} of {file.path!r} {why}: snapshots have regular files only"
    if not 0 <= file.size < 1 << 63:
        return f"size: {file.size} of {file.path!r} is no size of a file"
    try:
        canonical = local_blobs.text(local_blobs.parse(file.digest)) == file.digest
    except ValueError:
        canonical = False
    return "" if canonical else f"digest: {file.digest!r} must be sha256: and 64 hex digits"
