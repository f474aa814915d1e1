"""Part outputs: reads the outputs of parts in order, and verifies the outputs against the commit
records.

Used by `reduce`. A result is published only after all of its bytes were compared, by size and
SHA-256, with the record of the attempt that wrote them.
"""

import hashlib
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import NamedTuple

from kilnwork.api import filejobs
from kilnwork.data import errors, part_commits
from kilnwork.data.stores import port
from kilnwork.jobs.work import read_ahead


class PartOutput(NamedTuple):
    """Result file of a part, and its file of bad records, as its commit names them."""

    commit: filejobs.Commit
    output: filejobs.StoredFile
    errors: filejobs.StoredFile | None


_File = tuple[filejobs.Commit, filejobs.StoredFile]
"""A file, and the commit record that names it."""


class OutputDamaged(Exception):
    """The output of a part is missing or damaged."""

    def __init__(self, found: filejobs.Damaged) -> None:
        super().__init__(found.message)
        self.found = found


def outputs_of(store: port.Store, parts: tuple[tuple[int, int], ...]) -> list[PartOutput]:
    """Return the outputs of these (part, run) pairs, in the order of the pairs, without reading the
    outputs.

    Raises `OutputDamaged` if a part has no readable commit record, or has not succeeded.
    """
    found = []
    for number, run in parts:
        try:
            commit = part_commits.find(store, number, run)
        except errors.ObjectDamaged as error:
            message = f"part {number}, run {run}: {error}"
            raise OutputDamaged(filejobs.Damaged(part=number, run=run, message=message)) from error
        found.append(_checked(commit, number, run))
    return found


def _checked(commit: filejobs.Commit | None, number: int, run: int) -> PartOutput:
    if commit is None:
        why = "has no commit"
    elif commit.outcome is not filejobs.PartOutcome.SUCCEEDED or commit.output is None:
        why = f"has ended as {commit.outcome}"
    else:
        return PartOutput(commit, commit.output, commit.errors)
    message = f"part {number}, run {run}, {why}"
    raise OutputDamaged(filejobs.Damaged(part=number, run=run, message=message))


def find_missing(store: port.Store, parts: tuple[tuple[int, int], ...]) -> list[filejobs.Damaged]:
    """Return the parts whose commit record or outputs are missing or unusable. Of the outputs only
    the size is checked, not the content.
    """
    found = []
    for number, run in parts:
        try:
            (only,) = outputs_of(store, ((number, run),))
            for file in filter(None, (only.output, only.errors)):
                _check_size(store, only.commit, file)
        except OutputDamaged as damage:
            found.append(damage.found)
    return found


def _check_size(store: port.Store, commit: filejobs.Commit, file: filejobs.StoredFile) -> None:
    try:
        size = store.head(file.key).bytes
    except errors.ObjectMissing:
        raise _damage(commit, f"its {file.key} is gone") from None
    if size != file.bytes:
        raise _damage(commit, f"its {file.key} has {size} bytes instead of {file.bytes}")


def _damage(commit: filejobs.Commit, why: str) -> OutputDamaged:
    message = f"part {commit.part}, run {commit.run}: {why}"
    return OutputDamaged(filejobs.Damaged(part=commit.part, run=commit.run, message=message))


class PartOutputReader:
    """Reader of the output files that commits name.

    `on_progress` is called with the number of bytes read so far, and may raise. `aside`: an
    executor with one thread, which reads and verifies ahead.
    """

    def __init__(
        self, store: port.Store, *, on_progress: Callable[[int], None], aside: futures.Executor
    ) -> None:
        self._store = store
        self._on_progress = on_progress
        self._aside = aside
        self._read_bytes = 0

    def read_outputs(self, found: list[PartOutput]) -> Iterator[bytes]:
        """Yield the results of all parts, in pieces. Raises `OutputDamaged` at the latest after the
        last piece of a damaged part."""
        return self._pieces((each.commit, each.output) for each in found)

    def read_errors(self, found: list[PartOutput]) -> Iterator[bytes]:
        """Yield the bad records of all parts, in pieces. Raises as `read_outputs`."""
        return self._pieces((each.commit, each.errors) for each in found if each.errors is not None)

    def sum_outputs(
        self, found: list[PartOutput]
    ) -> tuple[filejobs.StoredFile, filejobs.StoredFile | None]:
        """Read all outputs, and return size, lines and digest of all results together, and of all
        bad records if there are any.

        Raises `OutputDamaged`.
        """
        results = _summed(self.read_outputs(found), [each.output for each in found])
        bad = [each.errors for each in found if each.errors is not None]
        return results, _summed(self.read_errors(found), bad) if bad else None

    def check(self) -> None:
        """Call `on_progress` without reading anything. Raises the exceptions of `on_progress`."""
        self._on_progress(self._read_bytes)

    def _pieces(self, files: Iterator[_File]) -> Iterator[bytes]:
        verified = (piece for file in files for piece in _verified(self._store, *file))
        for piece in read_ahead.read_pieces(verified, self._aside):
            self.check()
            self._read_bytes += len(piece)
            yield piece


def _summed(pieces: Iterator[bytes], files: list[filejobs.StoredFile]) -> filejobs.StoredFile:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return filejobs.StoredFile(
        key=filejobs.OUTPUTS,
        bytes=sum(file.bytes for file in files),
        lines=sum(file.lines for file in files),
        sha256=digest.hexdigest(),
    )


def _verified(
    store: port.Store, commit: filejobs.Commit, file: filejobs.StoredFile
) -> Iterator[bytes]:
    digest = hashlib.sha256()
    size = 0
    try:
        with store.read(file.key) as reading:
            for piece in reading:
                digest.update(piece)
                size += len(piece)
                yield piece
    except errors.ObjectMissing:
        raise _damage(commit, f"its {file.key} is gone") from None
    if (size, digest.hexdigest()) != (file.bytes, file.sha256):
        raise _damage(
            commit,
            f"its {file.key} is not what was written: {size} bytes, SHA-256 "
            f"{digest.hexdigest()}, instead of {file.bytes} and {file.sha256}",
        )
