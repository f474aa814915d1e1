"""The output of attempts: two files each, current and older, in `logs/<task>/<run>-<attempt>`.

Written by the hub: from Log messages, from the outputs that in-process executors copy, and from
short outputs in the journal. Read by `server` and `cli`. A file that reaches `FILE_BYTES` is
renamed to `….log.1`, so an attempt keeps its last 8 to 16 MiB. `….log.rotated` counts how often
that happened, so that a restarted dispatcher knows how much of the output it has. Where the worker
has dropped output, or the disk was full, a line in the log tells how much is missing, and
`….log.dropped` holds by how many bytes the file is shorter than the output. Files are not fsynced:
output is not worth a disk flush for each line, and the worker keeps output that was not
acknowledged.
"""

import contextlib
import errno
import logging
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from kilnwork.api import attempts
from kilnwork.data import disk_checks
from kilnwork.kit import data_directories, ids

log = logging.getLogger(__name__)

FILE_BYTES = 8 << 20
MAX_PRINTED = 100_000
"""Maximum number of tasks with output that are remembered, some hundred bytes each; if there are
more, the disk is asked.
"""
MAX_UNMARKED = 10_000
"""Maximum number of ended attempts whose log has yet to say that output is missing."""
MARK_SHARE = 0.5
"""Share of the disk's spare room that the lines about missing output may take; output itself leaves
the spare room free.
"""
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


def path(logs_dir: Path, ref: attempts.AttemptRef) -> Path:
    """Return the path of an attempt's current log file, which need not exist.

    The path of the older log file has `.1` appended.
    """
    return logs_dir / ids.task_text(ref.task) / f"{ref.run}-{ref.attempt}.log"


def files(logs_dir: Path, ref: attempts.AttemptRef) -> list[Path]:
    """Return the paths of an attempt's existing log files, the older file first."""
    newer = path(logs_dir, ref)
    return [file for file in (_older(newer), newer) if file.exists()]


def _older(newer: Path) -> Path:
    return newer.with_name(newer.name + ".1")


def _rotations(newer: Path) -> Path:
    return newer.with_name(newer.name + ".rotated")


def _skew(newer: Path) -> Path:
    return newer.with_name(newer.name + ".dropped")


class _Lost(NamedTuple):
    """The number of bytes of output that could not be written at the end of a file, and the
    reason.
    """

    size: int
    why: str


class AttemptLogs:
    """Writes the output of attempts, and remembers how much of it is stored until `forget`.

    Without a directory nothing is stored, and all output counts as stored.
    """

    def __init__(self, logs_dir: Path | None, *, file_bytes: int = FILE_BYTES) -> None:
        self.logs_dir = logs_dir
        self._file_bytes = file_bytes
        self._kept: dict[attempts.AttemptRef, int] = {}
        self._lost: dict[attempts.AttemptRef, _Lost] = {}
        self._unmarked: dict[attempts.AttemptRef, _Lost] = {}
        """Lost output of attempts that have ended."""
        self._printed: set[ids.TaskId] | None = set()
        """Tasks with written output; None once there were more than `MAX_PRINTED`."""

    @property
    def remembers(self) -> bool:
        """Return whether any attempt is remembered, so that `forget` is worth a call."""
        return bool(self._kept)

    def stored_end(self, ref: attempts.AttemptRef) -> int:
        """Return the offset below which the output of an attempt is stored."""
        offset = self._kept.get(ref)
        if offset is None:
            # After a restart the files are the only record.
            before = 0 if self.logs_dir is None else self._read_kept(path(self.logs_dir, ref))
            offset = self._kept[ref] = before
        return offset

    def append(self, ref: attempts.AttemptRef, offset: int, data: bytes) -> int:
        """Store new output, which begins at `offset`; return the offset below which output is
        stored now.

        Output that cannot be written, or that would use the room reserved for the journal, is
        missing from the log; a line in the log tells so once there is room.
        """
        stored = self.stored_end(ref)
        end = offset + len(data)
        # The output was sent again after a reconnect: the acknowledgement was lost.
        if end <= stored:
            return stored
        if self.logs_dir is not None:
            newer = path(self.logs_dir, ref)
            try:
                self._note(ref.task)
                _check_room(self.logs_dir, len(data))
                # Before the data, so that the line is where the output is missing.
                self._write_lost(ref, newer)
                if offset > stored:
                    self._write_line(newer, attempts.dropped_line(offset - stored), offset - stored)
                self._write(newer, data[max(0, stored - offset) :])
            except OSError as error:
                if ref not in self._lost:
                    facts = {"attempt": str(ref), "error": str(error)}
                    log.warning("output was not kept", extra=facts)
                full = error.errno in (errno.ENOSPC, errno.EDQUOT)
                why = "the disk was full" if full else error.strerror or str(error)
                self._lost[ref] = _Lost(end - self._read_kept(newer), why)
        # Even if the disk did not store it: the worker keeps output until it is acknowledged.
        self._kept[ref] = end
        return end

    def discard(self, ref: attempts.AttemptRef) -> None:
        """Discard the stored output of an attempt, since all of it is sent again."""
        self._kept[ref] = 0
        self._lost.pop(ref, None)
        if self.logs_dir is not None:
            newer = path(self.logs_dir, ref)
            for file in (newer, _older(newer), _rotations(newer), _skew(newer)):
                file.unlink(missing_ok=True)

    def forget(self, ref: attempts.AttemptRef) -> None:
        """Forget how much output of an ended attempt is stored; its files stay."""
        self._kept.pop(ref, None)
        lost = self._lost.pop(ref, None)
        if lost and len(self._unmarked) < MAX_UNMARKED:
            self._unmarked[ref] = lost
            # Write the line at once if there is room; otherwise when `mark` is called again.
            self.mark()

    def mark(self) -> None:
        """Write the line about missing output into logs of ended attempts, if there is room now.

        Call it every few seconds.
        """
        if self.logs_dir is None:
            return
        with contextlib.suppress(OSError):
            for ref in list(self._unmarked):
                _check_room(self.logs_dir, 0, share=MARK_SHARE)
                lost = self._unmarked[ref]
                newer = path(self.logs_dir, ref)
                self._write_line(newer, attempts.lost_line(*lost), lost.size)
                del self._unmarked[ref]

    def has_output(self, task: ids.TaskId, *, new: bool = False) -> bool:
        """Return whether any attempt of the task has stored output.

        `new`: count only output stored since this object was made.
        """
        if self.logs_dir is None:
            return False
        if new and self._printed is not None:
            return task in self._printed
        # Called for hundreds of thousands of tasks: a Path takes ten times as long, an exception
        # three times.
        return os.access(f"{self.logs_dir}/{ids.task_text(task)}", os.F_OK)

    def sizes(self, tasks: Iterable[ids.TaskId]) -> dict[ids.TaskId, int]:
        """Return how many bytes of output are stored for each of the tasks; blocks on the disk."""
        found = {}
        for task in tasks if self.logs_dir is not None else ():
            where = f"{self.logs_dir}/{ids.task_text(task)}"
            # OSError: the task may have no directory.
            with contextlib.suppress(OSError), os.scandir(where) as files:
                found[task] = sum(file.stat().st_size for file in files)
        return found

    def forget_tasks(self, tasks: Iterable[ids.TaskId]) -> None:
        """Write nothing more about the ended attempts of these tasks, whose output `delete`
        deletes.
        """
        forgotten = set(tasks)
        if self._printed is not None:
            self._printed -= forgotten
        for ref in [ref for ref in self._unmarked if ref.task in forgotten]:
            del self._unmarked[ref]

    def delete(self, task: ids.TaskId) -> None:
        """Delete all output of a forgotten task; blocks on the disk, and may run in any thread."""
        if self.logs_dir is not None:
            shutil.rmtree(self.logs_dir / ids.task_text(task), ignore_errors=True)

    def _note(self, task: ids.TaskId) -> None:
        if self._printed is not None:
            self._printed.add(task)
            if len(self._printed) > MAX_PRINTED:
                self._printed = None

    def _read_kept(self, newer: Path) -> int:
        try:
            size = newer.stat().st_size
        except OSError:
            size = 0
        rotations = _number(_rotations(newer))
        return rotations * self._file_bytes + size + _number(_skew(newer))

    def _write_lost(self, ref: attempts.AttemptRef, newer: Path) -> None:
        lost = self._lost.get(ref)
        if lost:
            self._write_line(newer, attempts.lost_line(*lost), lost.size)
            del self._lost[ref]

    def _write_line(self, newer: Path, line: bytes, count: int) -> None:
        """Write the line for `count` missing bytes, and record that the file is shorter by that
        many.
        """
        if self._read_kept(newer):
            line = b"\n" + line
        self._write(newer, line)
        _write_number(_skew(newer), _number(_skew(newer)) + count - len(line))

    def _write(self, newer: Path, data: bytes) -> None:
        while data:
            with os.fdopen(_open(newer), "ab") as file:
                # The file is opened for appending, so `tell` returns its length.
                room = self._file_bytes - file.tell()
                file.write(data[:room])
            data = data[room:]
            if data:
                self._rotate(newer)

    def _rotate(self, newer: Path) -> None:
        counter = _rotations(newer)
        before = _number(counter)
        # In this order: after a crash in between, the count is too low and a line says that output
        # is missing; the other way round, output that was never stored would count as stored.
        newer.replace(_older(newer))
        _write_number(counter, before + 1)


def _check_room(logs_dir: Path, count: int, *, share: float = 1.0) -> None:
    """Raise OSError if `count` bytes would use the room that is reserved for the journal."""
    with contextlib.suppress(FileNotFoundError):  # the file is created with the first output
        if disk_checks.usable_bytes(logs_dir, share=share) < count:
            raise OSError(errno.ENOSPC, "what is left on the disk is kept for the journal")


def _number(file: Path) -> int:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return 0


def _write_number(file: Path, number: int) -> None:
    # Replaced as a whole: if a process was killed after a truncation, or the disk was full, the
    # file would be empty, which counts as 0.
    data_directories.write_private(file, str(number).encode())


def _open(newer: Path) -> int:
    """Return a descriptor for appending to a log file; make its directories if necessary."""
    try:
        return os.open(newer, _APPEND, 0o600)
    except FileNotFoundError:
        pass
    try:
        newer.parent.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        newer.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        newer.parent.mkdir(mode=0o700, exist_ok=True)
    return os.open(newer, _APPEND, 0o600)
