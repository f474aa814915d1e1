"""Shards: divides a snapshot for many tasks, using its manifest only.

Used by code that runs a step for each shard, and that decides which node needs which files. Pure:
the same manifest, scheme and count give the same shards, whatever was planned before; another count
gives other shards of the same files, and transfers no blob. `shard_records` reads the records of a
shard.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Annotated, Protocol

import msgspec

from kilnwork.data import errors
from kilnwork.data.pond import globs, manifest

MAX_COUNT = 100_000

_canonical = msgspec.json.Encoder(order="sorted")


class Scheme(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Rule by which a snapshot is divided into shards, selected by `by`.

    `files`: whole files in the order of their paths, with about the same number of bytes in each
    shard. `glob`: one shard for each pattern in `patterns`; a file belongs to the first pattern
    that matches. `range`: equal ranges of bytes of the concatenated files, where a record belongs
    to the range in which it begins; if `unit` is `rows`, shards have equal numbers of records
    instead. `hash`: files by the SHA-256 of their path; if `key` is set, the records of all files
    by the SHA-256 of that field.
    """

    by: Annotated[str, msgspec.Meta(pattern="^(files|glob|range|hash)$")]
    key: str = ""
    patterns: tuple[str, ...] = ()
    unit: Annotated[str, msgspec.Meta(pattern="^(bytes|rows)$")] = "bytes"


class ShardFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A file of a shard. `range`: bytes [start, end) in which its records begin, None for the whole
    file."""

    path: str
    size: int
    range: tuple[int, int] | None = None


class RecordFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter for the records of a shard's files: only records whose `key` hashes to `index` of
    `count` belong to the shard.
    """

    key: str
    index: int
    count: int


class Shard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One shard, as passed to a step in JSON.

    `digest`: digest of the snapshot; `id`: identifier of this shard, the same for the same digest,
    scheme, index and count. `rows`: whether the records of all files are divided into `count` equal
    parts, of which this shard is number `index`. The position of such a shard is unknown when the
    snapshot is pinned; its reader finds it by counting records (`shard_records.locate_rows`).
    """

    snapshot: str
    digest: str
    id: str
    index: int
    count: int
    files: tuple[ShardFile, ...]
    where: RecordFilter | None = None
    rows: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the files that a node needs for the shard."""
        return tuple(file.path for file in self.files)

    @property
    def size(self) -> int:
        """Size of the shard in bytes; a file of which it has only some records counts
        completely.
        """
        return sum(f.size if f.range is None else f.range[1] - f.range[0] for f in self.files)


class Divisible(Protocol):
    """Port for data that can be divided into shards: a manifest, or an object with the same
    facts.
    """

    @property
    def files(self) -> Sequence[manifest.File]:
        """The files of the snapshot, ordered by path."""
        ...

    @property
    def digest(self) -> str:
        """Digest of the snapshot."""
        ...


def plan(
    of: Divisible, scheme: Scheme, count: int | None = None, *, snapshot: str = ""
) -> list[Shard]:
    """Return all shards of a snapshot in the order of their index. Every record is in exactly one
    shard.

    `count`: number of shards; for `files` by default one per file, for `glob` one per pattern, and
    required for `range` and `hash`. If there are fewer files than shards, some shards have no
    files. `snapshot`: name of the snapshot, for the documents. Raises ManifestRefused.
    """
    wanted, rows, given = _count(of, scheme, count), scheme.unit == "rows", _given(scheme)
    if rows or (scheme.by == "hash" and scheme.key):
        everything = tuple(ShardFile(path=f.path, size=f.size) for f in of.files)
        parts: Sequence[Sequence[ShardFile]] = [everything] * wanted
    elif scheme.by == "range":
        parts = _ranges(of.files, wanted)
    else:
        parts = _whole(of.files, wanted, _chooser(of.files, scheme, wanted))
    return [
        Shard(
            snapshot=snapshot,
            digest=of.digest,
            id=_identity(of.digest, given, index, count=wanted),
            index=index,
            count=wanted,
            files=tuple(files),
            where=RecordFilter(key=scheme.key, index=index, count=wanted) if scheme.key else None,
            rows=rows,
        )
        for index, files in enumerate(parts)
    ]


def portion(index: int, count: int, portions: int) -> int:
    """Return the number of the portion to which a shard belongs.

    A portion is a run of neighbouring shards, which may share files; all portions have about the
    same number of shards.
    """
    return index * portions // count


def bucket(text: str, count: int) -> int:
    """Return the bucket of a text, from 0 to `count` - 1: the first eight bytes of its SHA-256,
    modulo `count`.
    """
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % count


def _count(of: Divisible, scheme: Scheme, count: int | None) -> int:
    if scheme.key and scheme.by != "hash":
        raise errors.ManifestRefused(f"key: only by: hash has one, not by: {scheme.by}")
    if scheme.unit != "bytes" and scheme.by != "range":
        raise errors.ManifestRefused(f"unit: only by: range has one, not by: {scheme.by}")
    if (scheme.by == "glob") != bool(scheme.patterns):
        raise errors.ManifestRefused("patterns: by: glob has them, and no other scheme")
    if scheme.by == "glob":
        if count not in (None, len(scheme.patterns)):
            raise errors.ManifestRefused(
                f"count: {count}, but there are {len(scheme.patterns)} patterns: leave it out"
            )
        return len(scheme.patterns)
    if count is None:
        if scheme.by != "files":
            raise errors.ManifestRefused(f"count: by: {scheme.by} needs one")
        count = max(1, len(of.files))
    if not 1 <= count <= MAX_COUNT:
        raise errors.ManifestRefused(f"count: {count} is not from 1 to {MAX_COUNT:,}")
    return count


Chooser = Callable[[int, manifest.File], int]


def _chooser(files: Sequence[manifest.File], scheme: Scheme, count: int) -> Chooser:
    if scheme.by == "hash":
        return lambda _, file: bucket(file.path, count)
    if scheme.by == "glob":
        return lambda _, file: _first_match(scheme.patterns, file.path)
    places = _balanced([file.size for file in files], count)
    return lambda index, _: places[index]


def _whole(files: Sequence[manifest.File], count: int, choose: Chooser) -> list[list[ShardFile]]:
    parts: list[list[ShardFile]] = [[] for _ in range(count)]
    for index, file in enumerate(files):
        parts[choose(index, file)].append(ShardFile(path=file.path, size=file.size))
    return parts


def _first_match(patterns: Sequence[str], path: str) -> int:
    for index, pattern in enumerate(patterns):
        if globs.matches(pattern, path):
            return index
    raise errors.ManifestRefused(
        f"patterns: file {path!r} fits none of them, and would be in no shard: add '**'"
    )


def _balanced(sizes: Sequence[int], count: int) -> list[int]:
    """Divide a row of sizes into `count` consecutive runs of about the same sum; return the number
    of the run for each item.

    No run is empty if there are enough items. An item goes to the run in which its middle lies,
    unless that would leave an earlier or later run empty.
    """
    total = sum(sizes) or 1
    places, before, place = [], 0, -1
    for index, size in enumerate(sizes):
        middle = (2 * before + size) * count // (2 * total)
        least = count - (len(sizes) - index)
        place = max(min(max(middle, least, place), place + 1, count - 1), 0)
        places.append(place)
        before += size
    return places


def _ranges(files: Sequence[manifest.File], count: int) -> list[list[ShardFile]]:
    """Cut the concatenation of all files into `count` ranges of equal size. An empty file goes to
    the range in which it lies.
    """
    total = sum(file.size for file in files)
    cuts = [total * index // count for index in range(count + 1)]
    parts: list[list[ShardFile]] = [[] for _ in range(count)]
    at, shard = 0, 0
    for file in files:
        if file.size == 0:
            parts[shard].append(ShardFile(path=file.path, size=0))
            continue
        begin, end = at, at + file.size
        while at < end:
            while cuts[shard + 1] <= at:
                shard += 1
            until = min(end, cuts[shard + 1])
            whole = (at, until) == (begin, end)
            span = None if whole else (at - begin, until - begin)
            parts[shard].append(ShardFile(path=file.path, size=file.size, range=span))
            at = until
    return parts


def _given(scheme: Scheme) -> dict[str, object]:
    """Return the non-default fields of a scheme.

    The struct itself omits a text only if it is the identical object, which a decoded text is not.
    """
    default = Scheme(by=scheme.by)
    found = {name: getattr(scheme, name) for name in Scheme.__struct_fields__}
    return {n: one for n, one in found.items() if n == "by" or one != getattr(default, n)}


def _identity(digest: str, given: dict[str, object], index: int, *, count: int) -> str:
    facts = _canonical.encode([digest, given, index, count])
    return hashlib.sha256(facts).hexdigest()[:32]
