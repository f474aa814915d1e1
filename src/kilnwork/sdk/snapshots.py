"""Data of a SyncSet for the function of a step: shards and whole snapshots below `$KILN_DATA`.

Used by functions that steps call: they get a JSON document, which `kiln.Shard(document)` or
`kiln.Snapshot(document)` opens. Nothing is fetched here: the files are on the node before the step
begins. How a snapshot is divided is in `data.pond.shards`, and which record is in which shard in
`data.pond.shard_records`.
"""

import csv
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from kilnwork.api import sync_set_env
from kilnwork.data import errors as data_errors
from kilnwork.data.pond import manifest, shard_records, shards
from kilnwork.sdk import context, errors

DATA_VARIABLE = "KILN_DATA"
"""Environment variable of workers: the directory with the snapshots of their generation."""

_JSON = frozenset({".json", ".jsonl", ".ndjson"})
"""Endings of files with a JSON document in each line."""


class Shard:
    """One shard of a snapshot, opened from the document that a step with `each` gets.

    `snapshot`, `digest`: the name and the digest of the snapshot. `index`: the number of the shard,
    from 0; `count`: the number of shards. `id`: a text that is the same for the same digest,
    scheme, index and count. `size`: the size in bytes; a file of which the shard has only records
    by hash or by row counts completely.
    """

    def __init__(self, document: "Shard | Mapping[str, Any]") -> None:
        """Open a shard. Raises TypeError if `document` is not the document of a shard."""
        self._shard: shards.Shard = (
            document._shard
            if isinstance(document, Shard)
            else _converted(document, shards.Shard, "shard, as `each` over data gives it")
        )
        self.snapshot, self.digest = self._shard.snapshot, self._shard.digest
        self.id, self.index, self.count = self._shard.id, self._shard.index, self._shard.count
        self.size = self._shard.size

    @property
    def directory(self) -> Path:
        """The snapshot's directory on this node. Raises ConfigurationError outside of a step."""
        return directory(self.snapshot)

    @property
    def files(self) -> list[Path]:
        """Return the paths on this node of all files with data of the shard.

        A file that is only partly in the shard is included.
        """
        return [self.directory / path for path in self._shard.paths]

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of the shard without line feed, file by file. Raises BadRecord.

        A range of bytes has the lines that begin in it; a range of rows has that number of lines
        from its first row on; a shard by hash has the lines whose key belongs to it. Blank lines
        and the header of a CSV file are not yielded.
        """
        for line, _ in self._lines():
            yield line

    def records(self) -> Iterator[Any]:
        """Yield the records of the shard, converted as the name of their file requires. Raises
        BadRecord.

        A line of a `.csv` file becomes a dict by the names of its header, a line of `.json`,
        `.jsonl` and `.ndjson` its JSON document, any other line a text.
        """
        for line, read in self._lines():
            yield read(line)

    def _lines(self) -> Iterator[tuple[bytes, "_Reader"]]:
        located = shard_records.locate_rows(self._shard, self.directory)
        for file in located.files:
            path = self.directory / file.path
            read = _Reader(path)
            one = msgspec.structs.replace(located, files=(file,))
            found = shard_records.of_shard(one, self.directory)
            starts = file.range is None or file.range[0] == 0
            if read.header and self._shard.where is None and starts:
                next(found, None)  # the header; keyed shards omit it already
            for line in found:
                if line.strip():
                    yield line, read

    def __repr__(self) -> str:
        return f"<Shard {self.snapshot}[{self.index}] of {self.count}>"


class Snapshot:
    """A whole snapshot, opened from its document, which is the value of `${ data.NAME }`.

    `name`, `digest`: its name and digest. `bytes`: the size of all its files.
    """

    def __init__(self, document: "Snapshot | Mapping[str, Any]") -> None:
        """Open a snapshot. Raises TypeError if `document` is not the document of a snapshot."""
        self._reference: _Reference = (
            document._reference
            if isinstance(document, Snapshot)
            else _converted(document, _Reference, "snapshot, as data.NAME gives it")
        )
        reference = self._reference
        self.name, self.digest, self.bytes = reference.name, reference.digest, reference.bytes

    @property
    def directory(self) -> Path:
        """The directory of the snapshot on this node. Raises ConfigurationError outside of a
        step.
        """
        return directory(self.name)

    @property
    def files(self) -> list[Path]:
        """Return the paths of all files of the snapshot on this node, in order."""
        return sorted(path for path in self.directory.rglob("*") if path.is_file())

    def path(self, name: str) -> Path:
        """Return the path on this node of a file of the snapshot. Raises FileNotFoundError.

        `name`: the path of the file in the snapshot.
        """
        found = self.directory / name
        if not found.is_file():
            raise FileNotFoundError(f"snapshot {self.name} has no file {name!r}")
        return found

    def records(self) -> Iterator[Any]:
        """Yield the records of all files of the snapshot, converted as by `Shard.records`.

        Raises BadRecord.
        """
        for path in self.files:
            read = _Reader(path)
            for number, line in enumerate(shard_records.lines(path)):
                if line.strip() and not (read.header and number == 0):
                    yield read(line)

    def shards(
        self,
        count: int | None = None,
        *,
        by: Literal["files", "range", "hash"] = "files",
        key: str = "",
        unit: Literal["bytes", "rows"] = "bytes",
    ) -> list[Shard]:
        """Divide the snapshot in this task, for functions that spawn a task for each shard.

        The rules are those of `spec.data.snapshots[].shard`. `count`: the number of shards; None,
        only with `files`: one per file. `key`: with `hash`, the key of a record that determines its
        shard; without it, whole files are divided by the hash of their paths. `unit`: with `range`,
        the unit of which each shard gets the same number. Raises ManifestRefused (a DataError) for
        an impossible number, and for a `key` or `unit` that `by` does not use.
        """
        root = self.directory
        found = tuple(
            manifest.File(
                path=path.relative_to(root).as_posix(),
                size=path.stat().st_size,
                mode=manifest.PLAIN,
                digest="",
            )
            for path in self.files
        )
        listed = _Listed(tuple(sorted(found, key=lambda file: file.path)), self.digest)
        planned = shards.plan(
            listed, shards.Scheme(by=by, key=key, unit=unit), count, snapshot=self.name
        )
        return [Shard(msgspec.to_builtins(one)) for one in planned]

    def __repr__(self) -> str:
        return f"<Snapshot {self.name} {self.digest}>"


class _Listed(NamedTuple):
    """The files of a snapshot as `shards.Divisible`.

    The files have no digests, which are not needed again.
    """

    files: tuple[manifest.File, ...]
    digest: str


class _Reference(msgspec.Struct, frozen=True, kw_only=True):
    """The document of a whole snapshot.

    `shards`: the number of its shards; None: it is not divided.
    """

    name: str
    digest: str
    bytes: int
    shards: int | None = None


def directory(snapshot: str) -> Path:
    """Return the directory of a snapshot on this node.

    Raises ConfigurationError outside of a step.
    """
    root = os.environ.get(DATA_VARIABLE)
    if not root:
        raise errors.ConfigurationError(
            f"snapshot {snapshot}: ${DATA_VARIABLE} is not set: data is read in functions that "
            "steps of a SyncSet with data call, or in kiln.testing.run_set(…)"
        )
    return Path(root) / snapshot


def outputs() -> Path:
    """Return the directory for the output files of this task.

    `spec.data.outputs` of its SyncSet makes a snapshot of the files that the tasks of a step have
    written there. The directory is empty at first and belongs to this attempt alone: files of a
    failed attempt are ignored. Raises ConfigurationError in a set without outputs, NotInTask
    outside of a task.
    """
    inner, root = context.context(), os.environ.get(sync_set_env.OUTPUTS)
    if not root:
        raise errors.ConfigurationError(
            f"${sync_set_env.OUTPUTS} is not set: files are kept of steps that "
            "spec.data.outputs of their SyncSet names, on its own workers"
        )
    name = sync_set_env.output_directory(inner.task_id, run=inner.run, attempt=inner.attempt)
    found = Path(root) / name
    found.mkdir(exist_ok=True)
    return found


class _Reader:
    """A converter of the lines of one file to records.

    `header`: the names of the columns; empty if the file is not CSV.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._json = path.suffix in _JSON
        self.header: list[str] = []
        if path.suffix == ".csv":
            self.header = self._fields(next(shard_records.lines(path), b""))

    def __call__(self, line: bytes) -> Any:
        if self.header:
            fields = self._fields(line)
            if len(fields) != len(self.header):
                raise data_errors.BadRecord(
                    f"{self._path}: a line has {len(fields)} fields, and the header has "
                    f"{len(self.header)}: {line[:80]!r}"
                )
            return dict(zip(self.header, fields, strict=True))
        if self._json:
            try:
                return msgspec.json.decode(line)
            except msgspec.MsgspecError as error:
                raise data_errors.BadRecord(
                    f"{self._path}: a line is no JSON ({error}): {line[:80]!r}"
                ) from error
        return line.decode(errors="surrogateescape").removesuffix("\r")

    def _fields(self, line: bytes) -> list[str]:
        text = line.decode(errors="surrogateescape").removesuffix("\r")
        if text.count('"') % 2:
            raise data_errors.BadRecord(
                f"{self._path}: a field is not closed on its line: {line[:80]!r}"
            )
        return next(csv.reader([text]), [])


def _converted(document: Any, kind: Any, what: str) -> Any:
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise TypeError(f"{document!r:.200} is no document of a {what}: {error}") from error
