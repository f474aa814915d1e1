"""Directories of ponds, fake sources and snapshots, for tests of ponds."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kilnwork.data import errors
from kilnwork.data.pond import blob_fetch, manifest, origins, source_pinning, store
from kilnwork.kit import clock


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def manifest_of(files: dict[str, bytes]) -> manifest.Manifest:
    return manifest.Manifest(
        manifest.File(path=p, size=len(c), mode=manifest.PLAIN, digest=digest_of(c))
        for p, c in files.items()
    )


def opened(
    root: Path, *, pond: str = "quant/lake", time: clock.Clock | None = None
) -> store.PondStore:
    made = store.PondStore(root, pond=pond, time=time)
    made.open()
    return made


def write_files(directory: Path, files: dict[str, bytes]) -> None:
    for path, content in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(content)


def read_files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


class CountingSource:
    """Files in memory that count reads.

    `damage(path, content)` returns what is sent instead; `cut`: bytes after which each response
    ends; `opened`: (path, offset) of each read.
    """

    def __init__(self, files: dict[str, bytes], name: str = "lake") -> None:
        self.name = name
        self.files = dict(files)
        self.damage: Callable[[str, bytes], bytes] = lambda _, content: content
        self.cut: int | None = None
        self.opened: list[tuple[str, int]] = []
        self.sent = 0
        self.after_open: Callable[[str], None] = lambda _: None

    def list(self, selection: origins.Selection) -> Sequence[origins.ListedFile]:
        paths = selection.paths or tuple(sorted(self.files))
        return [
            origins.ListedFile(p, len(self.files[p]), manifest.PLAIN, self.stamp(p)) for p in paths
        ]

    def stamp(self, path: str) -> str:
        return f'etag:"{digest_of(self.files[path])[7:23]}"'

    def open(self, path: str, *, offset: int, stamp: str) -> origins.Content:
        start = offset if stamp == self.stamp(path) else 0
        self.opened.append((path, start))
        content = self.damage(path, self.files[path])
        found = _Content(self, content, start=start, stamp=self.stamp(path))
        self.after_open(path)
        return found

    def origin(self, path: str, *, peer: bool = False) -> origins.Origin:
        if peer:
            return origins.Origin(
                self.name,
                True,
                lambda offset, _: self.open(path, offset=offset, stamp=self.stamp(path)),
            )
        return origins.Origin(
            self.name, False, lambda offset, stamp: self.open(path, offset=offset, stamp=stamp)
        )


class _Content(origins.Content):
    def __init__(self, source: CountingSource, content: bytes, *, start: int, stamp: str) -> None:
        self._source, self._content = source, content
        self.start, self.total, self.stamp = start, len(content), stamp

    def pieces(self) -> Iterator[bytes | memoryview]:
        sent = 0
        for at in range(self.start, len(self._content), 1000):
            if self._source.cut is not None and sent >= self._source.cut:
                raise errors.SourceUnreachable("the connection ended")
            piece = self._content[at : at + 1000]
            sent += len(piece)
            self._source.sent += len(piece)
            yield piece

    def close(self) -> None:
        """Do nothing: the content is in memory."""


def one_by_one(
    read: source_pinning.Read, listed: Sequence[origins.ListedFile]
) -> Iterator[tuple[origins.ListedFile, tuple[blob_fetch.Fetched, str]]]:
    for one in listed:
        yield one, read(one)


def pin(
    kept: store.PondStore,
    source: origins.Source,
    selection: origins.Selection | None = None,
    *,
    time: clock.Clock | None = None,
) -> source_pinning.Pinned:
    selection = selection or origins.Selection()
    return source_pinning.pin(
        kept,
        source_pinning.Target(source, selection, f"{source.name}-{hash(selection) & 0xFFFF:x}"),
        run=one_by_one,
        progress=blob_fetch.Progress(),
        time=time or clock.SystemClock(),
    )
